package main

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"fetchd/internal/policies"
)

// TestProposals applies what "policies report" proposes for a target that a policy denies, and checks that the policy
// then permits it, and still permits what it permitted before.
func TestProposals(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, egress, url, address string // the target: a URL, and the address that it leads to
	}{
		{"a name that is not allowed", "allow-names: [a.example]", "https://b.example/", "8.8.8.8"},
		{"a name inside a network", "allow-names: [a.example]", "https://db7/", "10.1.2.3"},
		{"a name that is denied", "deny-names: [b.example, c.example]", "https://b.example/", "8.8.8.8"},
		{"a name below one that is denied", "deny-names: ['domain:b.example', c.example]", "https://x.b.example/", "8.8.8.8"},
		{"a private address", "{}", "https://b.example/", "10.1.2.3"},
		{"a private literal", "{}", "https://10.1.2.3/", "10.1.2.3"},
		{"a literal outside the names", "allow-names: [a.example]", "https://8.8.8.8/", "8.8.8.8"},
		{"an IPv6 literal", "{}", "https://[fd00::1]/", "fd00::1"},
		{"an address that is denied", "deny-addresses: [8.8.0.0/16, 9.9.9.9]", "https://b.example/", "8.8.8.8"},
		{"a port", "{}", "https://b.example:8443/", "8.8.8.8"},
		{"another port", "ports: [80, 443, 9000]", "https://b.example:8443/", "8.8.8.8"},
		{"a scheme", "schemes: [https]", "http://b.example/", "8.8.8.8"},
		{"several of these", "{schemes: [https], deny-names: [b.example], deny-addresses: [10.0.0.0/8]}", "http://b.example:81/", "10.1.2.3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			egress := make(map[string]any)
			must(t, yaml.Unmarshal([]byte(row.egress), &egress))
			for try := 0; ; try++ {
				denied := deniedBy(t, egress, row.url, row.address)
				if len(denied) == 0 {
					if try == 0 {
						t.Fatal("nothing is denied at first")
					}
					break
				}
				if try == 10 {
					t.Fatalf("after 10 rounds of proposals, still %+v of %v", denied, egress)
				}
				for _, d := range denied {
					apply(t, egress, permitting(d.Reason, d.Host, d.Rule, d.Target), row.address)
				}
			}
			if denied := deniedBy(t, egress, "https://a.example/", "1.1.1.1"); len(denied) > 0 {
				t.Errorf("the changed policy %v denies what it permitted: %+v", egress, denied)
			}
		})
	}
}

// deniedBy returns what a policy in mode report denies of a target.
func deniedBy(t *testing.T, egress map[string]any, target, address string) (denied []policies.Denial) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"default": "p", "policies": map[string]any{"p": map[string]any{"mode": "report", "egress": egress}}})
	must(t, err)
	set, faults := policies.Parse(text)
	if len(faults) > 0 {
		t.Fatalf("%s\n%v", text, faults)
	}
	u, err := url.Parse(target)
	must(t, err)
	p := set.Policies()[0]
	judge := policies.NewJudge(p, func() *policies.Policy { return p }, func(d policies.Denial) { denied = append(denied, d) })
	if judge.CheckURL(u, false) != nil || judge.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(address), 443)) != nil {
		t.Fatal("mode report has blocked something")
	}
	return denied
}

var (
	adding   = regexp.MustCompile(`add (\S+) to ([a-z-]+)`)
	removing = regexp.MustCompile(`remove (\S+) from ([a-z-]+)`)
)

// apply changes a policy as a proposal says, as its reader would.
func apply(t *testing.T, egress map[string]any, proposal, address string) {
	t.Helper()
	all, _ := egress["allow-names"].([]any)
	for _, m := range adding.FindAllStringSubmatch(proposal, -1) {
		value, key := m[1], m[2]
		if value == "its" { // the address of the name
			value = address
		}
		list, _ := egress[key].([]any)
		switch {
		case key == "allow-names" && len(all) == 0:
		case key == "ports" && len(list) == 0:
			egress[key] = []any{"80", "443", value}
		case !slices.Contains(list, any(value)):
			egress[key] = append(list, value)
		}
	}
	for _, m := range removing.FindAllStringSubmatch(proposal, -1) {
		list, _ := egress[m[2]].([]any)
		egress[m[2]] = slices.DeleteFunc(slices.Clone(list), func(v any) bool { return v == any(m[1]) })
	}
	if adding.FindString(proposal)+removing.FindString(proposal) == "" {
		t.Fatalf("%q proposes nothing", proposal)
	}
}
