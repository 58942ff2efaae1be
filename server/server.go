package server

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/reflection"
	"fetchd/internal/rejections"
	"fetchd/internal/tlswatch"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/web"
	"fetchd/server/internal/wire"
	"fetchd/server/observe"
	"fetchd/stores"
)

// Server serves fetchd.v1.FetchService over gRPC and HTTP, with gRPC health and reflection. Its
// methods are safe for concurrent use.
type Server struct {
	grpc                *grpc.Server
	web                 *http.Server
	health              *health.Server
	grpcConns, webConns door.Limits
	listening           atomic.Pointer[door.Listener] // of gRPC
	listeningWeb        atomic.Pointer[door.Listener]
	service             *service
	drain               context.CancelFunc // starts the drain: ends the waits between attempts
	end                 context.CancelFunc // ends the streams of FetchMany once their tasks are answered
	watch               context.CancelFunc // ends the health watches
	handshakes          *tlswatch.Handshakes
}

// New returns a server that does not serve yet. An error names the invalid field of cfg.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	memory := budget.New(cmp.Or(cfg.MemoryBudget, int64(defaultMemoryBudget)))
	draining, drain := context.WithCancel(context.Background())
	client, err := cfg.client(memory, draining)
	if err != nil {
		drain()
		return nil, err
	}
	requests, slots := cfg.Limits.split(memory.Limit())
	common := &calls.Shared{
		Budget: memory, Fetches: admission.New(memory, slots, "TOO_MANY_FETCHES", "fetches", cfg.Observe.Refused),
		Callers: admission.NewCallers(cfg.Authenticate, wire.HangUp), Draining: draining, Stall: cmp.Or(cfg.Stall, defaultStall),
		Logger: cfg.Logger, Rejected: rejections.New(cfg.Logger),
	}
	ending, end := context.WithCancel(context.Background())
	watching, watch := context.WithCancel(context.Background())
	s := &Server{drain: drain, end: end, watch: watch, handshakes: cfg.Handshakes, health: health.NewServer(), webConns: cfg.connectionLimits(memory.Limit()),
		service: &service{Shared: common, client: client, heartbeat: cmp.Or(cfg.Heartbeat, defaultHeartbeat), observe: cfg.Observe, ending: ending}}
	s.grpcConns = s.webConns
	s.grpcConns.StrangerBytes = door.StrangerBytes
	s.service.limits.Store(requests)
	s.service.providers.Store(&cfg.AuthProviders)
	s.service.stores.Store(cmp.Or(cfg.Stores, new(stores.Set)))
	s.web = web.New(&web.Config{Shared: common, Fetch: s.service.fetch, FetchUnary: s.service.fetchUnary, Metrics: cfg.Observe.Handler(),
		Console: cfg.Console, Hosts: cfg.Hosts, TLS: cfg.TLS, Handshakes: cfg.Handshakes, Descriptor: descriptor})
	g := newGate(common, cfg.Observe.Refused)
	s.grpc = grpc.NewServer(g.options(&cfg)...)
	s.grpc.RegisterService(g.description(), s.service)
	probes := &healthService{states: s.health, calls: admission.NewPublicCalls(memory.Limit(), wire.StreamWindow, cfg.Authenticate != nil, cfg.Observe.Refused), watching: watching}
	s.grpc.RegisterService(probes.desc(), probes)
	s.health.SetServingStatus(pb.FetchService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	if err := reflection.Register(s.grpc, descriptor); err != nil {
		return nil, err
	}
	cfg.Observe.Serving(s.grpc, s.service.gauges())
	return s, nil
}

// Serve serves gRPC on l until [Server.Shutdown], and closes l. It returns nil after a shutdown.
func (s *Server) Serve(l net.Listener) error {
	bounded := door.Listen(l, s.grpcConns)
	s.listening.Store(bounded)
	if err := s.grpc.Serve(wire.Listener{Listener: bounded}); !errors.Is(err, grpc.ErrServerStopped) { // it is ErrServerStopped if Shutdown was called before Serve
		return err
	}
	return nil
}

// ServeWeb serves the HTTP API on l until [Server.Shutdown], and closes l. It returns nil after a
// shutdown.
func (s *Server) ServeWeb(l net.Listener) error {
	bounded := door.Listen(l, s.webConns)
	s.listeningWeb.Store(bounded)
	serve := s.web.Serve
	if s.web.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.web.ServeTLS(s.handshakes.Listener(l), "", "") }
	}
	if err := serve(wire.Listener{Listener: bounded}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// SetOrigins replaces the TLS settings of origins ([fetch.Client.SetOrigins]) and
// [Config].AuthProviders. Fetches in flight keep their provider. After an error nothing has
// changed.
func (s *Server) SetOrigins(origins map[string]fetch.OriginTLS, providers map[string]AuthProvider) error {
	if err := s.service.client.SetOrigins(origins); err != nil {
		return err
	}
	s.service.providers.Store(&providers)
	return nil
}

// SetStores replaces [Config].Stores. Fetches in flight keep their store.
func (s *Server) SetStores(known *stores.Set) { s.service.stores.Store(known) }

// SetLimits changes the limits of fetches that start from now on. An error names the invalid
// limit, and then no limit is changed.
func (s *Server) SetLimits(l Limits) error {
	if err := l.check(); err != nil {
		return err
	}
	requests, slots := l.split(s.service.Budget.Limit())
	s.service.limits.Store(requests)
	s.service.Fetches.Set(slots)
	return nil
}

// Reauthenticate asks the [Authenticator] again for each call in flight, and cancels the
// calls whose caller it no longer names as before. They end with UNAUTHENTICATED, a
// FetchMany stream after the outcomes of its tasks. After that it closes the connection
// if only a client certificate named the caller. It returns the number of cancelled
// calls.
func (s *Server) Reauthenticate() int { return s.service.Callers.Again() }

// gauges returns the numbers that the metrics show.
func (s *service) gauges() observe.Gauges {
	return observe.Gauges{Fetches: s.Fetches.Load, Callers: s.Fetches.Loads, Memory: s.memory,
		Draining: func() bool { return s.Draining.Err() != nil }, Connections: s.client.Connections,
		Stores: s.storeStats, Archives: s.archiveStats}
}

// storeStats returns the numbers of each store, for the metrics.
func (s *service) storeStats() iter.Seq2[string, observe.StoreStats] {
	return func(yield func(string, observe.StoreStats) bool) {
		for store := range s.stores.Load().All() {
			if !yield(store.Name(), observe.StoreStats(store.Stats())) {
				return
			}
		}
	}
}

// archiveStats returns the numbers of each store for records, for the metrics.
func (s *service) archiveStats() iter.Seq2[string, observe.ArchiveStats] {
	return func(yield func(string, observe.ArchiveStats) bool) {
		for a := range s.stores.Load().Archives() {
			if !yield(a.Name(), observe.ArchiveStats(a.Stats())) {
				return
			}
		}
	}
}

// memory returns the usage and the size of the memory budget.
func (s *service) memory() (byKind map[string]int64, limit int64) {
	byKind = make(map[string]int64)
	s.Budget.Usage().Each(func(k budget.Kind, n int64) { byKind[k.String()] = n })
	return byKind, s.Budget.Limit()
}
