// Package inside runs the service within fetchctl: one for each proxy, with errors that name resolvers and
// proxies.
package inside

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
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

// Route runs a service without a proxy, and one for each proxy when it is used.
func Route(config server.Config, proxies Proxies, more ...grpc.DialOption) (*Service, error) {
	r := &router{proxies: proxies, started: make(map[string]*Service), start: func(via *url.URL) (*Service, error) {
		config := config
		config.Fetch.Proxy = via
		return startExplained(config, more...)
	}}
	direct, err := r.service(nil)
	if err != nil {
		return nil, err
	}
	r.FetchServiceClient = direct
	return &Service{r, r.close}, nil
}

// startExplained runs a service that names resolvers and proxies in errors.
func startExplained(config server.Config, more ...grpc.DialOption) (*Service, error) {
	d := &details{errors: make(map[attemptKey]string)}
	if config.Fetch.Proxy != nil {
		d.proxy = config.Fetch.Proxy.Host
	}
	config.Logger = slog.New(d)
	return Start(config, nil, append(more[:len(more):len(more)], grpc.WithStreamInterceptor(d.intercept))...)
}

// router sends a fetch to the service inside that uses the proxy of the URL. That proxy is used for
// redirects too.
type router struct {
	pb.FetchServiceClient // the one without a proxy
	proxies               Proxies
	start                 func(via *url.URL) (*Service, error)

	mu      sync.Mutex
	started map[string]*Service // by proxy
}

// service returns the service that uses a proxy, which may be nil.
func (r *router) service(via *url.URL) (*Service, error) {
	key := ""
	if via != nil {
		key = via.String()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if svc := r.started[key]; svc != nil {
		return svc, nil
	}
	svc, err := r.start(via)
	if err == nil {
		r.started[key] = svc
	}
	return svc, err
}

// close ends all services.
func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, svc := range r.started {
		svc.Close()
	}
}

// Fetch implements pb.FetchServiceClient.
func (r *router) Fetch(ctx context.Context, req *pb.FetchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[pb.FetchResponse], error) {
	used, ok := r.proxies.of(req.GetUrl())
	if !ok {
		return r.FetchServiceClient.Fetch(ctx, req, opts...)
	}
	svc, err := r.service(used.url)
	if err != nil {
		return nil, cli.UsageError(used.name, fmt.Sprint(err))
	}
	return svc.Fetch(ctx, req, opts...)
}
