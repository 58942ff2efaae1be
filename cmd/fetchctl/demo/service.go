package demo

import (
	"fmt"
	"net"
	"net/netip"

	"fetchd/cmd/fetchctl/service"
	"fetchd/conformance/judge"
	"fetchd/fetch"
	"fetchd/internal/version"
	"fetchd/server"
)

// serveVenue runs a service on loopback. Its egress policy allows the listeners of the venue
// and nothing else.
func serveVenue(v *judge.Venue, names []string) (*service.Service, error) {
	ports, err := v.Ports(names)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for the service: %w", err)
	}
	return service.Start(server.Config{Fetch: fetch.Config{
		RootCAs:   v.CA(),
		Egress:    fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports},
		UserAgent: "fetchd/" + version.String(),
	}}, l)
}
