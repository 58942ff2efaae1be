package egress

import (
	"net/netip"
	"testing"

	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// TestNames checks names before they are looked up.
func TestNames(t *testing.T) {
	t.Parallel()
	inside := Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	denied := Policy{DenyHosts: []string{"bad.example", "*.worse.example"}}
	for _, row := range []struct {
		name, host string
		policy     Policy
		reason     string // empty: allowed
	}{
		{"a public name", "example.com", Policy{}, ""},
		{"localhost", "localhost", Policy{}, "name_not_allowed"},
		{"localhost with a dot", "localhost.", Policy{}, "name_not_allowed"},
		{"under localhost", "a.localhost", Policy{}, "name_not_allowed"},
		{"local", "printer.local", Policy{}, "name_not_allowed"},
		{"local with a dot", "printer.local.", Policy{}, "name_not_allowed"},
		{"internal", "db.prod.internal", Policy{}, "name_not_allowed"},
		{"a cluster's service", "api.default.svc", Policy{}, "name_not_allowed"},
		{"a cluster's full name", "api.default.svc.cluster.local", Policy{}, "name_not_allowed"},
		{"home.arpa", "nas.home.arpa", Policy{}, "name_not_allowed"},
		{"a single label", "intranet", Policy{}, "name_not_allowed"},
		{"local in the middle", "local.example.com", Policy{}, ""},
		{"a name that only ends like one", "notlocal.example", Policy{}, ""},
		{"a top level that only ends like one", "example.thelocal", Policy{}, ""},
		{"an internal prefix is allowed", "db.prod.internal", inside, ""},
		{"a single label if an internal prefix is allowed", "db", inside, ""},
		{"cloud metadata", "metadata.google.internal", Policy{}, "metadata_name"},
		{"cloud metadata if an internal prefix is allowed", "metadata.google.internal", inside, "metadata_name"},
		{"cloud metadata with a dot", "metadata.google.internal.", inside, "metadata_name"},
		{"unrestricted", "metadata", Policy{Unrestricted: true}, ""},
		{"denied by name", "bad.example", denied, "name_denied"},
		{"denied by name, with a dot", "bad.example.", denied, "name_denied"},
		{"below a name that is denied", "www.bad.example", denied, ""},
		{"denied by its suffix", "www.worse.example", denied, "name_denied"},
		{"the suffix itself", "worse.example", denied, ""},
		{"one that only ends like it", "noworse.example", denied, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u, err := urls.Parse("http://" + row.host + "/")
			if err != nil {
				t.Fatal(err)
			}
			if got := fault.ReasonOf(New(row.policy).CheckURL(u)); got != row.reason {
				t.Errorf("%s: %q, want %q", row.host, got, row.reason)
			}
		})
	}
}

// TestOwnAddresses checks that this machine's addresses are blocked, even public ones.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	g.machine = []netip.Addr{netip.MustParseAddr("8.8.4.4")}
	if got := fault.ReasonOf(g.CheckAddr(netip.MustParseAddrPort("8.8.4.4:80"))); got != "address_not_allowed" {
		t.Errorf("%q, want address_not_allowed", got)
	}
	g.allowed = []netip.Prefix{netip.MustParsePrefix("8.8.4.4/32")}
	if err := g.CheckAddr(netip.MustParseAddrPort("8.8.4.4:80")); err != nil {
		t.Errorf("allowed by its address: %v", err)
	}
}

// TestISATAP checks IPv6 addresses that contain an IPv4 address, under any prefix.
func TestISATAP(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, row := range []struct {
		addr string
		open bool
	}{
		{"2a00:1450:4001::5efe:10.0.0.1", false},
		{"2a00:1450:4001:0:200:5efe:a00:1", false},
		{"2a00:1450:4001::5eff:10.0.0.1", true},
	} {
		if err := g.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(row.addr), 443)); (err == nil) != row.open {
			t.Errorf("%s: %v, want it allowed: %t", row.addr, err, row.open)
		}
	}
}

// TestCheck checks policies that would silently allow or deny nothing.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		policy Policy
		ok     bool
	}{
		{"the zero prefix", Policy{AllowCIDRs: []netip.Prefix{{}}}, false},
		{"an IPv4-mapped prefix", Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("::ffff:127.0.0.0/104")}}, false},
		{"an IPv4-mapped prefix denied", Policy{DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}, false},
		{"IPv4", Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, true},
		{"IPv6", Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("::1/128")}}, true},
		{"an upper-case name", Policy{DenyHosts: []string{"Upper.example"}}, false},
		{"a suffix without a name", Policy{DenyHosts: []string{"*."}}, false},
		{"a space", Policy{DenyHosts: []string{"a b"}}, false},
		{"a name and a suffix", Policy{DenyHosts: []string{"a.example", "*.b.example"}}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if err := row.policy.Check(); (err == nil) != row.ok {
				t.Errorf("%+v: %v, want ok %t", row.policy, err, row.ok)
			}
		})
	}
}

// TestRooted checks the names that are looked up. A single label of the hosts file is looked up
// without a dot.
func TestRooted(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"redis.prod": "redis.prod.", "redis.prod.": "redis.prod.", "no-such-host": "no-such-host.", "127.0.0.1": "127.0.0.1", "::1": "::1",
	} {
		if got := Rooted(host); got != want {
			t.Errorf("Rooted(%q) = %q, want %q", host, got, want)
		}
	}
	if addrs, err := hostsFile.LookupHost(t.Context(), "localhost"); err == nil && len(addrs) > 0 {
		if got := Rooted("localhost"); got != "localhost" {
			t.Errorf("Rooted of a name in the hosts file = %q, want it unchanged", got)
		}
	}
}
