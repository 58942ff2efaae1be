package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"

	"fetchd/cmd/fetchctl/inside"
	"fetchd/conformance/judge"
	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/internal/version"
	"fetchd/server"
	"fetchd/stores"
)

// serveVenue runs a service on loopback. Its egress policy allows the listeners of the venue
// and nothing else.
func serveVenue(v *judge.Venue, names []string) (_ *inside.Service, err error) {
	ports, err := v.Ports(names)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fetchctl-conformance-")
	if err != nil {
		return nil, cli.OutputError(err)
	}
	bodies, err := openStores(dir)
	if err != nil {
		_ = os.RemoveAll(dir) // a temporary folder
		return nil, cli.OutputError(err)
	}
	remove := func() { _, _ = bodies.Close(context.Background()), os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			remove()
		}
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for the service: %w", err)
	}
	svc, err := inside.Start(server.Config{Fetch: fetch.Config{
		RootCAs:   v.CA(),
		Egress:    fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports},
		UserAgent: "fetchd/" + version.String(),
	}, Stores: bodies, AuthProviders: map[string]server.AuthProvider{"conformance-stalled": {Provider: stalled{}}}}, l)
	if err != nil {
		return nil, err
	}
	stop := svc.Close
	svc.Close = func() { stop(); remove() }
	return svc, nil
}

// openStores opens the store that scenarios name.
func openStores(dir string) (*stores.Set, error) {
	file, err := judge.WriteStores(dir)
	if err != nil {
		return nil, err
	}
	return stores.ReadFile(file, new(stores.Set))
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
