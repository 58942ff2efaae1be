package site

import (
	"context"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"fetchd/conformance/space"
)

// nameServer answers DNS queries for the hosts of a site.
type nameServer struct {
	zone string // with a dot before it
	// addresses is how many addresses names have.
	addresses int
	*space.Server
}

func startNames(suffix string, addresses int) (_ *nameServer, err error) {
	n := &nameServer{zone: "." + suffix, addresses: addresses}
	n.Server, err = space.Listen(context.Background(), "127.0.0.1:0", n.lookup)
	return n, err
}

// lookup returns the address of a name.
func (n *nameServer) lookup(name string, _ dnsmessage.Type) (space.Host, []netip.Addr) {
	switch {
	case "."+name == n.zone: // the zone exists because it has names below it (RFC 8020)
		return space.Host{}, nil
	case !n.hasName(name):
		return space.Host{RCode: dnsmessage.RCodeNameError}, nil
	}
	return space.Host{}, []netip.Addr{n.address(name)}
}

// addressNumber returns an address of a site, from number 0 on.
func addressNumber(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, byte(n >> 8), byte(n + 1)})
}

// address returns the address of a name without a dot at its end.
func (n *nameServer) address(name string) netip.Addr {
	return addressNumber(int(crc32.ChecksumIEEE([]byte(name)) % uint32(n.addresses)))
}

// Address returns the address of a host, which is a name without a port.
func (s *Site) Address(host string) netip.Addr { return s.names.address(host) }

// hasName reports whether a name is below the suffix and has no label gone or gone-....
func (n *nameServer) hasName(name string) bool {
	under, ok := strings.CutSuffix(name, n.zone)
	if !ok || under == "" {
		return false
	}
	for label := range strings.SplitSeq(under, ".") {
		if label == "gone" || strings.HasPrefix(label, "gone-") {
			return false
		}
	}
	return true
}

// NameServer returns host:port of the name server, which speaks UDP. Every name below the suffix
// has one address, 127.0.0.1 unless there are many, and no other records. Names with a label gone or gone-..., and all
// other names, are NXDOMAIN.
func (s *Site) NameServer() string { return s.names.Addr().String() }

// Resolver returns a resolver that asks only [Site.NameServer]. A lookup during [Site.Close] may
// wait until its context ends, or for the resolver's own limit of twice 5 s.
func (s *Site) Resolver() *net.Resolver { return resolverOf(s.NameServer()) }

// resolverOf returns a resolver that asks only this name server. What waits for an answer ends with the context of the
// lookup, which net.Resolver does not do by itself: a transport cancels dials that it no longer needs.
func resolverOf(addr string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "udp4", addr)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() }) // the resolver closes it too
		}
		return conn, err
	}}
}
