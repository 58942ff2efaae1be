package policies_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fetchd/fetch/urls"
	"fetchd/internal/policies"
	"fetchd/test/must"
)

// secret is in files of credentials, and in nothing that is printed.
const secret = "tr0ub4dor"

// credentials writes a file of credentials and returns its path.
func credentials(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestRouteFaults checks what is wrong with a route, and where. No fault contains a password.
func TestRouteFaults(t *testing.T) {
	t.Parallel()
	const used = "routes:\n  r: %s\npolicies: {a: {egress: {route: r}}}\ndefault: a\n"
	inFile := func(text string) string {
		return fmt.Sprintf(used, "{proxy: 'http://p.example:1', credentials-file: "+credentials(t, text)+"}")
	}
	for _, row := range []struct{ name, text, want string }{ // want is the beginning of the first fault; empty: none
		{"nothing", fmt.Sprintf(used, "{}"), ""},
		{"all", fmt.Sprintf(used, "{source-address: 192.0.2.1, resolver: '192.0.2.53:53', ip-family: ipv4}"), ""},
		{"no value", "routes:\n  r:\npolicies: {a: {}}\ndefault: a\n", "2: r: has no value"},
		{"an unknown key", fmt.Sprintf(used, "{proxi: x}"), `2: unknown key "proxi"`},
		{"another scheme", fmt.Sprintf(used, "{proxy: 'socks4://p.example:1'}"), "2: proxy: give http://HOST:PORT"},
		{"no port", fmt.Sprintf(used, "{proxy: 'http://p.example'}"), "2: proxy: give http://HOST:PORT"},
		{"a path", fmt.Sprintf(used, "{proxy: 'http://p.example:1/x'}"), "2: proxy: give http://HOST:PORT"},
		{"no URL", fmt.Sprintf(used, "{proxy: 'http://name:"+secret+"@p example:1'}"), "2: proxy: give http://HOST:PORT"},
		{"a user in the URL", fmt.Sprintf(used, "{proxy: 'http://name:"+secret+"@p.example:1'}"), "2: proxy: has a user"},
		{"credentials without a proxy", fmt.Sprintf(used, "{credentials-file: "+credentials(t, "a:b")+"}"), "2: credentials-file: has no effect"},
		{"credentials", inFile("name:" + secret + "\n"), ""},
		{"credentials without a line feed", inFile("name:a:b " + secret), ""},
		{"credentials without a password", inFile("name:\n"), ""},
		{"no file", fmt.Sprintf(used, "{proxy: 'http://p.example:1', credentials-file: /none}"), "2: credentials-file: "},
		{"no colon", inFile(secret + "\n"), "2: credentials-file: "},
		{"no user", inFile(":" + secret + "\n"), "2: credentials-file: "},
		{"a header in the password", inFile("name:" + secret + "\r\nX-Evil: 1\n"), "2: credentials-file: "},
		{"two lines", inFile("name:" + secret + "\nother:b\n"), "2: credentials-file: "},
		{"a long password", inFile("name:" + strings.Repeat(secret, 100)), "2: credentials-file: "},
		{"SOCKS without a password", fmt.Sprintf(used, "{proxy: 'socks5://p.example:1', credentials-file: "+credentials(t, "name:\n")+"}"), "2: credentials-file: "},
		{"an address", fmt.Sprintf(used, "{source-address: 192.0.2}"), `2: source-address: is "192.0.2"`},
		{"a zone", fmt.Sprintf(used, "{source-address: 'fe80::1%eth0'}"), "2: source-address: is"},
		{"a mapped address", fmt.Sprintf(used, "{source-address: '::ffff:192.0.2.1'}"), "2: source-address: is"},
		{"a source of another family", fmt.Sprintf(used, "{source-address: 192.0.2.1, ip-family: ipv6}"), "2: source-address: 192.0.2.1 is not in ip-family ipv6"},
		{"a family", fmt.Sprintf(used, "{ip-family: IPv6}"), `2: ip-family: is "IPv6"`},
		{"a resolver by name", fmt.Sprintf(used, "{resolver: 'dns.example:53'}"), `2: resolver: is "dns.example:53"`},
		{"a resolver without a port", fmt.Sprintf(used, "{resolver: 192.0.2.53}"), `2: resolver: is "192.0.2.53"`},
		{"a resolver for nothing", fmt.Sprintf(used, "{proxy: 'socks5://192.0.2.1:1', resolver: '192.0.2.53:53'}"), "2: resolver: has no effect"},
		{"a resolver for the proxy", fmt.Sprintf(used, "{proxy: 'socks5://p.example:1', resolver: '192.0.2.53:53'}"), ""},
		{"an interface", fmt.Sprintf(used, "{interface: a/b}"), "2: interface: "},
		{"a long interface", fmt.Sprintf(used, "{interface: abcdefghijklmnop}"), "2: interface: "},
		{"a bad name", "routes:\n  R: {}\npolicies: {a: {egress: {route: R}}}\ndefault: a\n", `2: route "R"`},
		{"an unknown route", "policies:\n  a: {egress: {route: x}}\ndefault: a\n", `2: route: is "x", which is not among routes`},
		{"an unknown route to name", "policies:\n  a: {egress: {routes: [x]}}\ndefault: a\n", `2: routes: is "x", which is not among routes`},
		{"a route twice", "routes: {r: {}}\npolicies:\n  a: {egress: {routes: [r, r]}}\ndefault: a\n", `3: routes: "r" is there twice`},
		{"no routes to name", "policies:\n  a: {egress: {routes: []}}\ndefault: a\n", `2: policy "a": routes is empty`},
		{"a route for nobody", "routes:\n  r: {}\n  s: {}\npolicies: {a: {egress: {route: r}}}\ndefault: a\n", `3: route "s": no policy permits it`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, faults := policies.Parse([]byte(row.text))
			if got := fmt.Sprint(faults); strings.Contains(got, secret) || (len(faults) == 0) != (row.want == "") || !strings.HasPrefix(strings.TrimPrefix(got, "["), row.want) {
				t.Errorf("faults %s, want the first to begin with %q, without the password", got, row.want)
			}
		})
	}
	if _, faults := policies.Parse([]byte(fmt.Sprintf(used, "{interface: eth1}"))); (len(faults) == 0) != (runtime.GOOS == "linux") {
		t.Errorf("an interface on %s: %v", runtime.GOOS, faults)
	}
}

// TestRoutesOfPolicies checks which routes a policy permits.
func TestRoutesOfPolicies(t *testing.T) {
	t.Parallel()
	s := parse(t, `
routes: {a: {}, b: {source-address: 192.0.2.1, interface: lo}, c: {proxy: 'http://p.example:1'}}
policies: {one: {egress: {route: a, routes: [b]}}, two: {egress: {routes: [c]}}, none: {}}
callers: [{caller: one, policy: one}, {caller: two, policy: two}]
default: none
`)
	for _, row := range []struct {
		caller, name, want string
		ok                 bool
	}{
		{"one", "", "a", true}, {"one", "a", "a", true}, {"one", "b", "b", true}, {"one", "c", "", false}, {"one", "d", "", false}, {"one", "A", "", false},
		{"two", "", "", true}, {"two", "c", "c", true}, {"two", "a", "", false},
		{"other", "", "", true}, {"other", "a", "", false},
	} {
		t.Run(row.caller+" "+row.name, func(t *testing.T) {
			t.Parallel()
			route, ok := s.Of(row.caller, netip.Addr{}).Route(row.name)
			if got := route != nil; ok != row.ok || got != (row.want != "") || got && route.Name != row.want {
				t.Errorf("%v, %t, want %q, %t", route, ok, row.want, row.ok)
			}
		})
	}
}

// TestRoutesAgain checks which routes keep their pointer, and with it their connections.
func TestRoutesAgain(t *testing.T) {
	t.Parallel()
	const text = "routes:\n  a: {}\n  b: {proxy: 'http://p.example:1', credentials-file: FILE}\npolicies: {p: {egress: {routes: [a, b]}}}\ndefault: p\n"
	for _, row := range []struct {
		name, old, new, password string
		same                     bool // the whole set
		dropped                  string
	}{
		{"nothing", "", "", secret, true, ""},
		{"a comment", "\ndefault", "\n# a comment\ndefault", secret, false, ""},
		{"the password", "", "", "another", false, "b"},
		{"a source address", "a: {}", "a: {source-address: 192.0.2.1}", secret, false, "a"},
		{"no credentials", ", credentials-file: FILE", "", secret, false, "b"},
		{"a name", "a: {}", "c: {}", secret, false, "a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			file := credentials(t, "name:"+secret)
			path := filepath.Join(t.TempDir(), "policies.yaml")
			read := func(text, password string, before *policies.Set) *policies.Set {
				for name, text := range map[string]string{path: strings.ReplaceAll(text, "FILE", file), file: "name:" + password} {
					must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
				}
				s, err := policies.Read(path, before)
				must.Succeed(t, err)
				return s
			}
			first := read(text, secret, nil)
			changed := text
			if row.old != "" {
				changed = strings.Replace(text, row.old, row.new, 1)
			}
			if row.name == "a name" {
				changed = strings.Replace(changed, "[a, b]", "[c, b]", 1)
			}
			next := read(changed, row.password, first)
			if (next == first) != row.same || next.Same(first) != row.same {
				t.Errorf("the same set: %t, want %t", next == first, row.same)
			}
			var dropped []string
			for _, route := range first.Dropped(next) {
				dropped = append(dropped, route.Name)
			}
			if got := strings.Join(dropped, " "); got != row.dropped {
				t.Errorf("dropped %q, want %q", got, row.dropped)
			}
			if n := len(first.Dropped(nil)); n != 2 {
				t.Errorf("%d routes are dropped without a file", n)
			}
			if n := len((*policies.Set)(nil).Dropped(first)); n != 0 {
				t.Errorf("%d routes are dropped that were not there", n)
			}
		})
	}
}

// TestRouteInFlight checks what a change of the file means for a fetch that goes on.
func TestRouteInFlight(t *testing.T) {
	t.Parallel()
	const text = "routes: {r: {}, s: {}}\npolicies: {p: {MODE egress: {ROUTE}}, q: {egress: {routes: [r, s]}}}\ncallers: [{caller: a, policy: p}]\ndefault: q\n"
	set := func(t *testing.T, mode, route string) *policies.Policy {
		if route == "" {
			route = "redirects: allowed-names, allow-names: [origin.example]"
		}
		return parse(t, strings.NewReplacer("MODE", mode, "ROUTE", route).Replace(text)).Of("a", netip.Addr{})
	}
	for _, row := range []struct {
		name, before, mode, after string
		none                      bool // there are no policies any more
		blocked, reported         bool
	}{
		{"nothing", "route: r", "", "route: r", false, false, false},
		{"the route may still be named", "route: r", "", "route: s, routes: [r]", false, false, false},
		{"another route", "route: r", "", "route: s", false, true, false},
		{"another route in mode report", "route: r", "mode: report,", "route: s", false, true, false},
		{"a route where there was none", "", "", "route: r", false, true, false},
		{"a route where there was none, in mode report", "", "mode: report,", "route: r", false, false, true},
		{"no policies", "route: r", "", "route: r", true, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			began, now := set(t, "", row.before), set(t, row.mode, row.after)
			if row.none {
				now = nil
			}
			var told []policies.Denial
			j := policies.NewJudge(began, func() *policies.Policy { return now }, func(d policies.Denial) { told = append(told, d) })
			if route, _ := began.Route(""); route != nil {
				j.Route = route.Name
			}
			u, err := urls.Parse("http://origin.example/")
			must.Succeed(t, err)
			err = j.CheckURL(u, false)
			if (err != nil) != row.blocked || (len(told) > 0) != (row.blocked || row.reported) {
				t.Fatalf("%v, told %v, want it blocked: %t", err, told, row.blocked)
			}
			if len(told) > 0 && (told[0].Reason != "route_not_allowed" || told[0].Reported != row.reported) {
				t.Errorf("%+v, want route_not_allowed, reported: %t", told[0], row.reported)
			}
		})
	}
}
