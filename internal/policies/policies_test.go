package policies_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
	"fetchd/internal/policies"
	"fetchd/test/must"
)

const example = `
policies:
  partners:
    egress:
      allow-names: [api.partner.example, "*.cdn.example", "domain:shop.example"]
      deny-names: [old.shop.example, rooted.shop.example.]
      allow-addresses: [10.1.0.0/16]
      deny-addresses: [10.1.2.0/24]
      ports: [443, 8443]
      schemes: [https]
  crawler:
    mode: report
    report-to-caller: true
    egress:
      deny-names: ["domain:ads.example"]
    request:
      methods: [GET, HEAD]
      max-total-timeout: 30s
  open: {}
  servers:
    egress:
      allow-addresses: [10.1.0.0/16, 8.8.8.8, 64:ff9b::a01:1]
      public-addresses: forbid
  leaving:
    egress:
      allow-names: [start.example]
      redirects: anywhere
callers:
  - {caller: shop, policy: partners}
  - {caller: "crawl-*-eu", policy: crawler}
  - {caller: "crawl-*", policy: leaving}
  - {caller: servers, policy: servers}
  - {address: 10.9.0.0/16, policy: crawler}
default: open
`

func parse(t *testing.T, text string) *policies.Set {
	t.Helper()
	s, faults := policies.Parse([]byte(text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return s
}

// TestOf checks which policy a caller has.
func TestOf(t *testing.T) {
	t.Parallel()
	s := parse(t, example)
	for _, row := range []struct{ name, caller, address, want string }{
		{"by its name", "shop", "10.9.0.1", "partners"},
		{"by a pattern", "crawl-1-eu", "", "crawler"},
		{"by the next pattern", "crawl-1-us", "", "leaving"},
		{"not by a pattern whose ends overlap", "crawl-eu", "", "leaving"},
		{"by nothing", "shops", "", "open"},
		{"by its address", "", "10.9.255.1", "crawler"},
		{"by an IPv4-mapped address", "", "::ffff:10.9.0.1", "crawler"},
		{"by its name, not by its address", "other", "10.9.0.1", "open"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			address, _ := netip.ParseAddr(row.address)
			if got := s.Of(row.caller, address); got.Name != row.want {
				t.Errorf("%s, want %s", got.Name, row.want)
			}
		})
	}
	if got := (*policies.Set)(nil).Of("a", netip.Addr{}); got != nil {
		t.Errorf("without a file the policy is %v", got)
	}
}

// TestTargets checks which targets a policy forbids, and by which rule.
func TestTargets(t *testing.T) {
	t.Parallel()
	s := parse(t, example)
	for _, row := range []struct {
		caller, url string
		redirected  bool
		reason      string // empty: permitted
		rule        string
	}{
		{"shop", "https://api.partner.example/", false, "", ""},
		{"shop", "https://api.partner.example./", false, "", ""},
		{"shop", "https://api.partner.example:8443/", false, "", ""},
		{"shop", "https://api.partner.example:80/", false, "port_not_allowed", ""},
		{"shop", "http://api.partner.example:443/", false, "scheme_not_allowed", ""},
		{"shop", "https://partner.example/", false, "name_not_allowed", ""},
		{"shop", "https://x.api.partner.example/", false, "name_not_allowed", ""},
		{"shop", "https://xapi.partner.example/", false, "name_not_allowed", ""},
		{"shop", "https://a.b.cdn.example/", false, "", ""},
		{"shop", "https://cdn.example/", false, "name_not_allowed", ""},
		{"shop", "https://shop.example/", false, "", ""},
		{"shop", "https://www.shop.example/", false, "", ""},
		{"shop", "https://old.shop.example/", false, "name_denied", "old.shop.example"},
		{"shop", "https://rooted.shop.example/", false, "name_denied", "rooted.shop.example."},
		{"shop", "https://evil-shop.example/", false, "name_not_allowed", ""},
		{"shop", "https://shop.example.evil.example/", true, "name_not_allowed", ""},
		{"shop", "https://10.1.0.1/", false, "", ""},
		{"shop", "https://10.1.2.3/", false, "address_denied", "10.1.2.0/24"},
		{"shop", "https://[::ffff:10.1.2.3]/", false, "address_denied", "10.1.2.0/24"},
		{"shop", "https://8.8.8.8/", false, "name_not_allowed", ""},
		{"servers", "https://10.1.0.1/", false, "", ""},
		{"servers", "https://[::ffff:10.1.0.1]/", false, "", ""},
		{"servers", "https://[64:ff9b::a01:1]/", false, "", ""}, // 10.1.0.1
		{"servers", "https://[64:ff9b::a01:2]/", false, "address_not_allowed", ""},
		{"servers", "https://[64:ff9b::0808:0808]/", false, "address_not_allowed", ""},
		{"servers", "https://8.8.8.8/", false, "", ""},
		{"servers", "https://8.8.4.4/", false, "address_not_allowed", ""},
		{"servers", "https://[::ffff:8.8.4.4]/", false, "address_not_allowed", ""},
		{"servers", "https://[2001:4860:4860::8888]/", false, "address_not_allowed", ""},
		{"servers", "https://10.2.0.1/", true, "address_not_allowed", ""},
		{"servers", "https://db.internal/", false, "", ""}, // its addresses decide
		{"crawl-1", "https://start.example/", false, "", ""},
		{"crawl-1", "https://other.example/", false, "name_not_allowed", ""},
		{"crawl-1", "https://other.example/", true, "", ""},
		{"crawl-1", "https://10.1.0.1/", true, "address_not_allowed", ""},
		{"crawl-1", "https://db.internal/", true, "name_not_allowed", ""},
		{"other", "https://10.1.0.1/", false, "address_not_allowed", ""},
		{"other", "http://anything.example:8080/", false, "port_not_allowed", ""},
		{"other", "http://anything.example/", false, "", ""},
		{"crawl-1-eu", "https://x.ads.example/", false, "", ""}, // reported only
	} {
		t.Run(fmt.Sprintf("%s %s %t", row.caller, row.url, row.redirected), func(t *testing.T) {
			t.Parallel()
			u, err := urls.Parse(row.url)
			must.Succeed(t, err)
			p := s.Of(row.caller, netip.Addr{})
			j := policies.NewJudge(p, func() *policies.Policy { return p }, func(policies.Denial) {})
			own, ok := errors.AsType[*fault.Error](j.CheckURL(u, row.redirected))
			if !ok {
				own = new(fault.Error)
			}
			if own.Reason != row.reason || own.Rule != row.rule || own.Reason != "" && own.Policy != p.Name {
				t.Errorf("%q by %q of policy %q, want %q by %q of %q", own.Reason, own.Rule, own.Policy, row.reason, row.rule, p.Name)
			}
		})
	}
}

// TestOnlyAddresses checks the addresses of a name under a policy that forbids public ones.
func TestOnlyAddresses(t *testing.T) {
	t.Parallel()
	p := parse(t, example).Of("servers", netip.Addr{})
	j := policies.NewJudge(p, func() *policies.Policy { return p }, func(policies.Denial) {})
	for address, permitted := range map[string]bool{
		"10.1.255.1": true, "10.2.0.1": false, "8.8.8.8": true, "::ffff:8.8.8.8": true, "8.8.4.4": false, "::ffff:8.8.4.4": false,
		"64:ff9b::a01:1": true, "64:ff9b::a01:2": false, "64:ff9b::808:808": false, "2606:4700::1": false, "127.0.0.1": false, "0.0.0.0": false,
	} {
		at := netip.AddrPortFrom(netip.MustParseAddr(address), 443)
		if err := j.CheckAddr(at); (err == nil) != permitted || j.Permits(at) != permitted {
			t.Errorf("%s: %v, permits %t, want it permitted: %t", address, err, j.Permits(at), permitted)
		}
	}
}

// TestReport checks that the mode report blocks nothing, and reports each rule and host once.
func TestReport(t *testing.T) {
	t.Parallel()
	s := parse(t, example)
	p := s.Of("crawl-1-eu", netip.Addr{})
	var told []policies.Denial
	j := policies.NewJudge(p, func() *policies.Policy { return p }, func(d policies.Denial) { told = append(told, d) })
	for _, text := range []string{"https://x.ads.example/", "https://x.ads.example/2", "https://y.ads.example/", "https://good.example/"} {
		u, err := urls.Parse(text)
		must.Succeed(t, err)
		if err := j.CheckURL(u, false); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, address := range []string{"10.0.0.1:443", "10.0.0.2:443"} { // the addresses of a name are one denial
		if err := j.CheckAddr(netip.MustParseAddrPort(address)); err != nil {
			t.Error(err)
		}
	}
	want := []policies.Denial{
		{Policy: "crawler", Reason: "name_denied", Rule: "domain:ads.example", Host: "x.ads.example", Reported: true},
		{Policy: "crawler", Reason: "name_denied", Rule: "domain:ads.example", Host: "y.ads.example", Reported: true},
		{Policy: "crawler", Reason: "address_not_allowed", Host: "good.example", Target: "10.0.0.1", Reported: true},
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want, j.Reported()); diff != "" {
		t.Errorf("reported (-want +got)\n%s", diff)
	}
}

// TestReportedOnce checks that each decision is reported once in each mode, and that Permits reports none.
func TestReportedOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"enforce", "report"} {
		p := parse(t, "policies: {a: {mode: "+mode+"}}\ndefault: a").Of("", netip.Addr{})
		told := 0
		j := policies.NewJudge(p, func() *policies.Policy { return p }, func(policies.Denial) { told++ })
		at := netip.MustParseAddrPort("10.0.0.1:443")
		if permitted := j.Permits(at); permitted != (mode == "report") || told != 0 {
			t.Errorf("%s: permits %t, told %d times", mode, permitted, told)
		}
		for range 3 {
			if err := j.CheckAddr(at); (err == nil) != (mode == "report") || told != 1 {
				t.Errorf("%s: %v, told %d times", mode, err, told)
			}
		}
	}
}

// TestEnd checks that the mode report reports what a fetch has used beyond each limit, and nothing else.
func TestEnd(t *testing.T) {
	t.Parallel()
	const limits = "policies: {a: {mode: %s, request: {max-total-timeout: 2s, max-size-bytes: 10, max-attempts: 2, max-redirects: 1}}}\ndefault: a"
	for _, row := range []struct {
		name, mode string
		used       policies.Used
		want       []string
	}{
		{"nothing beyond", "report", policies.Used{Time: 2 * time.Second, Bytes: 10, Attempts: 2, Redirects: 1}, nil},
		{"the time", "report", policies.Used{Time: 2*time.Second + 1}, []string{"total_timeout"}},
		{"the size", "report", policies.Used{Bytes: 11}, []string{"max_size_bytes"}},
		{"attempts and redirects", "report", policies.Used{Attempts: 3, Redirects: 2}, []string{"max_attempts", "max_redirects"}},
		{"what the request was denied for already", "report", policies.Used{Attempts: 3, Time: time.Minute}, []string{"max_attempts", "total_timeout"}},
		{"enforce", "enforce", policies.Used{Time: time.Hour, Bytes: 1 << 30, Attempts: 11, Redirects: 20}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := parse(t, fmt.Sprintf(limits, row.mode)).Of("", netip.Addr{})
			var told []string
			j := policies.NewJudge(p, func() *policies.Policy { return p }, func(d policies.Denial) {
				told = append(told, d.Reason)
				if d.Host != "x.example" || d.Policy != "a" || !d.Reported {
					t.Errorf("%+v", d)
				}
			})
			if strings.HasPrefix(row.name, "what the request") {
				j.Deny("max_attempts", "x.example")
			}
			j.End(row.used, "x.example")
			if diff := cmp.Diff(row.want, told); diff != "" {
				t.Errorf("told (-want +got)\n%s", diff)
			}
		})
	}
}

// TestDenialsMemory checks that the memory for denials is asked for, and that without it none is lost.
func TestDenialsMemory(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		free        int64
		hosts       []string
		told, asked int64
	}{
		{"one host twice", 1 << 20, []string{"a.example", "a.example"}, 1, 96 + 9},
		{"two hosts", 1 << 20, []string{"a.example", "b.example"}, 2, 2 * (96 + 9)},
		{"no memory", 0, []string{"a.example", "a.example"}, 2, 2 * (96 + 9)},
		{"very many", 1 << 20, slices.Repeat([]string{strings.Repeat("a", 63)}, 1000), 1000, 16 * (96 + 63)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := parse(t, "policies: {a: {mode: report}}\ndefault: a").Of("", netip.Addr{})
			var told, asked int64
			j := policies.NewJudge(p, func() *policies.Policy { return p }, func(policies.Denial) { told++ })
			j.Grow = func(bytes int64) bool {
				asked += bytes
				return asked <= row.free
			}
			for i, host := range row.hosts {
				if len(row.hosts) > 100 {
					host = fmt.Sprintf("%03d", i) + host[3:]
				}
				j.Deny("method", host)
			}
			if told != row.told || asked != row.asked {
				t.Errorf("told %d times, asked for %d bytes, want %d and %d", told, asked, row.told, row.asked)
			}
		})
	}
}

// TestReload checks that a fetch in flight is judged by its old policy and by the new one.
func TestReload(t *testing.T) {
	t.Parallel()
	const allow = "policies: {a: {egress: {allow-names: [%s]}}}\ndefault: a"
	old, both := parse(t, fmt.Sprintf(allow, "one.example, two.example")), parse(t, fmt.Sprintf(allow, "two.example, three.example"))
	now := old
	j := policies.NewJudge(old.Of("", netip.Addr{}), func() *policies.Policy { return now.Of("", netip.Addr{}) }, func(policies.Denial) {})
	check := func(host string) bool {
		u, err := urls.Parse("http://" + host + "/")
		must.Succeed(t, err)
		return j.CheckURL(u, false) == nil
	}
	if !check("one.example") || check("three.example") {
		t.Error("before the reload the old policy does not decide")
	}
	now = both
	if check("one.example") || !check("two.example") || check("three.example") {
		t.Error("after the reload a name is permitted that one of the policies forbids")
	}
	now = nil
	if !check("one.example") {
		t.Error("without a policy the old one does not decide alone")
	}
}

// TestNothing checks that a policy can permit nothing, also to fetches that began before.
func TestNothing(t *testing.T) {
	t.Parallel()
	set, faults := policies.Parse([]byte("policies: {nobody: {permit: nothing}}\ndefault: nobody\n"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, target := range []string{"https://a.example/", "http://192.0.2.1/", "http://a.example:8080/"} {
		u, err := urls.Parse(target)
		must.Succeed(t, err)
		nobody := set.Of("any", netip.Addr{})
		err = policies.NewJudge(nobody, func() *policies.Policy { return nobody }, func(policies.Denial) {}).CheckURL(u, true)
		if own, ok := errors.AsType[*fault.Error](err); !ok || own.Policy != "nobody" || own.Rule != "permit: nothing" {
			t.Errorf("%s: %v, want that the policy permits nothing", target, err)
		}
	}
}

// TestFaults checks that each fault is reported with its line.
func TestFaults(t *testing.T) {
	t.Parallel()
	const policy = "policies:\n  a:\n    %s\ndefault: a\n"
	for _, row := range []struct{ name, text, want string }{
		{"nothing", "", "1: is empty"},
		{"no YAML in a later line", "policies:\n  a: {}\n\tb: {}\n", "3: is not YAML: found character"},
		{"a name where a list is wanted", fmt.Sprintf(policy, "egress: {deny-names: b.example}"), "3: has a value of another form, str `b.example`"},
		{"a list with all entries commented out", fmt.Sprintf(policy, "egress:\n      allow-names:\n      # - a.example\n"), "4: allow-names: has no value"},
		{"a policy without a value", "policies:\n  a:\ndefault: a\n", "2: a: has no value"},
		{"an entry without a value", "policies: {a: {}}\ncallers:\n- ~\ndefault: a\n", "3: has an entry without a value"},
		{"no ports", fmt.Sprintf(policy, "egress: {ports: []}"), `2: policy "a": ports is empty`},
		{"no schemes", fmt.Sprintf(policy, "egress: {schemes: []}"), `2: policy "a": schemes is empty`},
		{"something else than nothing", fmt.Sprintf(policy, "permit: everything"), `3: permit: is "everything": give nothing`},
		{"nothing and something", fmt.Sprintf(policy, "permit: nothing\n    request: {methods: [GET]}"), "3: permit: is nothing, so egress, request and share have no effect"},
		{"an address among names", fmt.Sprintf(policy, "egress: {deny-names: [10.0.0.1]}"), `3: deny-names: "10.0.0.1" is an address, which no name matches: put it into deny-addresses`},
		{"an IPv6 address among names", fmt.Sprintf(policy, "egress: {allow-names: ['2001:db8::1']}"), `3: allow-names: "2001:db8::1" is an address`},
		{"a second document", "policies: {a: {}}\ndefault: a\n---\n", "1: has a second document"},
		{"an unknown key below", fmt.Sprintf(policy, "egress: {port: [1]}"), `3: unknown key "port": did you mean ports?`},
		{"an unknown key that nothing resembles", fmt.Sprintf(policy, "egress: {colour: 1}"), `3: unknown key "colour": see docs/policies.md for the keys`},
		{"a list for a value", fmt.Sprintf(policy, "mode: [report]"), "3: give one value"},
		{"a mode", fmt.Sprintf(policy, "mode: reports"), `3: mode: is "reports": give enforce or report`},
		{"a report to the caller in enforce", fmt.Sprintf(policy, "report-to-caller: true"), `2: policy "a": report-to-caller is true`},
		{"a name with a scheme", fmt.Sprintf(policy, "egress: {deny-names: ['http://a.example']}"), `3: deny-names: is "http://a.example"`},
		{"a star in the middle", fmt.Sprintf(policy, "egress: {deny-names: ['a.*.example']}"), `3: deny-names: is "a.*.example"`},
		{"a name twice", fmt.Sprintf(policy, "egress: {deny-names: [a.example, a.example]}"), `3: deny-names: "a.example" is there twice`},
		{"no names", fmt.Sprintf(policy, "egress: {allow-names: []}"), `2: policy "a": allow-names is empty`},
		{"an address", fmt.Sprintf(policy, "egress: {allow-addresses: [10.0.0]}"), `3: allow-addresses: is "10.0.0"`},
		{"a range with an address in it", fmt.Sprintf(policy, "egress: {allow-addresses: [10.1.2.3/8]}"), `3: allow-addresses: is "10.1.2.3/8"`},
		{"a mapped address", fmt.Sprintf(policy, "egress: {deny-addresses: ['::ffff:10.0.0.0/104']}"), `3: deny-addresses: is "::ffff:10.0.0.0/104"`},
		{"a port", fmt.Sprintf(policy, "egress: {ports: [65536]}"), `3: ports: is "65536"`},
		{"a scheme", fmt.Sprintf(policy, "egress: {schemes: [ftp]}"), `3: schemes: is "ftp"`},
		{"only addresses, and none", fmt.Sprintf(policy, "egress: {public-addresses: forbid}"), "3: public-addresses: is forbid, which permits nothing"},
		{"public addresses", fmt.Sprintf(policy, "egress: {public-addresses: no}"), `3: public-addresses: is "no": give allow or forbid`},
		{"redirects without names", fmt.Sprintf(policy, "egress: {redirects: anywhere}"), "3: redirects: has no effect"},
		{"a method", fmt.Sprintf(policy, "request: {methods: [get]}"), `3: methods: is "get"`},
		{"a duration", fmt.Sprintf(policy, "request: {max-total-timeout: 30}"), `3: max-total-timeout: is "30"`},
		{"a number", fmt.Sprintf(policy, "request: {max-attempts: 12}"), `3: max-attempts: is "12"`},
		{"fetches in flight", fmt.Sprintf(policy, "share: {fetches-in-flight: 0}"), `3: fetches-in-flight: is "0": give a number from 1`},
		{"a rate of zero", fmt.Sprintf(policy, "share: {fetches-per-second: 0}"), `3: fetches-per-second: is "0": give a number from 0.001`},
		{"a burst alone", fmt.Sprintf(policy, "share: {burst: 5}"), "3: burst: has no effect without fetches-per-second"},
		{"memory in bytes", fmt.Sprintf(policy, "share: {memory: 1000000}"), `3: memory: is "1000000": give a part`},
		{"more memory than a caller may have", fmt.Sprintf(policy, "share: {memory: 76%}"), `3: memory: is "76%"`},
		{"no default", "policies: {a: {}}\n", "1: default: is missing"},
		{"an unknown default", "policies: {a: {}}\ndefault: b\n", `2: default: is "b"`},
		{"a policy for nobody", "policies:\n  a: {}\n  b: {}\ndefault: a\n", `3: policy "b": no caller has it`},
		{"a bad name of a policy", "policies:\n  A: {}\ndefault: A\n", `2: policy "A"`},
		{"a caller and an address", "policies: {a: {}}\ncallers:\n- {caller: x, address: 10.0.0.1, policy: a}\ndefault: a\n", "3: entry 1 of callers"},
		{"neither", "policies: {a: {}}\ncallers:\n- {policy: a}\ndefault: a\n", "3: entry 1 of callers"},
		{"two stars", "policies: {a: {}}\ncallers:\n- {caller: 'a*b*', policy: a}\ndefault: a\n", `3: caller: is "a*b*"`},
		{"an address as a caller", "policies: {a: {}}\ncallers:\n- {caller: 'address:10.0.0.1', policy: a}\ndefault: a\n", `3: caller: is "address:10.0.0.1": give an address with the key address`},
		{"a caller twice", "policies: {a: {}}\ncallers:\n- {caller: x, policy: a}\n- {caller: x, policy: a}\ndefault: a\n", `4: caller: "x" can never match`},
		{"a pattern after a wider one", "policies: {a: {}}\ncallers:\n- {caller: 'x*', policy: a}\n- {caller: 'xy*z', policy: a}\ndefault: a\n", `4: caller: "xy*z" can never match`},
		{"a range after a wider one", "policies: {a: {}}\ncallers:\n- {address: 10.0.0.0/8, policy: a}\n- {address: 10.1.0.0/16, policy: a}\ndefault: a\n", "4: address: 10.1.0.0/16 can never match"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, faults := policies.Parse([]byte(row.text))
			if s != nil || len(faults) == 0 || !strings.HasPrefix(fmt.Sprint(faults[0]), row.want) {
				t.Errorf("faults %q, want the first to begin with %q", fmt.Sprint(faults), row.want)
			}
		})
	}
}

// TestFaultsOnce checks that an entry which can never match has one fault, however many entries come before it.
func TestFaultsOnce(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"address: 10.0.0.1", "caller: 'x-*'"} {
		text := "policies: {a: {}}\ncallers:\n" + strings.Repeat("- {"+entry+", policy: a}\n", 100) + "default: a\n"
		if _, faults := policies.Parse([]byte(text)); len(faults) != 99 {
			t.Errorf("%s: %d faults for 99 entries that can never match", entry, len(faults))
		}
	}
}

// TestReadAgain checks that a file which has not changed is not parsed again.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	read := func(text string, before *policies.Set) *policies.Set {
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		s, err := policies.Read(path, before)
		must.Succeed(t, err)
		return s
	}
	first := read(example, nil)
	if read(example, first) != first {
		t.Error("the same file has another set")
	}
	if read(example+"# changed\n", first) == first {
		t.Error("a file that has changed has the same set")
	}
}

// manyText is a file with n callers, by their names, patterns of names, or addresses, and a tenth as many policies.
func manyText(n int, caller func(i int) string) string {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range n / 10 {
		fmt.Fprintf(&text, "  p%d: {egress: {allow-names: [\"domain:p%d.example\", api.example], deny-names: [\"*.ads%d.example\"]}}\n", i, i, i)
	}
	text.WriteString("callers:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {%s, policy: p%d}\n", caller(i), i%(n/10))
	}
	text.WriteString("default: p0\n")
	return text.String()
}

// callers are the ways to name many callers, with the seventh one as it calls.
var callers = map[string]struct {
	entry         func(i int) string
	name, address string
}{
	"name":    {func(i int) string { return fmt.Sprintf("caller: team-%d", i) }, "team-7", ""},
	"pattern": {func(i int) string { return fmt.Sprintf("caller: 'team-%d-*-eu'", i) }, "team-7-crawler-eu", ""},
	"address": {func(i int) string { return fmt.Sprintf("address: 10.%d.%d.0/24", i/256, i%256) }, "", "10.0.7.1"},
}

// decisions returns single decisions with n callers. Each reports whether it is right.
func decisions(tb testing.TB, n int) map[string]func() bool {
	tb.Helper()
	all := make(map[string]func() bool)
	var set *policies.Set
	for name, c := range callers {
		s, faults := policies.Parse([]byte(manyText(n, c.entry)))
		if len(faults) > 0 {
			tb.Fatal(faults)
		}
		address, _ := netip.ParseAddr(c.address)
		all["caller by "+name] = func() bool { return s.Of(c.name, address).Name == "p7" }
		set = s
	}
	u, err := urls.Parse("https://www.shop.p7.example/")
	must.Succeed(tb, err)
	p := set.Policies()[slices.IndexFunc(set.Policies(), func(p *policies.Policy) bool { return p.Name == "p7" })]
	j := policies.NewJudge(p, func() *policies.Policy { return p }, func(policies.Denial) {})
	for name, address := range map[string]string{"IPv4": "93.184.216.34:443", "IPv6": "[2606:2800:220:1:248:1893:25c8:1946]:443"} {
		at := netip.MustParseAddrPort(address)
		all[name+" address"] = func() bool { return j.CheckAddr(at) == nil }
		all[name+" address of a connection"] = func() bool { return j.Permits(at) }
	}
	all["URL"] = func() bool { return j.CheckURL(u, false) == nil }
	return all
}

// TestDecisionsAllocateNothing checks each kind of decision that permits.
func TestDecisionsAllocateNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts what all goroutines allocate
	for name, decide := range decisions(t, 100) {
		if n := testing.AllocsPerRun(100, func() {
			if !decide() {
				t.Fatalf("%s: wrong", name)
			}
		}); n > 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
}

// BenchmarkDecision measures single decisions with 1,000 policies and 10,000 callers.
func BenchmarkDecision(b *testing.B) {
	all := decisions(b, 10_000)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !all[name]() {
					b.Fatal("wrong")
				}
			}
		})
	}
}

// BenchmarkParse measures the time to read a file with 1,000 policies and 10,000 callers.
func BenchmarkParse(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(callers)) {
		b.Run(name, func(b *testing.B) {
			text := []byte(manyText(10_000, callers[name].entry))
			for b.Loop() {
				if _, faults := policies.Parse(text); len(faults) > 0 {
					b.Fatal(faults)
				}
			}
		})
	}
}

// FuzzParse checks that no file makes the parser panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("policies: {a: {egress: {allow-names: [a]}}}\ndefault: a"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, faults := policies.Parse(raw)
		if (s == nil) != (len(faults) > 0) {
			t.Errorf("set %v with faults %v", s, faults)
		}
	})
}
