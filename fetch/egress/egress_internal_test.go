package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"testing"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// addresses are addresses with the decision of the default policy. Each blocked range comes with its
// allowed neighbours.
var addresses = []struct {
	name, addr string
	public     bool
}{
	{"this network", "0.0.0.0", false},
	{"the end of this network", "0.255.255.255", false},
	{"after this network", "1.0.0.0", true},
	{"before RFC 1918", "9.255.255.255", true},
	{"RFC 1918, 10/8", "10.0.0.1", false},
	{"after RFC 1918, 10/8", "11.0.0.0", true},
	{"before carrier-grade NAT", "100.63.255.255", true},
	{"carrier-grade NAT", "100.64.0.1", false},
	{"a metadata service in carrier-grade NAT", "100.100.100.200", false},
	{"after carrier-grade NAT", "100.128.0.0", true},
	{"before loopback", "126.255.255.255", true},
	{"loopback", "127.0.0.1", false},
	{"loopback's end", "127.255.255.255", false},
	{"after loopback", "128.0.0.0", true},
	{"before Azure's wire server", "168.63.129.15", true},
	{"Azure's wire server", "168.63.129.16", false},
	{"after Azure's wire server", "168.63.129.17", true},
	{"before link-local", "169.253.255.255", true},
	{"link-local", "169.254.0.1", false},
	{"the metadata service", "169.254.169.254", false},
	{"after link-local", "169.255.0.0", true},
	{"before RFC 1918, 172.16/12", "172.15.255.255", true},
	{"RFC 1918, 172.16/12", "172.16.0.1", false},
	{"RFC 1918, 172.16/12, its end", "172.31.255.255", false},
	{"after RFC 1918, 172.16/12", "172.32.0.0", true},
	{"IETF protocol assignments", "192.0.0.1", false},
	{"Oracle's metadata service", "192.0.0.192", false},
	{"documentation 1", "192.0.2.1", false},
	{"6to4 relay", "192.88.99.1", false},
	{"before RFC 1918, 192.168/16", "192.167.255.255", true},
	{"RFC 1918, 192.168/16", "192.168.0.1", false},
	{"after RFC 1918, 192.168/16", "192.169.0.0", true},
	{"before benchmarks", "198.17.255.255", true},
	{"benchmarks", "198.18.0.1", false},
	{"benchmarks, their end", "198.19.255.255", false},
	{"after benchmarks", "198.20.0.0", true},
	{"documentation 2", "198.51.100.1", false},
	{"documentation 3", "203.0.113.1", false},
	{"before multicast", "223.255.255.255", true},
	{"multicast", "224.0.0.1", false},
	{"reserved", "240.0.0.1", false},
	{"broadcast", "255.255.255.255", false},
	{"a public resolver", "8.8.8.8", true},

	{"IPv6 unspecified", "::", false},
	{"IPv6 loopback", "::1", false},
	{"IPv4-compatible loopback", "::127.0.0.1", false},
	{"NAT64", "64:ff9b::808:808", false},
	{"NAT64 of loopback", "64:ff9b::7f00:1", false},
	{"local NAT64", "64:ff9b:1::7f00:1", false},
	{"discard", "100::1", false},
	{"before global unicast", "1fff:ffff::1", false},
	{"Teredo", "2001::1", false},
	{"ORCHID", "2001:20::1", false},
	{"after IETF protocol assignments", "2001:200::1", true},
	{"IPv6 documentation", "2001:db8::1", false},
	{"6to4 of loopback", "2002:7f00:1::", false},
	{"6to4 of a public address", "2002:808:808::1", false},
	{"a public IPv6 resolver", "2001:4860:4860::8888", true},
	{"another public IPv6 address", "2a00:1450:4001::1", true},
	{"the second IPv6 documentation", "3fff::1", false},
	{"after global unicast", "4000::1", false},
	{"unique local", "fc00::1", false},
	{"a metadata service in unique local", "fd00:ec2::254", false},
	{"IPv6 link-local", "fe80::1", false},
	{"IPv6 multicast", "ff02::1", false},
}

func mustURL(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := urls.Parse(raw)
	if err != nil {
		t.Fatalf("Parse(%q): %v", raw, err)
	}
	return u
}

func isBlocked(err error) bool { return errors.Is(err, &fault.Error{Class: classify.TargetBlocked}) }

// TestAddresses checks each address with the default policy: bare, with a zone, mapped into IPv6, as
// the host of a URL and as the address of a socket.
func TestAddresses(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, row := range addresses {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			addr := netip.MustParseAddr(row.addr)
			forms := []netip.Addr{addr}
			if addr.Is4() {
				forms = append(forms, netip.AddrFrom16(addr.As16()))
			}
			forms = append(forms, netip.AddrFrom16(addr.As16()).WithZone("eth0"))
			for _, form := range forms {
				if err := g.CheckAddr(netip.AddrPortFrom(form, 80)); isBlocked(err) == row.public || (err == nil) != row.public {
					t.Errorf("CheckAddr(%s) = %v, want it allowed: %t", form, err, row.public)
				}
				socket := netip.AddrPortFrom(form, 80).String()
				if err := g.Control("tcp", socket, nil); isBlocked(err) == row.public || (err == nil) != row.public {
					t.Errorf("Control(%s) = %v, want it allowed: %t", socket, err, row.public)
				}
				host := form.WithZone("").String()
				u := mustURL(t, "http://"+net.JoinHostPort(host, "80")+"/")
				if err := g.CheckURL(u, false); isBlocked(err) == row.public || (err == nil) != row.public {
					t.Errorf("CheckURL(%s) = %v, want it allowed: %t", u, err, row.public)
				}
			}
		})
	}
}

// TestInvalidSocketAddress checks that an address that cannot be parsed is blocked.
func TestInvalidSocketAddress(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, address := range []string{"", "8.8.8.8", "example.com:80", "[::1", ":80", "8.8.8.8:http"} {
		if err := g.Control("tcp", address, nil); !isBlocked(err) {
			t.Errorf("Control(%q) = %v, want it blocked", address, err)
		}
	}
}

// everyIPv4 returns the IPv4 addresses of the table, except metadata services.
func everyIPv4() (all []string) {
	for _, a := range addresses {
		if addr := netip.MustParseAddr(a.addr); addr.Is4() && !metadataAddrs[addr] {
			all = append(all, a.addr)
		}
	}
	return all
}

// TestAllowCIDRs checks that a prefix allows its own addresses and no others.
func TestAllowCIDRs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, cidr string
		opens      []string // of the closed addresses
	}{
		{"loopback", "127.0.0.0/8", []string{"127.0.0.1", "127.255.255.255", "0.0.0.0"}},
		{"one address", "127.0.0.1/32", []string{"127.0.0.1", "0.0.0.0"}},
		{"the unspecified address itself", "0.0.0.0/32", nil},
		{"a prefix with host bits", "10.1.2.3/8", []string{"10.0.0.1"}},
		{"IPv6 loopback", "::1/128", []string{"::1", "::"}},
		{"the IPv6 unspecified address itself", "::/128", nil},
		{"unique local", "fc00::/7", []string{"fc00::1"}},
		{"link-local", "169.254.0.0/16", []string{"169.254.0.1"}},
		{"IETF protocol assignments", "192.0.0.0/24", []string{"192.0.0.1"}},
		{"everything of IPv4", "0.0.0.0/0", everyIPv4()},
		{"Alibaba's metadata service", "100.100.100.200/32", []string{"100.100.100.200"}},
		{"AWS's metadata service in IPv6", "fd00:ec2::254/128", []string{"fd00:ec2::254"}},
		{"the metadata service", "169.254.169.254/32", []string{"169.254.169.254"}},
		{"Azure's wire server", "168.63.129.16/32", []string{"168.63.129.16"}},
		{"NAT64", "64:ff9b::/96", []string{"64:ff9b::808:808"}},
		{"addresses that are allowed anyway", "8.8.8.0/24", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := New(Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix(row.cidr)}})
			opens := make(map[string]bool)
			for _, addr := range row.opens {
				opens[addr] = true
			}
			for _, a := range addresses {
				addr, want := netip.MustParseAddr(a.addr), a.public || opens[a.addr]
				if err := g.CheckAddr(netip.AddrPortFrom(addr, 80)); (err == nil) != want {
					t.Errorf("%s, %s: %v, want it allowed: %t", a.name, addr, err, want)
				}
				if mapped := netip.AddrFrom16(addr.As16()); (g.CheckAddr(netip.AddrPortFrom(mapped, 80)) == nil) != want {
					t.Errorf("%s, %s: want it allowed: %t", a.name, mapped, want)
				}
			}
			if err := g.CheckURL(mustURL(t, "http://8.8.8.8:8080/"), false); !isBlocked(err) {
				t.Errorf("port 8080: %v, want it blocked", err)
			}
		})
	}
}

// TestPorts checks that only 80, 443 and the listed ports are allowed.
func TestPorts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, url string
		allow     []uint16
		open      bool
	}{
		{"http", "http://example.com/", nil, true},
		{"https", "https://example.com/", nil, true},
		{"http on 443", "http://example.com:443/", nil, true},
		{"ssh", "http://example.com:22/", nil, false},
		{"an allowed one", "http://example.com:8080/", []uint16{8080}, true},
		{"80 if another one is allowed", "http://example.com/", []uint16{8080}, true},
		{"a blocked address on an allowed port", "http://127.0.0.1:8080/", []uint16{8080}, false},
		{"a blocked port of an allowed address", "http://8.8.8.8:8081/", []uint16{8080}, false},
		{"a name is checked when it is dialed", "http://inside.example/", nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := New(Policy{AllowPorts: row.allow}).CheckURL(mustURL(t, row.url), false)
			if (err == nil) != row.open || err != nil && !isBlocked(err) {
				t.Errorf("CheckURL(%s) with %v allowed: %v, want it allowed: %t", row.url, row.allow, err, row.open)
			}
		})
	}
}

// TestUnrestricted checks that every address and every port is allowed.
func TestUnrestricted(t *testing.T) {
	t.Parallel()
	g := New(Policy{Unrestricted: true})
	for _, row := range addresses {
		addr := netip.MustParseAddr(row.addr)
		u := mustURL(t, "http://"+netip.AddrPortFrom(addr, 22).String()+"/")
		if err := errors.Join(g.CheckAddr(netip.AddrPortFrom(addr, 80)), g.CheckURL(u, false), g.Control("tcp", u.Host, nil)); err != nil {
			t.Errorf("%s, %s: %v, want it allowed", row.name, u, err)
		}
	}
}

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
		{"home.arpa", "nas.home.arpa", Policy{}, "name_not_allowed"},
		{"a single label", "intranet", Policy{}, "name_not_allowed"},
		{"local in the middle", "local.example.com", Policy{}, ""},
		{"a name that only ends like one", "notlocal.example", Policy{}, ""},
		{"a top level that only ends like one", "example.thelocal", Policy{}, ""},
		{"an internal prefix is allowed", "db.prod.internal", inside, ""},
		{"a single label if an internal prefix is allowed", "db", inside, ""},
		{"cloud metadata", "metadata.google.internal", Policy{}, "metadata_name"},
		{"cloud metadata if an internal prefix is allowed", "metadata.google.internal", inside, "metadata_name"},
		{"IBM's metadata if an internal prefix is allowed", "api.metadata.cloud.ibm.com", inside, "metadata_name"},
		{"Rancher's metadata if an internal prefix is allowed", "rancher-metadata", inside, "metadata_name"},
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
			if got := fault.ReasonOf(New(row.policy).CheckURL(u, false)); got != row.reason {
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

// TestOrder checks that a guard checks its rules in the order that it says: a target that all rules from one on forbid has
// the reason of that one.
func TestOrder(t *testing.T) {
	t.Parallel()
	closed := Policy{Schemes: []string{"https"}, Ports: []uint16{443}, DenyHosts: []string{"metadata"}, AllowHosts: []string{"other.example"},
		Own: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}, DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	opened := map[string]func(p *Policy){
		"scheme_not_allowed": func(p *Policy) { p.Schemes = nil }, "port_not_allowed": func(p *Policy) { p.Ports = nil },
		"name_denied": func(p *Policy) { p.DenyHosts = nil }, "own_listener": func(p *Policy) { p.Own = nil },
		"name_not_allowed": func(p *Policy) { p.AllowHosts = nil }, "address_denied": func(p *Policy) { p.DenyCIDRs = nil },
	}
	for host, order := range map[string][]string{"metadata": NameOrder[:4], "10.0.0.1": LiteralOrder} {
		p := closed
		for _, reason := range order {
			if got := fault.ReasonOf(New(p).CheckURL(&url.URL{Scheme: "http", Host: host}, false)); got != reason {
				t.Errorf("%s: %q, want %q", host, got, reason)
			}
			if open := opened[reason]; open != nil {
				open(&p)
			}
		}
	}
}
