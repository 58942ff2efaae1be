// Package service has what the commands of fetchctl share: the connection to a fetchd, or the service inside the process,
// with errors that name resolvers and proxies; policies of a request; the message of a call that failed.
package service

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/version"
	"fetchd/server"
	"fetchd/server/embed"
	"fetchd/stores"
)

// maximum is the time limit of a fetch. It is long because the user can interrupt the program.
const maximum = 24 * time.Hour

// Config is the configuration of the service, with stores.
func Config(bodies *stores.Set) server.Config {
	return server.Config{
		Fetch:  fetch.Config{Egress: fetch.Egress{Unrestricted: true}, UserAgent: "fetchd/" + version.String()},
		Limits: server.Limits{MaxTotalTimeout: maximum},
		Stores: bodies,
	}
}

// Service is a connection to a fetchd, in this process or elsewhere. The caller closes it.
type Service struct {
	pb.FetchServiceClient
	Close func()
}

// Start runs a service inside this process, on l or in memory.
func Start(cfg server.Config, l net.Listener, opts ...grpc.DialOption) (*Service, error) {
	conn, stop, err := embed.Start(cfg, l, opts...)
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	return &Service{pb.NewFetchServiceClient(conn), stop}, nil
}

// route runs a service that uses the proxies, and names resolvers and proxies in errors.
func route(config server.Config, proxies proxies, more ...grpc.DialOption) (*Service, error) {
	d := &details{proxies: proxies, errors: make(map[attemptKey]string)}
	if len(proxies.byScheme) > 0 {
		config.Fetch.ProxyFor = proxies.forHop
	}
	config.Logger = slog.New(d)
	return Start(config, nil, append(more[:len(more):len(more)], grpc.WithStreamInterceptor(d.intercept))...)
}
