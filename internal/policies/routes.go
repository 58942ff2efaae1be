package policies

import (
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"fetchd/fetch"
	"fetchd/internal/secure"
)

type routeText struct {
	Proxy       text `yaml:"proxy"`
	Credentials text `yaml:"credentials-file"`
	Source      text `yaml:"source-address"`
	Interface   text `yaml:"interface"`
	Resolver    text `yaml:"resolver"`
	Family      text `yaml:"ip-family"`
}

// Route returns the egress route of a request: the one that it names, or that of the policy if it names none.
// A nil route is that of the settings. ok reports whether the policy permits the name.
func (p *Policy) Route(name string) (route *fetch.Route, ok bool) {
	if name == "" {
		return p.route, true
	}
	route = p.routes[name]
	return route, route != nil
}

// RouteNames returns the names that a request may give.
func (p *Policy) RouteNames() []string { return slices.Sorted(maps.Keys(p.routes)) }

// leaves reports whether the policy permits a fetch to go on by the route that it began with.
func (p *Policy) leaves(route string) bool {
	if route == "" {
		return p.route == nil
	}
	return p.routes[route] != nil
}

// Dropped returns the routes of s that next has not, or has otherwise.
func (s *Set) Dropped(next *Set) []*fetch.Route {
	var dropped []*fetch.Route
	for name, route := range s.allRoutes() {
		if next.allRoutes()[name] != route {
			dropped = append(dropped, route)
		}
	}
	return dropped
}

func (s *Set) allRoutes() map[string]*fetch.Route {
	if s == nil {
		return nil
	}
	return s.routes
}

// routesOf reads which routes a policy permits.
func (p *parser) routesOf(t *egressText, out *Policy) {
	out.routes = make(map[string]*fetch.Route)
	for _, name := range t.Routes {
		if out.routes[name.value] != nil {
			p.fault(name.line, "routes: %q is there twice: remove one", name.value)
		}
		p.routeOf(name, "routes", out)
	}
	if t.Route.line > 0 {
		out.route = p.routeOf(t.Route, "route", out)
	}
}

func (p *parser) routeOf(t text, key string, out *Policy) *fetch.Route {
	route := p.set.routes[t.value]
	if route == nil {
		p.fault(t.line, "%s: is %.80q, which is not among routes", key, t.value)
		return nil
	}
	p.usedRoutes[t.value], out.routes[t.value] = true, route
	return route
}

// routes reads the routes. One that is as it was before keeps its pointer, and so its connections.
func (p *parser) routes(all map[string]routeText, before *Set) {
	p.set.routes, p.usedRoutes = make(map[string]*fetch.Route), make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		line := p.routeLines[name]
		if !policyName.MatchString(name) {
			p.fault(line, "route %.80q: give a name of at most 64 lower-case letters, digits, dots, dashes and underscores", name)
		}
		route := p.route(name, line, &t)
		if old := before.allRoutes()[name]; old != nil && sameRoute(old, route) {
			route = old
		}
		p.set.routes[name] = route
	}
}

// sameRoute reports whether two routes lead the same way.
func sameRoute(a, b *fetch.Route) bool {
	return (a.Proxy == nil) == (b.Proxy == nil) && (a.Proxy == nil || a.Proxy.String() == b.Proxy.String()) &&
		a.NameServer == b.NameServer && a.Source == b.Source && a.Interface == b.Interface && a.Network == b.Network
}

// deviceName is what Linux accepts as the name of a network interface.
var deviceName = regexp.MustCompile(`^[^\s/:]{1,15}$`)

func (p *parser) route(name string, line int, t *routeText) *fetch.Route {
	r := &fetch.Route{Name: name, Interface: t.Interface.value}
	if t.Family.line > 0 {
		r.Network = map[string]string{"ipv4": "tcp4", "ipv6": "tcp6"}[p.choice(t.Family, "ip-family", "ipv4", "ipv6")]
	}
	if s := t.Source; s.line > 0 {
		addr, err := netip.ParseAddr(s.value)
		switch {
		case err != nil, addr.Zone() != "", addr.Is4In6(), addr.IsUnspecified(), addr.IsMulticast():
			p.fault(s.line, "source-address: is %.60q: give an address of this machine", s.value)
		case r.Network == "tcp4" && !addr.Is4(), r.Network == "tcp6" && !addr.Is6():
			p.fault(s.line, "source-address: %s is not in ip-family %s: change one of them", s.value, t.Family.value)
		default:
			r.Source = addr
		}
	}
	switch s := t.Interface; {
	case s.line == 0:
	case runtime.GOOS != "linux":
		p.fault(s.line, "interface: needs Linux: give source-address instead")
	case !deviceName.MatchString(s.value), s.value == ".", s.value == "..":
		p.fault(s.line, "interface: is %.60q: give the name of a network interface such as eth1", s.value)
	}
	if s := t.Resolver; s.line > 0 {
		if at, err := netip.ParseAddrPort(s.value); err != nil || at.Port() == 0 {
			p.fault(s.line, "resolver: is %.60q: give IP:PORT", s.value)
		}
		r.NameServer, r.Resolver = s.value, fetch.Resolver(s.value)
	}
	switch {
	case t.Proxy.line > 0:
		r.Proxy = p.proxy(t.Proxy)
	case t.Credentials.line > 0:
		p.fault(t.Credentials.line, "credentials-file: has no effect without proxy: give proxy, or leave it out")
	}
	if r.Proxy == nil {
		return r
	}
	if _, err := netip.ParseAddr(r.Proxy.Hostname()); err == nil && r.Resolver != nil {
		p.fault(t.Resolver.line, "resolver: has no effect: the proxy is an address, and looks up the names of origins itself")
	}
	if t.Credentials.line > 0 {
		r.Proxy.User = p.credentials(t.Credentials, r.Proxy.Scheme == "socks5")
	}
	return r
}

// proxy reads the URL of a proxy. No fault contains it, because it may have a password by mistake.
func (p *parser) proxy(t text) *url.URL {
	u, err := url.Parse(t.value)
	switch {
	case err != nil, fetch.CheckProxy(u) != nil, strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "":
		p.fault(t.line, "proxy: give http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")
		return nil
	case u.User != nil:
		p.fault(t.line, "proxy: has a user: put user:password into a file, and name it with credentials-file")
		return nil
	}
	return u
}

// maxCredential limits a user and a password. SOCKS5 takes no longer ones (RFC 1929).
const maxCredential = 255

// credentials reads a file with user:password. No fault contains what is in it.
func (p *parser) credentials(t text, socks bool) *url.Userinfo {
	raw, err := secure.ReadFile(t.value)
	if err != nil {
		p.fault(t.line, "credentials-file: %v", err)
		return nil
	}
	user, password, ok := strings.Cut(strings.TrimSuffix(string(raw), "\n"), ":")
	if !ok || user == "" || socks && password == "" || len(user) > maxCredential || len(password) > maxCredential ||
		strings.ContainsFunc(user+password, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		p.fault(t.line, "credentials-file: %s: write user:password on one line that ends with a line feed, each at most %d bytes and without control characters", t.value, maxCredential)
		return nil
	}
	return url.UserPassword(user, password)
}

// Describe returns where a route leads, for people and without secrets.
func Describe(r *fetch.Route) string {
	text := "direct"
	if r.Proxy != nil {
		text = "through the proxy " + r.Proxy.Scheme + "://" + r.Proxy.Host + ", which looks up the names of origins, so that only the URL is checked"
	}
	if r.Source.IsValid() {
		text += ", from the address " + r.Source.String()
	}
	for _, part := range []struct{ text, value string }{
		{", by the interface ", r.Interface},
		{", with the resolver ", r.NameServer},
		{", only over ", map[string]string{"tcp4": "IPv4", "tcp6": "IPv6"}[r.Network]},
	} {
		if part.value != "" {
			text += part.text + part.value
		}
	}
	return text
}
