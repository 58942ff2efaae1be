package fetch

import (
	"net/netip"
	"testing"
)

// TestNames judges names before they are looked up.
func TestNames(t *testing.T) {
	t.Parallel()
	inside := Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	denied := Egress{DenyHosts: []string{"bad.example", "*.worse.example"}}
	for _, row := range []struct {
		name, host string
		egress     Egress
		reason     string // empty: open
	}{
		{"a public name", "example.com", Egress{}, ""},
		{"localhost", "localhost", Egress{}, "name_not_allowed"},
		{"localhost with a dot", "localhost.", Egress{}, "name_not_allowed"},
		{"under localhost", "a.localhost", Egress{}, "name_not_allowed"},
		{"local", "printer.local", Egress{}, "name_not_allowed"},
		{"local with a dot", "printer.local.", Egress{}, "name_not_allowed"},
		{"internal", "db.prod.internal", Egress{}, "name_not_allowed"},
		{"a cluster's service", "api.default.svc", Egress{}, "name_not_allowed"},
		{"a cluster's full name", "api.default.svc.cluster.local", Egress{}, "name_not_allowed"},
		{"home.arpa", "nas.home.arpa", Egress{}, "name_not_allowed"},
		{"a single label", "intranet", Egress{}, "name_not_allowed"},
		{"local in the middle", "local.example.com", Egress{}, ""},
		{"a name that only ends like one", "notlocal.example", Egress{}, ""},
		{"a top level that only ends like one", "example.thelocal", Egress{}, ""},
		{"something inside is open", "db.prod.internal", inside, ""},
		{"a single label with something inside open", "db", inside, ""},
		{"cloud metadata", "metadata.google.internal", Egress{}, "metadata_name"},
		{"cloud metadata with something inside open", "metadata.google.internal", inside, "metadata_name"},
		{"cloud metadata with a dot", "metadata.google.internal.", inside, "metadata_name"},
		{"everything open", "metadata", Egress{Unrestricted: true}, ""},
		{"closed by name", "bad.example", denied, "name_denied"},
		{"closed by name with a dot", "bad.example.", denied, "name_denied"},
		{"under one that is closed itself only", "www.bad.example", denied, ""},
		{"closed by its suffix", "www.worse.example", denied, "name_denied"},
		{"the suffix itself", "worse.example", denied, ""},
		{"one that only ends like it", "noworse.example", denied, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u, err := ParseURL("http://" + row.host + "/")
			if err != nil {
				t.Fatal(err)
			}
			if got := reasonOf(newGuard(row.egress).checkURL(u)); got != row.reason {
				t.Errorf("%s: %q, want %q", row.host, got, row.reason)
			}
		})
	}
}

// TestOwnAddresses: the machine's own addresses are closed, public or not.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	g := newGuard(Egress{})
	g.machine = []netip.Addr{netip.MustParseAddr("8.8.4.4")}
	if got := reasonOf(g.checkAddr(netip.MustParseAddrPort("8.8.4.4:80"))); got != "address_not_allowed" {
		t.Errorf("%q, want address_not_allowed", got)
	}
	g.allowed = []netip.Prefix{netip.MustParsePrefix("8.8.4.4/32")}
	if err := g.checkAddr(netip.MustParseAddrPort("8.8.4.4:80")); err != nil {
		t.Errorf("opened by name: %v", err)
	}
}

// TestISATAP: an IPv4 address inside an IPv6 one, under any prefix.
func TestISATAP(t *testing.T) {
	t.Parallel()
	g := newGuard(Egress{})
	for _, row := range []struct {
		addr string
		open bool
	}{
		{"2a00:1450:4001::5efe:10.0.0.1", false},
		{"2a00:1450:4001:0:200:5efe:a00:1", false},
		{"2a00:1450:4001::5eff:10.0.0.1", true},
	} {
		if err := g.checkAddr(netip.AddrPortFrom(netip.MustParseAddr(row.addr), 443)); (err == nil) != row.open {
			t.Errorf("%s: %v, want it open: %t", row.addr, err, row.open)
		}
	}
}

// TestEgressThatIsWrong is refused when the client is made.
func TestEgressThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, e := range []Egress{
		{AllowCIDRs: []netip.Prefix{{}}},
		{DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}},
		{DenyHosts: []string{"Upper.example"}},
		{DenyHosts: []string{"*."}},
		{DenyHosts: []string{"a b"}},
	} {
		if c, err := New(Config{Egress: e}); err == nil {
			c.Close()
			t.Errorf("%+v was taken", e)
		}
	}
}
