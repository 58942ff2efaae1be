package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"fetchd/conformance/kit"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/internal/version"
	"fetchd/server"
)

// refused is the listener on which nothing listens.
const refused = "refused"

// venue is an origin as the one who is judged sees it.
type venue struct {
	*origin.Origin
	hosts map[string]string // by listener; empty: as the origin says itself
}

var _ kit.Origin = (*venue)(nil)

// URL implements kit.Origin.
func (v *venue) URL(listener, path string) string {
	host, ok := v.hosts[listener]
	if !ok {
		return v.Origin.URL(listener, path)
	}
	u, err := url.Parse(v.Origin.URL(listener, ""))
	if err != nil {
		return v.Origin.URL(listener, path) // its own host, which then tells
	}
	return u.Scheme + "://" + host + path
}

// openVenue starts an origin on loopback, or where address says: the first
// listener there, the others on the ports after it. base is that address as the
// one who is judged sees it; empty means the same. The caller closes it.
func openVenue(address, base string, all []*kit.Scenario) (*venue, error) {
	if address == "" && base == "" {
		o, err := origin.Start(origin.Config{})
		if err != nil {
			return nil, fmt.Errorf("start the origin: %w", err)
		}
		return &venue{Origin: o}, nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Port() == 0 {
		return nil, cli.UsageError("--origin-addr", "wants an address and a port, such as 10.0.0.5:9080; the ports after it are used, too")
	}
	seen := at.String()
	if base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" || u.Port() == "" {
			return nil, cli.UsageError("--origin-url", "wants scheme, host and port, such as http://origin.internal:9080")
		}
		seen = u.Host
	}
	v := &venue{origin.New(origin.Config{}), make(map[string]string)}
	if err := v.listen(at, seen, listenersOf(all)); err != nil {
		_ = v.Close() // always nil
		return nil, err
	}
	return v, nil
}

// listen opens a port after the other, and leaves that of refused closed.
func (v *venue) listen(at netip.AddrPort, seen string, names []string) error {
	host, text, err := net.SplitHostPort(seen)
	if err != nil {
		return fmt.Errorf("the origin's address: %w", err)
	}
	first, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("the origin's port: %w", err)
	}
	for i, name := range names {
		v.hosts[name] = net.JoinHostPort(host, strconv.Itoa(first+i))
		if name == refused {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(at.Addr().String(), strconv.Itoa(int(at.Port())+i)))
		if err != nil {
			return fmt.Errorf("open the origin's listener %s: %w", name, err)
		}
		go func() { _ = v.ServeAs(name, l) }() // until Close
	}
	return nil
}

// listenersOf are those that the scenarios need, "http" first.
func listenersOf(all []*kit.Scenario) []string {
	names := []string{"http"}
	for _, s := range all {
		for _, name := range s.Listeners() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names[1:])
	return names
}

// ports are those of the listeners, as the one who is judged sees them.
func (v *venue) ports(names []string) ([]uint16, error) {
	ports := make([]uint16, len(names))
	for i, name := range names {
		u, err := url.Parse(v.URL(name, ""))
		if err != nil {
			return nil, fmt.Errorf("the origin's listener %s: %w", name, err)
		}
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return nil, fmt.Errorf("the origin's listener %s: %w", name, err)
		}
		ports[i] = uint16(port)
	}
	return ports, nil
}

// serveVenue runs a service on loopback, with the address guard in force, that may
// reach the listeners of the venue and nothing else.
func serveVenue(v *venue, names []string) (*service, error) {
	ports, err := v.ports(names)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for the service: %w", err)
	}
	return serve(server.Config{Fetch: fetch.Config{
		RootCAs:   v.CA(),
		Egress:    fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports},
		UserAgent: "fetchd/" + version.String(),
	}, AuthProviders: map[string]server.AuthProvider{"conformance-stalled": {Provider: stalled{}}}}, l, "passthrough:///"+l.Addr().String(), plaintext)
}

// stalled is an auth provider whose refresh does not end by itself.
type stalled struct{}

func (stalled) Covers(*url.URL) bool { return true }

func (stalled) Field(context.Context) (name, value string, err error) {
	return "Authorization", "Bearer stale", nil
}

func (stalled) Refresh(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
