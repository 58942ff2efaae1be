package fetch

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"

	"code.dny.dev/ssrf"

	"fetchd/classify"
)

// Egress is the policy that controls which targets are allowed (spec P1). The zero value
// allows public addresses on ports 80 and 443, and nothing else.
type Egress struct {
	// AllowCIDRs allows addresses that are blocked by default, such as 127.0.0.0/8. If
	// it is not empty, names that have a meaning only inside a network, such as
	// localhost, are allowed too. Prefixes of IPv4-mapped addresses are invalid. An
	// address in 64:ff9b::/96 is allowed only if the IPv4 address in it is allowed too.
	// An unspecified address counts as loopback.
	AllowCIDRs []netip.Prefix
	// DenyCIDRs blocks addresses. It takes precedence over AllowCIDRs.
	DenyCIDRs []netip.Prefix
	// AllowPorts allows ports in addition to 80 and 443.
	AllowPorts []uint16
	// DenyHosts blocks names, given in lower case and ASCII: "example.com" blocks that
	// name, "*.example.com" the names below it.
	DenyHosts []string
	// Own lists this service's own listeners, which are always blocked. An unspecified
	// address means that port on every address of this machine.
	Own []netip.AddrPort
	// Unrestricted allows every address, name and port except DenyCIDRs, DenyHosts and
	// Own. It is for programs that run with their user's rights, never for a service.
	Unrestricted bool
}

// check tells what is wrong with the fields, for people.
func (e *Egress) check() error {
	for _, p := range slices.Concat(e.AllowCIDRs, e.DenyCIDRs) {
		if !p.IsValid() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			return errors.New("fetch: Egress has a prefix that is invalid or IPv4-mapped: " + p.String())
		}
	}
	for _, h := range e.DenyHosts {
		if !isHostName(trimWildcard(h)) {
			return errors.New("fetch: Egress.DenyHosts has " + strconv.Quote(h) + ": give a name in lower case, or *.name")
		}
	}
	return nil
}

// guard judges targets by an Egress. It is safe for concurrent use.
type guard struct {
	open      bool // every address, name and port that is not closed by name
	inside    bool // names that only mean something inside
	ports     []uint16
	addresses *ssrf.Guardian
	deny      []netip.Prefix
	denyHosts []string
	own       []netip.AddrPort
	machine   []netip.Addr // this machine's addresses
	allowed   []netip.Prefix
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
		open:   e.Unrestricted,
		inside: len(e.AllowCIDRs) > 0,
		ports:  append([]uint16{80, 443}, e.AllowPorts...),
		addresses: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
			ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...),
			ssrf.WithDeniedV4Prefixes(azureWire)),
		deny: e.DenyCIDRs, denyHosts: e.DenyHosts, own: e.Own,
		machine: machineAddrs(), allowed: e.AllowCIDRs,
	}
}

// machineAddrs are the addresses of this machine's interfaces, as they are when
// the guard is made. Without them the address rules still hold.
func machineAddrs() []netip.Addr {
	var all []netip.Addr
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, plain(p.Addr()))
		}
	}
	return all
}

// plain takes the zone and the IPv4 mapping off: a netip.Prefix contains neither.
func plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

func blocked(reason string) error {
	return &fault{classify.TargetBlocked, classify.PhasePolicy, reason}
}

// checkURL judges what a URL tells by itself: its port and its host. Nothing is
// looked up.
func (g *guard) checkURL(u *url.URL) error {
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	if err != nil || !g.open && !slices.Contains(g.ports, uint16(port)) {
		return blocked("port_not_allowed")
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return g.checkAddr(netip.AddrPortFrom(addr, uint16(port)))
	}
	return g.checkName(u.Hostname())
}

// checkAddr judges an address and port, and where the address is one of NAT64 the
// IPv4 address inside it too, at which a connection would arrive: both must be
// open. An IPv4-mapped address is judged as the IPv4 address it is, and a zone
// does not help.
func (g *guard) checkAddr(target netip.AddrPort) error {
	addr := plain(target.Addr())
	if inner, ok := nat64(addr); ok {
		if err := g.checkOne(inner, target.Port()); err != nil {
			return err
		}
	}
	return g.checkOne(addr, target.Port())
}

// checkOne judges an address for what it is itself: an unspecified one as
// loopback.
func (g *guard) checkOne(named netip.Addr, port uint16) error {
	addr := reached(named)
	switch {
	case g.isOwn(addr, port):
		return blocked("own_listener")
	case contains(g.deny, addr), contains(g.deny, named):
		return blocked("address_denied")
	case g.open:
		return nil
	case isISATAP(addr) && !contains(g.allowed, addr),
		slices.Contains(g.machine, addr) && !contains(g.allowed, addr),
		g.addresses.SafeAddr(addr) != nil:
		return blocked("address_not_allowed")
	}
	return nil
}

// reached is the address that a connection to addr arrives at: the kernel takes
// an unspecified one for the loopback of its family.
func reached(addr netip.Addr) netip.Addr {
	switch addr {
	case netip.IPv4Unspecified():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case netip.IPv6Unspecified():
		return netip.IPv6Loopback()
	}
	return addr
}

// nat64Prefix holds IPv4 addresses for translators, in its last 32 bits (RFC 6052 §2.1).
var nat64Prefix = netip.MustParsePrefix("64:ff9b::/96")

// nat64 returns the IPv4 address to which a translator would connect.
func nat64(addr netip.Addr) (netip.Addr, bool) {
	if !nat64Prefix.Contains(addr) {
		return netip.Addr{}, false
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// isOwn tells a listener of this service.
func (g *guard) isOwn(addr netip.Addr, port uint16) bool {
	return slices.ContainsFunc(g.own, func(l netip.AddrPort) bool {
		if l.Port() != port {
			return false
		}
		at := plain(l.Addr())
		return at == addr || at.IsUnspecified() && (addr.IsLoopback() || slices.Contains(g.machine, addr))
	})
}

// isISATAP tells addresses that carry an IPv4 address to a tunnel of the site
// (RFC 5214 §6.1), under whatever prefix.
func isISATAP(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	return b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// control is a net.Dialer.Control: it judges the address of each socket after
// the lookup and before the connection, so that no name and no answer of a
// resolver gets round it.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return blocked("address_not_allowed")
	}
	return g.checkAddr(target)
}
