package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// Defaults of spec §9 and §12.
const (
	defaultMaxTotal    = 15 * time.Minute
	defaultMaxBody     = 1 << 40
	defaultHeartbeat   = 10 * time.Second
	defaultStall       = 30 * time.Second
	defaultFetches     = 10_000
	defaultConns       = 4096
	defaultCallerConns = 512
)

// Config says how a [Server] works. The zero value is a safe service.
type Config struct {
	// Fetch is how the origins are reached. Its MaxTotalTimeout, Logger and
	// Shutdown are the server's to set.
	Fetch fetch.Config
	// MaxTotalTimeout is the longest a fetch may take; zero means 15 min.
	MaxTotalTimeout time.Duration
	// MaxBodyBytes is the largest max_size_bytes; zero means 1 TiB.
	MaxBodyBytes int64
	// Heartbeat is the silence after which a stream says that it lives; zero
	// means 10 s.
	Heartbeat time.Duration
	// Stall is how long a caller may read nothing before its call ends as ABORTED
	// (spec B7); zero means 30 s.
	Stall time.Duration
	// MaxFetches may be under way at once; zero means 10,000. MaxFetchesPerCaller
	// of them for one address; zero means no limit of its own. What is over is
	// refused with RESOURCE_EXHAUSTED before its first event.
	MaxFetches, MaxFetchesPerCaller int
	// MaxConnections may be open at once; zero means 4,096. Others wait to be
	// accepted. MaxConnectionsPerCaller of them may come from one address (of
	// IPv6: one network of 64 bits); zero means 512. Others are closed.
	MaxConnections, MaxConnectionsPerCaller int
	// Logger takes one line a call and what package fetch writes; nil means none.
	Logger *slog.Logger
}

// Server is a gRPC server of fetchd.v1.FetchService, with health and
// reflection. It is safe for concurrent use.
type Server struct {
	grpc               *grpc.Server
	health             *health.Server
	conns, callerConns int
	listening          atomic.Pointer[listener]
	client             *fetch.Client
	drain              context.CancelFunc // ends the waits between attempts
	watch              context.CancelFunc // ends the streams that would stay open for ever
}

// watchGrace is how long a health watch may still tell that the server stops.
const watchGrace = time.Second

// New returns a server that serves nothing yet. The error says which part of
// the configuration is not usable.
func New(cfg Config) (*Server, error) {
	if cfg.MaxTotalTimeout < 0 || cfg.MaxBodyBytes < 0 || cfg.Heartbeat < 0 || cfg.Stall < 0 {
		return nil, errors.New("server: MaxTotalTimeout, MaxBodyBytes, Heartbeat and Stall must not be negative")
	}
	if cfg.MaxFetches < 0 || cfg.MaxFetchesPerCaller < 0 || cfg.MaxConnections < 0 || cfg.MaxConnectionsPerCaller < 0 {
		return nil, errors.New("server: MaxFetches, MaxFetchesPerCaller, MaxConnections and MaxConnectionsPerCaller must not be negative")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	draining, drain := context.WithCancel(context.Background())
	cfg.Fetch.Logger, cfg.Fetch.Shutdown = cfg.Logger, draining
	cfg.Fetch.MaxTotalTimeout = orDefault(cfg.MaxTotalTimeout, defaultMaxTotal)
	client, err := fetch.New(cfg.Fetch)
	if err != nil {
		drain()
		return nil, err
	}
	watching, watch := context.WithCancel(context.Background())
	s := &Server{client: client, drain: drain, watch: watch, health: health.NewServer(),
		conns: orDefault(cfg.MaxConnections, defaultConns), callerConns: orDefault(cfg.MaxConnectionsPerCaller, defaultCallerConns)}
	s.grpc = grpc.NewServer(options(cfg.Logger, s.hangUp)...)
	pb.RegisterFetchServiceServer(s.grpc, &service{
		client:    client,
		limits:    limits{cfg.Fetch.MaxTotalTimeout, orDefault(cfg.MaxBodyBytes, int64(defaultMaxBody))},
		heartbeat: orDefault(cfg.Heartbeat, defaultHeartbeat),
		stall:     orDefault(cfg.Stall, defaultStall),
		admission: admission{total: orDefault(cfg.MaxFetches, defaultFetches), perCaller: cfg.MaxFetchesPerCaller,
			callers: make(map[string]int)},
	})
	healthpb.RegisterHealthServer(s.grpc, endingHealth{s.health, watching})
	s.health.SetServingStatus(pb.FetchService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	return s, registerReflection(s.grpc)
}

// Serve answers on l until [Server.Shutdown], and closes it. It returns nil
// after a shutdown.
func (s *Server) Serve(l net.Listener) error {
	bounded := newListener(l, s.conns, s.callerConns)
	s.listening.Store(bounded)
	return s.grpc.Serve(bounded)
}

// hangUp closes the connection that a call came on.
func (s *Server) hangUp(ctx context.Context) {
	if l := s.listening.Load(); l != nil {
		l.hangUp(ctx)
	}
}

// Shutdown stops: health turns NOT_SERVING, new calls get UNAVAILABLE, fetches
// that wait end as SHUTDOWN, and the others may finish until ctx is done; those
// that have not by then are cut off, and the error is that of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.drain()
	defer s.client.Close()
	defer s.watch()
	defer time.AfterFunc(watchGrace, s.watch).Stop()
	done := make(chan struct{})
	go func() { s.grpc.GracefulStop(); close(done) }() // ends with Stop at the latest
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return ctx.Err()
	}
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
