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
				if err := g.CheckURL(u); isBlocked(err) == row.public || (err == nil) != row.public {
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
		{"unique local", "fc00::/7", []string{"fc00::1", "fd00:ec2::254"}},
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
			if err := g.CheckURL(mustURL(t, "http://8.8.8.8:8080/")); !isBlocked(err) {
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
		{"80 written", "http://example.com:80/", nil, true},
		{"http on 443", "http://example.com:443/", nil, true},
		{"https on 80", "https://example.com:80/", nil, true},
		{"ssh", "http://example.com:22/", nil, false},
		{"81", "http://example.com:81/", nil, false},
		{"65535", "http://example.com:65535/", nil, false},
		{"65535 if 80 is allowed", "http://example.com:65535/", []uint16{80}, false},
		{"an allowed one", "http://example.com:8080/", []uint16{8080}, true},
		{"its neighbour", "http://example.com:8081/", []uint16{8080}, false},
		{"80 if another one is allowed", "http://example.com/", []uint16{8080}, true},
		{"a blocked address on an allowed port", "http://127.0.0.1:8080/", []uint16{8080}, false},
		{"a blocked port of an allowed address", "http://8.8.8.8:8081/", []uint16{8080}, false},
		{"a name is checked when it is dialed", "http://inside.example/", nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := New(Policy{AllowPorts: row.allow}).CheckURL(mustURL(t, row.url))
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
		if err := errors.Join(g.CheckAddr(netip.AddrPortFrom(addr, 80)), g.CheckURL(u), g.Control("tcp", u.Host, nil)); err != nil {
			t.Errorf("%s, %s: %v, want it allowed", row.name, u, err)
		}
	}
}
