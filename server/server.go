package server

import (
	"cmp"
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
	"fetchd/internal/door"
	"fetchd/internal/reflection"
	"fetchd/internal/rejections"
	"fetchd/internal/tlswatch"
	"fetchd/server/observe"
	"fetchd/stores"
)

const (
	defaultHeartbeat      = 10 * time.Second
	defaultStall          = 30 * time.Second
	maxDefaultConns       = 4096 // by default
	maxDefaultCallerConns = 512  // by default
)

// unbounded is the time limit of package fetch. The server clamps each request by its own
// limits, which can change.
const unbounded = 365 * 24 * time.Hour

// Config configures a [Server]. The zero value is safe: it serves everyone in plaintext, but
// fetches only from public addresses on ports 80 and 443.
type Config struct {
	// Fetch configures how origins are reached. The server sets its MaxTotalTimeout, Logger
	// and Shutdown.
	Fetch fetch.Config
	// Limits limits what callers may request.
	Limits
	// Authenticate returns the names of callers. Nil admits every caller and identifies it
	// by its address.
	Authenticate Authenticator
	// AuthProviders are the providers of credentials that requests may name. Nil means none.
	// [Server.SetOrigins] replaces them.
	AuthProviders map[string]AuthProvider
	// Stores are the stores for bodies that requests may name (spec B8). Nil means none.
	// [Server.SetStores] replaces them. The server does not close them.
	Stores *stores.Set
	// TLS serves both ports with TLS. Nil means plaintext.
	TLS *tls.Config
	// Handshakes counts the TLS handshakes that fail. Nil counts none.
	Handshakes *tlswatch.Handshakes
	// Console serves GET / and GET /console/ of the HTTP API. Requests with a Host that does
	// not belong to the service do not reach it. Nil means no console.
	Console http.Handler
	// Hosts are names of the service, without ports, that a browser may use as Host. Names
	// are checked only on loopback and in plaintext, to prevent DNS rebinding; localhost and
	// addresses are always allowed. Elsewhere the certificate protects the service.
	Hosts []string
	// Heartbeat is the time without an event after which a stream sends a heartbeat. Zero
	// means 10 seconds.
	Heartbeat time.Duration
	// Stall is how long a caller may read nothing before its call ends with ABORTED (spec
	// B7). Zero means 30 seconds.
	Stall time.Duration
	// MemoryBudget limits the memory for callers, in bytes: requests, fetches in flight with
	// all they hold, and unread answers. A call over the budget is refused with
	// RESOURCE_EXHAUSTED, and a fetch over it ends with OUT_OF_MEMORY. One caller may use
	// three quarters. Zero means 512 MiB. Set it to less than half of the available memory,
	// because Go may hold as much garbage again.
	MemoryBudget int64
	// MaxConnections limits the open connections of each port. Zero means one for each
	// 192 KiB of the memory budget, but no more than 4,096. Connections over the limit wait to
	// be accepted. MaxConnectionsPerCaller limits those from one address (for IPv6: one
	// network of 64 bits). Zero means half of MaxConnections, but no more than 512.
	// Over that limit, one without a call is closed, or else the new one. With an Authenticator,
	// connections without an authenticated call get a quarter of MaxConnections, which
	// addresses share equally: see package internal/door.
	MaxConnections, MaxConnectionsPerCaller int
	// Observe records metrics and traces of calls and fetches, and serves /metrics. It
	// replaces Fetch.Observer. The server does not shut it down. Nil records nothing.
	Observe *observe.Observer
	// Logger receives one line for each call, and the lines of package fetch. Nil discards
	// them.
	Logger *slog.Logger
}

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
	budget              *budget.Budget
	receiving           receiving
	client              *fetch.Client
	drain               context.CancelFunc // starts the drain: ends the waits between attempts
	end                 context.CancelFunc // ends the streams of FetchMany once their tasks are answered
	watch               context.CancelFunc // ends the health watches
	handshakes          *tlswatch.Handshakes
}

// New returns a server that does not serve yet. An error names the invalid field of cfg.
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
	if cfg.Observe != nil { // a nil *Observer in the interface would not be nil
		cfg.Fetch.Observer = cfg.Observe
	}
	memory := budget.New(cmp.Or(cfg.MemoryBudget, int64(defaultMemoryBudget)))
	cfg.Fetch.Memory = memory
	client, err := fetch.New(cfg.Fetch)
	if err != nil {
		drain()
		return nil, err
	}
	ending, end := context.WithCancel(context.Background())
	watching, watch := context.WithCancel(context.Background())
	cfg.Limits.memory = memory.Limit()
	limits := cfg.Limits.withDefaults()
	s := &Server{client: client, drain: drain, end: end, watch: watch, handshakes: cfg.Handshakes, health: health.NewServer(), budget: memory, webConns: cfg.connectionLimits(memory.Limit()),
		receiving: receiving{budget: memory, refused: cfg.Observe.Refused, callers: make(map[string]int)}}
	s.grpcConns = s.webConns
	s.grpcConns.StrangerBytes = door.StrangerBytes
	s.service = &service{
		client:    client,
		heartbeat: cmp.Or(cfg.Heartbeat, defaultHeartbeat),
		stall:     cmp.Or(cfg.Stall, defaultStall),
		admission: newAdmission(memory, limits, "TOO_MANY_FETCHES", "fetches", cfg.Observe.Refused),
		budget:    memory,
		observe:   cfg.Observe,
		callers:   newAuthentication(cfg.Authenticate),
		draining:  draining,
		ending:    ending,
		logger:    cfg.Logger,
		finished:  &callLog{cfg.Logger, rejections.New(cfg.Logger)},
	}
	s.service.limits.Store(limits)
	s.service.providers.Store(&cfg.AuthProviders)
	s.service.stores.Store(cmp.Or(cfg.Stores, new(stores.Set)))
	s.grpc = grpc.NewServer(s.options(&cfg)...)
	s.web = newWeb(s.service, &cfg, cfg.Observe.Handler())
	s.grpc.RegisterService(s.description(), s.service)
	healthCalls := &healthService{states: s.health, calls: newPublicCalls(maxPublicWith(memory.Limit()), cfg.Authenticate != nil, cfg.Observe.Refused), watching: watching, hangUp: hangUp}
	s.grpc.RegisterService(healthCalls.desc(), healthCalls)
	s.health.SetServingStatus(pb.FetchService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	if err := reflection.Register(s.grpc, descriptor); err != nil {
		return nil, err
	}
	cfg.Observe.Serving(s.grpc, observe.Gauges{Fetches: s.service.admission.load, Callers: s.service.admission.loads, Memory: s.memory,
		Draining: func() bool { return draining.Err() != nil }, Connections: client.Connections, Stores: s.service.storeStats, Archives: s.service.archiveStats})
	return s, nil
}

// memory returns the usage and the size of the memory budget, for the metrics.
func (s *Server) memory() (byKind map[string]int64, limit int64) {
	byKind = make(map[string]int64)
	s.budget.Usage().Each(func(k budget.Kind, n int64) { byKind[k.String()] = n })
	return byKind, s.budget.Limit()
}

// Serve serves gRPC on l until [Server.Shutdown], and closes l. It returns nil after a shutdown.
func (s *Server) Serve(l net.Listener) error {
	bounded := door.Listen(l, s.grpcConns)
	s.listening.Store(bounded)
	if err := s.grpc.Serve(listener{bounded}); !errors.Is(err, grpc.ErrServerStopped) { // it is ErrServerStopped if Shutdown was called before Serve
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
	if err := serve(listener{bounded}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// SetOrigins replaces the TLS settings of origins ([fetch.Client.SetOrigins]) and
// [Config].AuthProviders. Fetches in flight keep their provider. After an error nothing has
// changed.
func (s *Server) SetOrigins(origins map[string]fetch.OriginTLS, providers map[string]AuthProvider) error {
	if err := s.client.SetOrigins(origins); err != nil {
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
	l.memory = s.budget.Limit()
	limits := l.withDefaults()
	s.service.limits.Store(limits)
	s.service.admission.set(limits)
	return nil
}

// connectionBytes is the uncharged memory of a connection: buffers, and on the HTTP port
// the head of a request that is still arriving.
const connectionBytes = 192 << 10

// DefaultMaxConnections returns the default of MaxConnections for a memory budget in bytes. Zero
// means the default budget of [Config].
func DefaultMaxConnections(budget int64) int {
	return int(min(max(cmp.Or(budget, int64(defaultMemoryBudget))/connectionBytes, 64), maxDefaultConns))
}

// connectionLimits returns the limits of a port.
func (c *Config) connectionLimits(memory int64) door.Limits {
	l := door.Limits{Total: cmp.Or(c.MaxConnections, DefaultMaxConnections(memory))}
	l.PerAddress = cmp.Or(c.MaxConnectionsPerCaller, min(max(l.Total/2, 1), maxDefaultCallerConns))
	l.Strangers = l.Total
	if c.Authenticate != nil {
		l.Strangers = max(l.Total/strangerShare, 1)
	}
	return l
}
