package egress

import (
	"net/netip"
	"testing"

	"fetchd/fetch/fault"
)

// allAddresses contains every address.
var allAddresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// TestAlwaysBlocked checks addresses that stay blocked whatever is allowed, in every form that leads
// there.
func TestAlwaysBlocked(t *testing.T) {
	t.Parallel()
	policy := Policy{
		DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:4860::/32")},
		Own: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("[::1]:8086"),
			netip.MustParseAddrPort("0.0.0.0:9090")},
	}
	opened, unrestricted := policy, policy
	opened.AllowCIDRs, unrestricted.Unrestricted = allAddresses, true
	for _, row := range []struct{ name, target, reason string }{
		{"denied", "10.1.2.3:80", "address_denied"},
		{"denied, mapped", "[::ffff:10.1.2.3]:80", "address_denied"},
		{"denied, by NAT64", "[64:ff9b::10.1.2.3]:80", "address_denied"},
		{"next to a denied prefix", "10.2.2.3:80", ""},
		{"next to a denied prefix, by NAT64", "[64:ff9b::10.2.2.3]:80", ""},
		{"denied IPv6", "[2001:4860:4860::8888]:443", "address_denied"},
		{"own", "127.0.0.1:8080", "own_listener"},
		{"own, mapped", "[::ffff:127.0.0.1]:8080", "own_listener"},
		{"own, unspecified", "0.0.0.0:8080", "own_listener"},
		{"own, unspecified and mapped", "[::ffff:0.0.0.0]:8080", "own_listener"},
		{"own, by NAT64", "[64:ff9b::127.0.0.1]:8080", "own_listener"},
		{"own, unspecified by NAT64", "[64:ff9b::0.0.0.0]:8080", "own_listener"},
		{"another port", "127.0.0.1:8081", ""},
		{"another port, unspecified", "0.0.0.0:8081", ""},
		{"another address", "127.0.0.2:8080", ""},
		{"the other family, unspecified", "[::]:8080", ""},
		{"own IPv6", "[::1]:8086", "own_listener"},
		{"own IPv6, unspecified", "[::]:8086", "own_listener"},
		{"own IPv6, unspecified, with a zone", "[::%lo]:8086", "own_listener"},
		{"own everywhere", "127.0.0.2:9090", "own_listener"},
		{"own everywhere, IPv6", "[::1]:9090", "own_listener"},
		{"own everywhere, unspecified", "0.0.0.0:9090", "own_listener"},
		{"own everywhere, IPv6 unspecified", "[::]:9090", "own_listener"},
		{"not this machine", "8.8.8.8:9090", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, e := range []Policy{opened, unrestricted} {
				if got := fault.ReasonOf(New(e).CheckAddr(netip.MustParseAddrPort(row.target))); got != row.reason {
					t.Errorf("%s, unrestricted %t: %q, want %q", row.target, e.Unrestricted, got, row.reason)
				}
			}
		})
	}
}

// TestDeniedLoopback checks that an unspecified address is denied if loopback is denied, to which it
// leads, or if it is denied itself.
func TestDeniedLoopback(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, deny, addr string
		open             bool
	}{
		{"loopback", "127.0.0.0/8", "0.0.0.0", false},
		{"IPv6 loopback", "::1/128", "::", false},
		{"the unspecified address", "0.0.0.0/32", "0.0.0.0", false},
		{"the unspecified address, for loopback", "0.0.0.0/32", "127.0.0.1", true},
		{"the IPv6 unspecified address", "::/128", "::", false},
		{"loopback, of the other family", "127.0.0.0/8", "::", true},
		{"the prefix of NAT64", "64:ff9b::/96", "64:ff9b::8.8.8.8", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, e := range []Policy{{AllowCIDRs: allAddresses}, {Unrestricted: true}} {
				e.DenyCIDRs = []netip.Prefix{netip.MustParsePrefix(row.deny)}
				if err := New(e).CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(row.addr), 80)); (err == nil) != row.open {
					t.Errorf("%s with %s denied, unrestricted %t: %v, want it allowed: %t", row.addr, row.deny, e.Unrestricted, err, row.open)
				}
			}
		})
	}
}

// TestNAT64 checks that allowing the prefix of NAT64 allows public addresses in it, and no others.
func TestNAT64(t *testing.T) {
	t.Parallel()
	prefix := netip.MustParsePrefix("64:ff9b::/96")
	private := netip.MustParsePrefix("10.0.0.0/8")
	for _, row := range []struct {
		name, addr string
		allow      []netip.Prefix
		open       bool
	}{
		{"nothing allowed", "64:ff9b::8.8.8.8", nil, false},
		{"a public address", "64:ff9b::8.8.8.8", []netip.Prefix{prefix}, true},
		{"a private address", "64:ff9b::10.0.0.1", []netip.Prefix{prefix}, false},
		{"a private address that is allowed too", "64:ff9b::10.0.0.1", []netip.Prefix{prefix, private}, true},
		{"a private address, the prefix not allowed", "64:ff9b::10.0.0.1", []netip.Prefix{private}, false},
		{"the metadata service", "64:ff9b::169.254.169.254", []netip.Prefix{prefix}, false},
		{"Azure's wire server", "64:ff9b::168.63.129.16", []netip.Prefix{prefix}, false},
		{"loopback", "64:ff9b::127.0.0.1", []netip.Prefix{prefix}, false},
		{"unspecified", "64:ff9b::", []netip.Prefix{prefix}, false},
		{"this machine", "64:ff9b::8.8.4.4", []netip.Prefix{prefix}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := New(Policy{AllowCIDRs: row.allow})
			g.machine = []netip.Addr{netip.MustParseAddr("8.8.4.4")}
			if err := g.CheckAddr(netip.AddrPortFrom(netip.MustParseAddr(row.addr), 80)); (err == nil) != row.open {
				t.Errorf("%s: %v, want it allowed: %t", row.addr, err, row.open)
			}
		})
	}
}
