package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/observe"
)

const (
	defaultHeartbeat = 10 * time.Second
	defaultStall     = 30 * time.Second
	mostConns        = 4096 // by default
	mostCallerConns  = 512  // by default
)

// unbounded is a time limit for package fetch: the server has clamped every
// request already, by limits that can change.
const unbounded = 365 * 24 * time.Hour

// Config says how a [Server] works. The zero value is a safe service.
type Config struct {
	// Fetch is how the origins are reached. Its MaxTotalTimeout, Logger and
	// Shutdown are the server's to set.
	Fetch fetch.Config
	// Limits bound what callers may ask for.
	Limits
	// Authenticate names callers; nil admits everybody, by address.
	Authenticate Authenticator
	// AuthProviders open origins for the requests that name one; nil means none.
	AuthProviders map[string]AuthProvider
	// TLS is how both ports are served; nil means plaintext.
	TLS *tls.Config
	// Console answers GET / and GET /console/ of the HTTP face, for people; nil
	// means that nothing is there. Requests by a host that is not the service's do
	// not reach it.
	Console http.Handler
	// Hosts are names of the service, without ports. A browser may call the HTTP
	// face by them, besides localhost and addresses, where it is on loopback or in
	// plaintext; elsewhere any name will do, for the certificate tells.
	Hosts []string
	// Heartbeat is the silence after which a stream says that it lives; zero
	// means 10 s.
	Heartbeat time.Duration
	// Stall is how long a caller may read nothing before its call ends as ABORTED
	// (spec B7); zero means 30 s.
	Stall time.Duration
	// MemoryBudget limits the bytes held for callers: fetches in flight with all they
	// hold, requests, and unread answers. A call over it is refused with
	// RESOURCE_EXHAUSTED, and a fetch over it ends as OUT_OF_MEMORY. One caller may use
	// three quarters of it. Zero means 512 MiB. It should be less than half of the
	// available memory, because Go may hold as much garbage again.
	MemoryBudget int64
	// MaxConnections is the number of open connections on a port. Zero means as many as the
	// memory budget has 192 KiB for, 4,096 at most. Further ones wait to be accepted.
	// MaxConnectionsPerCaller of them may come from one address (of IPv6: one network of
	// 64 bits); zero means half of them, 512 at most. Further ones are closed. With an
	// Authenticator, connections without an authenticated call get a quarter of
	// MaxConnections, and the idlest of them is closed to accept another.
	MaxConnections, MaxConnectionsPerCaller int
	// Observe counts calls and fetches, and traces them; nil means that nobody does.
	// It takes the place of Fetch.Observer, answers /metrics, and is not shut down
	// with the server.
	Observe *observe.Observer
	// Logger takes one line a call and what package fetch writes; nil means none.
	Logger *slog.Logger
}

// Server is a gRPC server of fetchd.v1.FetchService, with health and
// reflection. It is safe for concurrent use.
type Server struct {
	grpc                *grpc.Server
	web                 *http.Server
	health              *health.Server
	grpcConns, webConns bounds
	listening           atomic.Pointer[listener] // of gRPC
	listeningWeb        atomic.Pointer[listener]
	service             *service
	budget              *budget.Budget
	receiving           receiving
	client              *fetch.Client
	drain               context.CancelFunc // ends the waits between attempts
	end                 context.CancelFunc // ends the streams of FetchMany once their tasks are answered
	watch               context.CancelFunc // ends the health watches
}

// New returns a server that serves nothing yet. The error says which part of
// the configuration is not usable.
func New(cfg Config) (*Server, error) {
	if cfg.MemoryBudget < 0 {
		return nil, errors.New("server: MemoryBudget must not be negative")
	}
	if cfg.Heartbeat < 0 || cfg.Stall < 0 || cfg.MaxConnections < 0 || cfg.MaxConnectionsPerCaller < 0 {
		return nil, errors.New("server: Heartbeat, Stall, MaxConnections and MaxConnectionsPerCaller must not be negative")
	}
	if err := cfg.Limits.check(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	draining, drain := context.WithCancel(context.Background())
	cfg.Fetch.Logger, cfg.Fetch.Shutdown = cfg.Logger, draining
	cfg.Fetch.MaxTotalTimeout = unbounded
	if cfg.Observe != nil { // a nil one would be an observer to package fetch
		cfg.Fetch.Observer = cfg.Observe
	}
	client, err := fetch.New(cfg.Fetch)
	if err != nil {
		drain()
		return nil, err
	}
	ending, end := context.WithCancel(context.Background())
	watching, watch := context.WithCancel(context.Background())
	memory := budget.New(orDefault(cfg.MemoryBudget, int64(defaultMemoryBudget)))
	cfg.Limits.memory = memory.Limit()
	limits := cfg.Limits.whole()
	s := &Server{client: client, drain: drain, end: end, watch: watch, health: health.NewServer(), budget: memory, webConns: cfg.bounds(memory.Limit()),
		receiving: receiving{budget: memory, refused: cfg.Observe.Refused, callers: make(map[string]int)}}
	s.grpcConns = s.webConns
	s.grpcConns.strangerBytes = strangerBytes
	s.service = &service{
		client:    client,
		heartbeat: orDefault(cfg.Heartbeat, defaultHeartbeat),
		stall:     orDefault(cfg.Stall, defaultStall),
		admission: newAdmission(memory, limits, "TOO_MANY_FETCHES", "fetches", cfg.Observe.Refused),
		budget:    memory,
		observe:   cfg.Observe,
		providers: cfg.AuthProviders,
		callers:   newAuthentication(cfg.Authenticate),
		draining:  draining,
		ending:    ending,
		logger:    cfg.Logger,
	}
	s.service.limits.Store(limits)
	s.grpc = grpc.NewServer(s.options(&cfg)...)
	s.web = newWeb(s.service, &cfg, cfg.Observe.Handler())
	s.grpc.RegisterService(s.description(), s.service)
	healthCalls := &healthService{states: s.health, calls: newPublicCalls(maxPublicWith(memory.Limit()), cfg.Observe.Refused), watching: watching, hangUp: hangUp}
	s.grpc.RegisterService(healthCalls.desc(), healthCalls)
	s.health.SetServingStatus(pb.FetchService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	if err := registerReflection(s.grpc); err != nil {
		return nil, err
	}
	cfg.Observe.Serving(s.grpc, observe.Gauges{Fetches: s.service.admission.load, Memory: s.memory,
		Draining: func() bool { return draining.Err() != nil }})
	return s, nil
}

// memory returns the usage and the size of the budget for a scrape.
func (s *Server) memory() (byKind map[string]int64, limit int64) {
	byKind = make(map[string]int64)
	s.budget.Usage().Each(func(k budget.Kind, n int64) { byKind[k.String()] = n })
	return byKind, s.budget.Limit()
}

// Serve answers on l until [Server.Shutdown], and closes it. It returns nil
// after a shutdown.
func (s *Server) Serve(l net.Listener) error {
	bounded := newListener(l, s.grpcConns)
	s.listening.Store(bounded)
	if err := s.grpc.Serve(bounded); !errors.Is(err, grpc.ErrServerStopped) { // which it is where the shutdown came first
		return err
	}
	return nil
}

// ServeWeb answers the HTTP face on l until [Server.Shutdown], and closes it. It
// returns nil after a shutdown.
func (s *Server) ServeWeb(l net.Listener) error {
	bounded := newListener(l, s.webConns)
	s.listeningWeb.Store(bounded)
	serve := s.web.Serve
	if s.web.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.web.ServeTLS(l, "", "") }
	}
	if err := serve(bounded); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// SetLimits changes the limits of what begins from now on. The error says which
// is not usable; then none is changed.
func (s *Server) SetLimits(l Limits) error {
	if err := l.check(); err != nil {
		return err
	}
	l.memory = s.budget.Limit()
	limits := l.whole()
	s.service.limits.Store(limits)
	s.service.admission.set(limits)
	return nil
}

// connectionBytes is the uncharged memory of a connection: buffers, and on the HTTP port
// the head of a request that is still arriving.
const connectionBytes = 192 << 10

// DefaultMaxConnections returns the default of MaxConnections with a memory budget of
// that many bytes; zero means the default budget of [Config].
func DefaultMaxConnections(budget int64) int {
	return int(min(max(orDefault(budget, int64(defaultMemoryBudget))/connectionBytes, 64), mostConns))
}

// bounds returns the connection limits of a port.
func (c *Config) bounds(memory int64) bounds {
	b := bounds{total: orDefault(c.MaxConnections, DefaultMaxConnections(memory))}
	b.perCaller = orDefault(c.MaxConnectionsPerCaller, min(max(b.total/2, 1), mostCallerConns))
	if c.Authenticate != nil {
		b.strangers = max(b.total/strangerShare, 1)
	}
	return b
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
