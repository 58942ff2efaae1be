package api

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"fetchd/frontier/store"
	"fetchd/internal/door"
	"fetchd/internal/reflection"
	"fetchd/internal/rejections"
	"fetchd/internal/tlswatch"
)

// descriptor is the contract as .ci/generated compiles it, with the comments, which the generated code
// leaves out.
//
//go:embed descriptor.binpb
var descriptor []byte

// Config configures a [Server].
type Config struct {
	// Store is the frontier. The server does not close it.
	Store store.Store
	// UserAgent selects the rules of robots.txt for Why.
	UserAgent string
	// Authenticate returns the name of the caller with a bearer token, which may be empty, and the
	// state of a TLS connection, which may be nil. Nil admits every caller, and identifies it by its
	// address.
	Authenticate func(token string, state *tls.ConnectionState) (string, error)
	// TLS serves both ports with TLS. Nil means plaintext.
	TLS *tls.Config
	// Handshakes counts the TLS handshakes that fail. Nil counts none.
	Handshakes *tlswatch.Handshakes
	// Hosts are names of the service, without ports, that browsers may use. They are checked on
	// loopback and in plaintext, to prevent DNS rebinding.
	Hosts []string
	// Page serves GET / and GET /console/ of the HTTP port. Nil means no page.
	Page http.Handler
	// MaxConnections limits the open connections of each port. Zero means [DefaultMaxConnections].
	// At most half of them may be without an authenticated call, and a quarter of one address (for
	// IPv6: one network of 64 bits). Connections over the limit wait to be accepted, or replace one
	// without an authenticated call.
	MaxConnections int
	// MaxCalls limits the calls in flight; one caller may have half of them. Each may hold 72 KiB before its
	// request is read. Zero means 2,048.
	MaxCalls int
	// Stall is how long a caller may read nothing before its call ends. Zero means 30 seconds.
	Stall time.Duration
	// Metrics gets the metrics of the server, and serves /metrics. Nil means no metrics.
	Metrics *prometheus.Registry
	// Logger receives one line for each call that fails. Nil discards them.
	Logger *slog.Logger
}

// Server serves a frontier. Its methods are safe for concurrent use.
type Server struct {
	service  *service
	gate     *gate
	probes   *door.Probes
	methods  map[string]bool // that are served, by their full names
	config   Config
	logger   *slog.Logger
	grpc     *grpc.Server
	web      *http.Server
	webPort  atomic.Pointer[string]
	health   *health.Server
	metrics  *Metrics
	rejected *rejections.Log
	stop     context.CancelFunc // ends waits, streams and the loops
	loops    sync.WaitGroup
}

const (
	// DefaultMaxConnections is the maximum of open connections of each port, if Config names none.
	DefaultMaxConnections = 2048
	// strangerShare and addressShare are the divisors of the connections that give the maximum of
	// those without an authenticated call, and of one address.
	strangerShare, addressShare = 2, 4
)

// connectionLimits returns the limits of a port.
func (c *Config) connectionLimits() door.Limits {
	l := door.Limits{Total: c.MaxConnections}
	l.PerAddress, l.Strangers = max(l.Total/addressShare, 1), l.Total
	if c.Authenticate != nil {
		l.Strangers = max(l.Total/strangerShare, 1)
	}
	return l
}

const (
	// callBytes is what a call may hold before its request is read: the window of its stream, and gRPC's state.
	callBytes = 72 << 10
	// probesOfCalls is the divisor of what calls may hold that gives what health checks may hold.
	probesOfCalls = 4
)

// CallsFor returns MaxCalls for a program that may hold that many bytes for its callers.
func CallsFor(bytes int64) int { return int(min(max(bytes/2/callBytes, 16), maxCalls)) }

// reapEvery is the time between two looks for expired leases and for pages to fetch again.
const reapEvery = 5 * time.Second

// New returns a server that does not serve yet. Call [Server.Shutdown] to end it.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Stall, cfg.MaxConnections, cfg.MaxCalls = cmp.Or(cfg.Stall, 30*time.Second), cmp.Or(cfg.MaxConnections, DefaultMaxConnections), cmp.Or(cfg.MaxCalls, maxCalls)
	stopping, stop := context.WithCancel(context.Background())
	s := &Server{config: cfg, logger: cfg.Logger, rejected: rejections.New(cfg.Logger), gate: newGate(cfg.MaxCalls), probes: door.NewProbes(int64(cfg.MaxCalls)*callBytes/probesOfCalls, callBytes, cfg.Authenticate != nil), health: health.NewServer(), stop: stop,
		service: &service{store: cfg.Store, userAgent: cfg.UserAgent, logger: cfg.Logger, stopping: stopping,
			polls: map[bool]chan struct{}{false: make(chan struct{}, 1), true: make(chan struct{}, 1)}, stats: make(chan cachedStats, 1)}}
	s.service.stats <- cachedStats{}
	if cfg.Metrics != nil {
		s.metrics = NewMetrics(cfg.Metrics)
	}
	s.grpc = grpc.NewServer(s.options()...)
	s.grpc.RegisterService(s.description(), s)
	s.grpc.RegisterService(s.healthDescription(), s)
	if err := reflection.Register(s.grpc, descriptor); err != nil {
		stop()
		return nil, err
	}
	s.methods = door.Methods(s.grpc)
	s.web = s.newWeb()
	s.loops.Go(func() { s.reap(stopping) })
	return s, nil
}

// reap takes back expired leases, and makes pages pending that are due to be fetched again. Workers do
// the same, but there may be none.
func (s *Server) reap(ctx context.Context) {
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for {
		if err := s.reapOnce(ctx); err == nil {
			s.service.outage.Worked(ctx, s.logger)
		} else if ctx.Err() == nil {
			s.service.failed(ctx, "take back expired leases", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) reapOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	_, err := s.config.Store.Reap(ctx)
	if err == nil {
		_, err = s.config.Store.Recrawl(ctx)
	}
	return err
}

// CannotCount logs that the URLs of the store could not be counted. An outage of the store has one line for
// this and everything else that fails.
func (s *Server) CannotCount(err error) {
	s.service.failed(context.Background(), "count the URLs", err)
}

// Serve serves gRPC on l until [Server.Shutdown], and closes l. It returns nil after a shutdown.
func (s *Server) Serve(l net.Listener) error {
	limits := s.config.connectionLimits()
	limits.StrangerBytes = door.StrangerBytes
	bounded := door.Listen(l, limits)
	bounded.AnswerHTTP(s.otherPort)
	bounded.Dropped = s.dropped
	if err := s.grpc.Serve(bounded); !errors.Is(err, grpc.ErrServerStopped) { // it is ErrServerStopped if Shutdown was called before Serve
		return err
	}
	return nil
}

// dropped counts and logs a connection that is closed for what it did.
func (s *Server) dropped(caller string, cause door.Cause) {
	s.metrics.dropped(caller, cause)
	s.rejected.Add(rejections.Call{Caller: caller, Reason: string(cause), Error: "the connection was closed: " + cause.Text()})
}

// otherPort is the answer to HTTP/1 on the gRPC port.
func (s *Server) otherPort() string {
	if port := s.webPort.Load(); port != nil {
		return "This is the gRPC port of frontier serve. The HTTP API is on port " + *port + "."
	}
	return "This is the gRPC port of frontier serve. --http-addr sets the port of the HTTP API." // off, or not served yet
}

// ServeWeb serves the HTTP API on l until [Server.Shutdown], and closes l. It returns nil after a
// shutdown.
func (s *Server) ServeWeb(l net.Listener) error {
	port := door.Port(l.Addr())
	s.webPort.Store(&port)
	return s.config.Handshakes.Serve(s.web, door.Listen(l, s.config.connectionLimits()))
}

// SetCallers sets the names of the callers that have their own label value in the metric by caller. All
// others count as "other", and so do names beyond the first 256 in alphabetical order.
func (s *Server) SetCallers(names []string) { s.metrics.setCallers(names) }

// Shutdown stops the server: health turns NOT_SERVING, claims stop waiting, streams of Watch end, and
// other calls may finish until ctx ends. What its callers have claimed stays claimed.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.rejected.Flush()
	s.health.Shutdown()
	s.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.grpc.GracefulStop()
	}()
	err := s.web.Shutdown(ctx)
	if err != nil {
		_ = s.web.Close() // the calls did not end in time
	}
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
		s.grpc.Stop()
		<-ended
	}
	s.loops.Wait()
	return err
}
