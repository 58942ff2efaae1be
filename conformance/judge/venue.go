// Package judge judges servers of the contract and HTTP clients by the vectors and
// scenarios of package conformance, and writes the reports, for fetch-conformance.
package judge

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"fetchd/conformance/kit"
	"fetchd/conformance/origin"
	"fetchd/internal/cli"
)

// refused is the listener of which the port is closed.
const refused = "refused"

// Venue is the origin of a run, with its addresses as the subject sees them. The subject is
// the server or the client under test.
type Venue struct {
	*origin.Origin
	hosts map[string]string // by listener; if empty, the origin's own addresses
}

var _ kit.Origin = (*Venue)(nil)

// URL implements kit.Origin.
func (v *Venue) URL(listener, path string) string {
	host, ok := v.hosts[listener]
	if !ok {
		return v.Origin.URL(listener, path)
	}
	u, err := url.Parse(v.Origin.URL(listener, ""))
	if err != nil {
		return v.Origin.URL(listener, path) // its own host; the judged request then fails
	}
	return u.Scheme + "://" + host + path
}

// Open starts an origin with the listeners that the scenarios need. By default it listens on
// loopback. If address is set, the first listener uses it and the others use the ports
// after it. base is the same address as the subject sees it, if it differs. The caller
// closes the Venue.
func Open(address, base string, all []*kit.Scenario) (*Venue, error) {
	if address == "" && base == "" {
		o, err := origin.Start(origin.Config{})
		if err != nil {
			return nil, fmt.Errorf("start the origin: %w", err)
		}
		return &Venue{Origin: o}, nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Port() == 0 {
		return nil, cli.UsageError("--origin-addr", "must be an address and a port, such as 10.0.0.5:9080; the ports after it are used too")
	}
	seen := at.String()
	if base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "http" || u.Port() == "" {
			return nil, cli.UsageError("--origin-url", "must have a scheme, a host and a port, such as http://origin.internal:9080")
		}
		seen = u.Host
	}
	v := &Venue{origin.New(origin.Config{}), make(map[string]string)}
	if err := v.listen(at, seen, Listeners(all)); err != nil {
		_ = v.Close() // always nil
		return nil, err
	}
	return v, nil
}

// listen opens one port after the other. The port of refused stays closed.
func (v *Venue) listen(at netip.AddrPort, seen string, names []string) error {
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

// Listeners returns the listeners that the scenarios need, "http" first.
func Listeners(all []*kit.Scenario) []string {
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

// Ports returns the ports of the listeners, as the subject sees them.
func (v *Venue) Ports(names []string) ([]uint16, error) {
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
