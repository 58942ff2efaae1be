package main

import (
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/dial"
	"fetchd/internal/version"
	"fetchd/server"
	"fetchd/server/embed"
	"fetchd/stores"
)

// embeddedMaximum is the time limit of a fetch of the service inside. It is long because the
// user can interrupt the program.
const embeddedMaximum = 24 * time.Hour

// connection has the flags of every command that calls a service.
type connection struct {
	Server string `variable:"FETCHD_SERVER" placeholder:"HOST:PORT" group:"Service:" help:"Use the fetchd at this address instead of the service inside fetchctl ($$FETCHD_SERVER). The connection is plaintext unless a TLS flag is given."`
	dial.Flags
}

// service is a connection to a fetchd. The caller closes it.
type service struct {
	pb.FetchServiceClient
	close func()
}

// connect connects to the service that the flags name. It does not wait for the service: an
// error means that the flags are not usable. The service inside has the given stores.
func (c connection) connect(bodies *stores.Set, more ...grpc.DialOption) (*service, error) {
	if c.Server == "" {
		return startInside(insideConfig(bodies), nil, more...)
	}
	return dialTo("--server", c.Server, c.Flags, more...)
}

// insideConfig is the configuration of the service inside.
func insideConfig(bodies *stores.Set) server.Config {
	return server.Config{
		Fetch:  fetch.Config{Egress: fetch.Egress{Unrestricted: true}, UserAgent: "fetchd/" + version.String()},
		Limits: server.Limits{MaxTotalTimeout: embeddedMaximum},
		Stores: bodies,
	}
}

// startInside runs a service inside this process, on l or in memory.
func startInside(cfg server.Config, l net.Listener, opts ...grpc.DialOption) (*service, error) {
	conn, stop, err := embed.Start(cfg, l, opts...)
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	return &service{pb.NewFetchServiceClient(conn), stop}, nil
}

// dialTo connects to a service. flag is the one that names the target.
func dialTo(flag, target string, flags dial.Flags, more ...grpc.DialOption) (*service, error) {
	opts, err := flags.Options()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, append(opts, more...)...)
	if err != nil {
		return nil, cli.UsageError(flag, fmt.Sprintf("%v", err))
	}
	return &service{pb.NewFetchServiceClient(conn), func() { _ = conn.Close() }}, nil
}
