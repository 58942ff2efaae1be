package fetch

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"

	"code.dny.dev/ssrf"

	"fetchd/classify"
)

// Egress says which targets may be reached (spec P1). The zero value allows
// public addresses on ports 80 and 443, and nothing else.
type Egress struct {
	// AllowCIDRs opens addresses that are closed by default, such as
	// 127.0.0.0/8. Prefixes of IPv4-mapped addresses open nothing.
	AllowCIDRs []netip.Prefix
	// AllowPorts opens ports besides 80 and 443.
	AllowPorts []uint16
	// Unrestricted opens every address and port: for programs that run with
	// their user's own rights, never for a service.
	Unrestricted bool
}

// guard judges targets by an Egress. It is safe for concurrent use.
type guard struct {
	open      bool
	ports     []uint16
	addresses *ssrf.Guardian
}

// azureWire is Azure's wire server: a public address that only ever answers
// inside, with credentials.
var azureWire = netip.MustParsePrefix("168.63.129.16/32")

func newGuard(e Egress) *guard {
	var v4, v6 []netip.Prefix
	for _, p := range e.AllowCIDRs {
		if p.Addr().Is4() {
			v4 = append(v4, p.Masked())
		} else {
			v6 = append(v6, p.Masked())
		}
	}
	return &guard{
		open:  e.Unrestricted,
		ports: append([]uint16{80, 443}, e.AllowPorts...),
		addresses: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
			ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...),
			ssrf.WithDeniedV4Prefixes(azureWire)),
	}
}

// checkURL judges what a URL tells by itself: its port, and its host where that
// is an address. Nothing is looked up.
func (g *guard) checkURL(u *url.URL) error {
	if g.open {
		return nil
	}
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	if err != nil || !slices.Contains(g.ports, uint16(port)) {
		return &fault{classify.TargetBlocked, classify.PhasePolicy, "port_not_allowed"}
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return g.checkAddr(addr)
	}
	return nil
}

// checkAddr judges an address. An IPv4-mapped one is judged as the IPv4 address
// it is, and a zone does not help: a netip.Prefix contains neither.
func (g *guard) checkAddr(addr netip.Addr) error {
	if g.open || g.addresses.SafeAddr(addr.WithZone("").Unmap()) == nil {
		return nil
	}
	return &fault{classify.TargetBlocked, classify.PhasePolicy, "address_not_allowed"}
}

// control is a net.Dialer.Control: it judges the address of each socket after
// the lookup and before the connection, so that no name and no answer of a
// resolver gets round it.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return &fault{classify.TargetBlocked, classify.PhasePolicy, "address_not_allowed"}
	}
	return g.checkAddr(target.Addr())
}
