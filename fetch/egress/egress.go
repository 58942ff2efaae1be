// Package egress decides which targets a fetch may connect to (spec P1).
package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"code.dny.dev/ssrf"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// Policy controls which targets are allowed (spec P1). The zero value
// allows public addresses on ports 80 and 443, and nothing else.
type Policy struct {
	// AllowCIDRs allows addresses that are blocked by default, such as 127.0.0.0/8. If
	// it is not empty, names that have a meaning only inside a network, such as
	// localhost, are allowed too. Prefixes of IPv4-mapped addresses are invalid. An
	// address in 64:ff9b::/96 is allowed only if the IPv4 address in it is allowed too.
	// The address of a metadata service is allowed only by a prefix of that one address.
	// An unspecified address counts as loopback.
	AllowCIDRs []netip.Prefix
	// DenyCIDRs blocks addresses. It takes precedence over AllowCIDRs.
	DenyCIDRs []netip.Prefix
	// AllowPorts allows ports in addition to 80 and 443.
	AllowPorts []uint16
	// DenyHosts blocks names, given in lower case and ASCII: "example.com" blocks that
	// name, "*.example.com" the names below it, "domain:example.com" both.
	DenyHosts []string
	// AllowHosts, unless it is empty, blocks all other names, and literal addresses that
	// AllowCIDRs does not contain. Its forms are those of DenyHosts.
	AllowHosts []string
	// OnlyCIDRs blocks every address that AllowCIDRs does not contain, also a public one.
	OnlyCIDRs bool
	// LeaveHosts allows a redirect to lead to names that AllowHosts does not contain.
	LeaveHosts bool
	// Nothing blocks every target.
	Nothing bool
	// Ports replaces the ports 80 and 443. Empty means these two.
	Ports []uint16
	// Schemes are the schemes that are allowed. Empty means http and https.
	Schemes []string
	// Name is in the errors of a policy that narrows another one. Empty means that of the
	// service.
	Name string
	// Own lists this service's own listeners, which are always blocked. An unspecified
	// address means that port on every address of this machine.
	Own []netip.AddrPort
	// Unrestricted allows every address, name and port except DenyCIDRs, DenyHosts and
	// Own. It is for programs that run with their user's rights, never for a service.
	Unrestricted bool
}

// Check returns what is wrong with the fields.
func (p *Policy) Check() error {
	for _, prefix := range slices.Concat(p.AllowCIDRs, p.DenyCIDRs) {
		if !prefix.IsValid() || prefix.Addr().Is4In6() || prefix.Addr().Zone() != "" {
			return errors.New("fetch: Egress has a prefix that is invalid or IPv4-mapped: " + prefix.String())
		}
	}
	if h, ok := invalid(p.DenyHosts); ok {
		return errors.New("fetch: Egress.DenyHosts has " + strconv.Quote(h) + ": " + NameForms)
	}
	if h, ok := invalid(p.AllowHosts); ok {
		return errors.New("fetch: Egress.AllowHosts has " + strconv.Quote(h) + ": " + NameForms)
	}
	return nil
}

// Guard decides by a Policy which targets are allowed. It is safe for concurrent use.
type Guard struct {
	name       string
	open       bool // every address, name and port is allowed if it is not denied
	inside     bool // names that have a meaning only inside a network are allowed
	ports      []uint16
	schemes    []string
	addresses  *ssrf.Guardian
	deny       []netip.Prefix
	denyHosts  names
	allowHosts names
	leaveHosts bool
	only       bool // public addresses are blocked
	nothing    bool
	portList   string // ports and schemes, for errors
	schemeList string
	own        []netip.AddrPort
	machine    []netip.Addr // this machine's addresses
	allowed    []netip.Prefix
}

// azureWire is Azure's wire server. Its address is public, but only machines inside Azure
// reach it, and it provides credentials.
var azureWire = netip.MustParsePrefix("168.63.129.16/32")

// metadataAddrs are the addresses of services that provide a machine's credentials to all its programs.
// They lie in ranges that operators allow for other reasons, such as 100.64.0.0/10 or fd00::/8. So only
// a prefix of that one address allows them.
var metadataAddrs = map[netip.Addr]bool{
	netip.MustParseAddr("169.254.169.254"):    true, // nearly all clouds
	netip.MustParseAddr("169.254.170.2"):      true, // AWS, containers
	netip.MustParseAddr("169.254.170.23"):     true, // AWS, pods
	netip.MustParseAddr("169.254.0.23"):       true, // Tencent
	netip.MustParseAddr("169.254.42.42"):      true, // Scaleway
	netip.MustParseAddr("100.100.100.200"):    true, // Alibaba
	netip.MustParseAddr("fd00:100::100:200"):  true, // Alibaba
	netip.MustParseAddr("169.254.10.10"):      true, // Tencent
	netip.MustParseAddr("100.96.0.96"):        true, // Volcengine
	netip.MustParseAddr("192.0.0.192"):        true, // Oracle
	netip.MustParseAddr("168.63.129.16"):      true, // Azure
	netip.MustParseAddr("fd00:ec2::254"):      true, // AWS
	netip.MustParseAddr("fd00:ec2::23"):       true, // AWS, pods
	netip.MustParseAddr("fd20:ce::254"):       true, // Google
	netip.MustParseAddr("fd00:42::42"):        true, // Scaleway
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"): true, // Oracle
	netip.MustParseAddr("fd00:a9fe:a9fe::1"):  true, // Akamai
	netip.MustParseAddr("fe80::a9fe:a9fe"):    true, // Akamai, OpenStack
}

// New returns a guard of a policy that Check accepts.
func New(p Policy) *Guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range p.AllowCIDRs {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix.Masked())
		} else {
			v6 = append(v6, prefix.Masked())
		}
	}
	ports := p.Ports
	if len(ports) == 0 {
		ports = []uint16{80, 443}
	}
	ports = slices.Concat(ports, p.AllowPorts)
	return &Guard{
		name: p.Name, open: p.Unrestricted, nothing: p.Nothing,
		portList: strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ", "), "[]"), schemeList: strings.Join(p.Schemes, ", "),
		inside: len(p.AllowCIDRs) > 0,
		ports:  ports, schemes: p.Schemes,
		addresses: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
			ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...),
			ssrf.WithDeniedV4Prefixes(azureWire)),
		deny: p.DenyCIDRs, denyHosts: namesOf(p.DenyHosts), allowHosts: namesOf(p.AllowHosts), leaveHosts: p.LeaveHosts, only: p.OnlyCIDRs, own: p.Own,
		machine: machineAddrs(), allowed: p.AllowCIDRs,
	}
}

// machineAddrs returns the current addresses of this machine's interfaces. The other rules
// for addresses apply even if there are none.
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

// plain removes the zone and the IPv4 mapping, because a netip.Prefix contains neither.
func plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// blocked returns the error of a target that is blocked. rule is the entry of the policy that decides; empty
// means that the target is in none.
func (g *Guard) blocked(reason, rule string) error {
	if g.name == "" {
		rule = ""
	}
	return &fault.Error{Class: classify.TargetBlocked, Phase: classify.PhasePolicy, Reason: reason, Policy: g.name, Rule: rule}
}

// outside returns the error of a target that is in no entry of a list.
func (g *Guard) outside(reason, permitted string) error {
	return &fault.Error{Class: classify.TargetBlocked, Phase: classify.PhasePolicy, Reason: reason, Policy: g.name, Permitted: permitted}
}

// Nothing is the rule of a policy that permits nothing.
const Nothing = "permit: nothing"

// The reasons of a guard, in the order in which it checks them: those of CheckURL for a host that is a name, and for one
// that is an address, and those of CheckAddr.
var (
	NameOrder    = []string{"scheme_not_allowed", "port_not_allowed", "name_denied", "metadata_name", "name_not_allowed"}
	LiteralOrder = []string{"scheme_not_allowed", "port_not_allowed", "name_not_allowed", "own_listener", "address_denied", "address_not_allowed"}
	AddressOrder = LiteralOrder[3:]
)

// CheckURL checks the scheme, the port and the host of a URL. It does not look up names. redirected reports
// whether the URL is the target of a redirect.
func (g *Guard) CheckURL(u *url.URL, redirected bool) error {
	if g.nothing {
		return g.blocked("name_not_allowed", Nothing)
	}
	if len(g.schemes) > 0 && !slices.Contains(g.schemes, u.Scheme) {
		return g.outside("scheme_not_allowed", g.schemeList)
	}
	port, err := strconv.ParseUint(urls.Port(u), 10, 16)
	if err != nil || !g.open && !slices.Contains(g.ports, uint16(port)) {
		return g.outside("port_not_allowed", g.portList)
	}
	outside := g.allowHosts.some() && !(redirected && g.leaveHosts)
	if addr, ok := literal(u.Hostname()); ok {
		if outside && !contains(g.allowed, reached(plain(addr))) {
			return g.blocked("name_not_allowed", "")
		}
		return g.CheckAddr(netip.AddrPortFrom(addr, uint16(port)))
	}
	return g.checkName(u.Hostname(), outside)
}

// literal parses a host that is an address. It allocates nothing for a name, which ends in a letter.
func literal(host string) (netip.Addr, bool) {
	if last := len(host) - 1; last < 0 || !strings.Contains(host, ":") && (host[last] < '0' || host[last] > '9') {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	return addr, err == nil
}

// IsLiteral reports whether a host is an address.
func IsLiteral(host string) bool {
	_, ok := literal(host)
	return ok
}

// CheckAddr checks an address and its port. If it is a NAT64 address, the IPv4 address in it
// must be allowed too, because that is where a connection arrives. An IPv4-mapped address
// counts as its IPv4 address, and a zone is ignored.
func (g *Guard) CheckAddr(target netip.AddrPort) error {
	addr := plain(target.Addr())
	if inner, ok := nat64(addr); ok {
		if err := g.checkOne(inner, target.Port()); err != nil {
			return err
		}
	}
	return g.checkOne(addr, target.Port())
}

// checkOne checks an address without what it contains. An unspecified address counts as
// loopback.
func (g *Guard) checkOne(named netip.Addr, port uint16) error {
	addr := reached(named)
	switch {
	case g.nothing:
		return g.blocked("address_not_allowed", Nothing)
	case g.isOwn(addr, port):
		return g.blocked("own_listener", "")
	case contains(g.deny, addr), contains(g.deny, named):
		return g.blocked("address_denied", g.denying(addr, named))
	case g.open:
		return nil
	case metadataAddrs[addr] && !slices.Contains(g.allowed, netip.PrefixFrom(addr, addr.BitLen())),
		g.only && !contains(g.allowed, addr),
		isISATAP(addr) && !contains(g.allowed, addr),
		slices.Contains(g.machine, addr) && !contains(g.allowed, addr),
		g.addresses.SafeAddr(addr) != nil:
		return g.blocked("address_not_allowed", "")
	}
	return nil
}

// denying returns the prefix that blocks one of two addresses.
func (g *Guard) denying(addr, named netip.Addr) string {
	i := slices.IndexFunc(g.deny, func(p netip.Prefix) bool { return p.Contains(addr) || p.Contains(named) })
	return g.deny[i].String()
}

// reached returns the address at which a connection to addr arrives. The kernel takes an
// unspecified address for the loopback address of its family.
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

// isOwn reports whether a listener of this service has the address and port.
func (g *Guard) isOwn(addr netip.Addr, port uint16) bool {
	return slices.ContainsFunc(g.own, func(l netip.AddrPort) bool {
		if l.Port() != port {
			return false
		}
		at := plain(l.Addr())
		return at == addr || at.IsUnspecified() && (addr.IsLoopback() || slices.Contains(g.machine, addr))
	})
}

// isISATAP reports whether addr has an IPv4 address for a tunnel of its site
// (RFC 5214 §6.1). The prefix may be any.
func isISATAP(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	return b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// public is the guard of the zero policy.
var public = sync.OnceValue(func() *Guard { return New(Policy{}) })

// IsPublic reports whether the zero [Policy] allows an address.
func IsPublic(addr netip.Addr) bool { return public().CheckAddr(netip.AddrPortFrom(addr, 443)) == nil }

// Control is a net.Dialer.Control. It checks the address of each socket after the lookup and
// before the connection, so that no name and no answer of a resolver bypasses it.
func (g *Guard) Control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return g.blocked("address_not_allowed", "")
	}
	return g.CheckAddr(target)
}
