package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"fetchd/conformance/judge"
	"fetchd/fetch"
	"fetchd/internal/version"
	"fetchd/server"
)

// serveVenue runs a service on loopback. Its egress policy allows the listeners of the venue
// and nothing else.
func serveVenue(v *judge.Venue, names []string) (*service, error) {
	ports, err := v.Ports(names)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for the service: %w", err)
	}
	return startInside(server.Config{Fetch: fetch.Config{
		RootCAs:   v.CA(),
		Egress:    fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports},
		UserAgent: "fetchd/" + version.String(),
	}, AuthProviders: map[string]server.AuthProvider{"conformance-stalled": {Provider: stalled{}}}}, l)
}

// stalled is an auth provider whose refresh only ends with its context.
type stalled struct{}

func (stalled) Covers(*url.URL) bool { return true }

func (stalled) Field(context.Context) (name, value string, err error) {
	return "Authorization", "Bearer stale", nil
}

func (stalled) Refresh(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
