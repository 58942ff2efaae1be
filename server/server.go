// Package server answers fetchd.v1 over gRPC.
//
// It validates each request (spec §12), converts it for package fetch, runs the fetch, and
// converts its events and its outcome back. Package fetch decides everything about the fetch
// itself. A gRPC status other than OK reports a problem of the request or of this service.
// What happened at the origin is data in the outcome. A call returns OK if and only if an
// outcome was sent.
//
// Call [New], then [Server.Serve] and [Server.ServeWeb], then [Server.Shutdown]. To test code
// that calls fetchd, see package fetchdtest.
package server

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"iter"
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
	"fetchd/internal/policies"
	"fetchd/internal/reflection"
	"fetchd/internal/rejections"
	"fetchd/internal/tlswatch"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/web"
	"fetchd/server/internal/wire"
	"fetchd/server/observe"
	"fetchd/stores"
	"fetchd/stores/archive"
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
	dropped             func(caller string, cause door.Cause) // counts and logs connections
	directory           web.Directory
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
		Budget: memory, Fetches: admission.New(memory, slots, "TOO_MANY_FETCHES", "TOO_MANY_FETCHES_OF_CALLER", "fetches", cfg.Observe.Refused),
		Callers: admission.NewCallers(cfg.Authenticate, wire.HangUp), Draining: draining, Stall: cmp.Or(cfg.Stall, defaultStall),
		Logger: cfg.Logger, Rejected: rejections.New(cfg.Logger),
	}
	common.Fetches.Shares = true
	common.Fetches.Denied = func(policy, quota string) { cfg.Observe.Denied(policy, policies.QuotaReason(quota), false) }
	ending, end := context.WithCancel(context.Background())
	watching, watch := context.WithCancel(context.Background())
	s := &Server{drain: drain, end: end, watch: watch, handshakes: cfg.Handshakes, health: health.NewServer(), webConns: cfg.connectionLimits(memory.Limit()),
		service: &service{Shared: common, client: client, heartbeats: newHeartbeats(cmp.Or(cfg.Heartbeat, defaultHeartbeat)), observe: cfg.Observe, ending: ending, denials: newDenials(cfg.Logger)}}
	s.grpcConns = s.webConns
	s.grpcConns.StrangerBytes = door.StrangerBytes
	s.service.limits.Store(requests)
	s.setProviders(cfg.AuthProviders)
	s.service.stores.Store(cmp.Or(cfg.Stores, new(stores.Set)))
	s.service.policies.Store(cfg.Policies)
	s.web = web.New(&web.Config{Shared: common, Fetch: s.service.fetch, FetchUnary: s.service.fetchUnary, Metrics: cfg.Observe.Handler(),
		Console: cfg.Console, Hosts: cfg.Hosts, TLS: cfg.TLS, Handshakes: cfg.Handshakes, Descriptor: descriptor, Directory: &s.directory})
	g := newGate(common, cfg.Observe.Refused)
	s.grpc = grpc.NewServer(g.options(&cfg)...)
	s.grpc.RegisterService(g.description(s.service), s.service)
	probes := &healthService{states: s.health, watching: watching}
	s.grpc.RegisterService(probes.desc(), probes)
	s.health.SetServingStatus(pb.FetchService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	if err := reflection.Register(s.grpc, descriptor); err != nil {
		return nil, err
	}
	g.methods = door.Methods(s.grpc) // before it serves
	g.share = func(ctx context.Context) *admission.Share { return s.service.shareOf(s.service.policyOf(ctx).Policy) }
	s.dropped = g.dropped
	cfg.Observe.Serving(s.grpc, s.service.gauges())
	return s, nil
}

// Serve serves gRPC on l until [Server.Shutdown], and closes l. It returns nil after a shutdown.
func (s *Server) Serve(l net.Listener) error {
	bounded := door.Listen(l, s.grpcConns)
	bounded.AnswerHTTP(s.otherPort)
	bounded.Dropped = s.dropped
	s.listening.Store(bounded)
	if err := s.grpc.Serve(wire.Listener{Listener: bounded, Refusals: wire.NewRefusals(s.service.Budget.Limit())}); !errors.Is(err, grpc.ErrServerStopped) { // it is ErrServerStopped if Shutdown was called before Serve
		return err
	}
	return nil
}

// otherPort is the answer to HTTP/1 on the gRPC port.
func (s *Server) otherPort() string {
	if web := s.listeningWeb.Load(); web != nil {
		return "This is the gRPC port of fetchd. The HTTP API is on port " + door.Port(web.Addr()) + "."
	}
	return "This is the gRPC port of fetchd. --http-addr sets the port of the HTTP API." // off, or not served yet
}

// ServeWeb serves the HTTP API on l until [Server.Shutdown], and closes l. It returns nil after a
// shutdown.
func (s *Server) ServeWeb(l net.Listener) error {
	bounded := door.Listen(l, s.webConns)
	bounded.Dropped = s.dropped
	s.listeningWeb.Store(bounded)
	return s.handshakes.Serve(s.web, wire.Listener{Listener: bounded})
}

// SetOrigins replaces the TLS settings of origins ([fetch.Client.SetOrigins]) and
// [Config].AuthProviders. Fetches in flight keep their provider. After an error nothing has
// changed.
func (s *Server) SetOrigins(origins map[string]fetch.OriginTLS, providers map[string]AuthProvider) error {
	if err := s.service.client.SetOrigins(origins); err != nil {
		return err
	}
	s.setProviders(providers)
	return nil
}

// SetIntermediates replaces [fetch.Config].Intermediates for new connections.
func (s *Server) SetIntermediates(i *fetch.Intermediates) { s.service.client.SetIntermediates(i) }

// setProviders publishes the keys of providers before they sign, so that a verifier finds every key.
func (s *Server) setProviders(providers map[string]AuthProvider) {
	s.directory.Set(providers)
	s.service.providers.Store(&providers)
}

// SetStores replaces [Config].Stores. Fetches in flight keep their store.
func (s *Server) SetStores(known *stores.Set) { s.service.stores.Store(known) }

// SetPolicies replaces [Config].Policies. A fetch in flight is judged by both from its next hop or attempt on.
// Connections of routes that set does not have take no further request.
func (s *Server) SetPolicies(set *policies.Set) {
	s.service.client.RetireRoutes(s.service.policies.Swap(set).Dropped(set)...)
}

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

// FetchMany serves a stream of a caller in this process, which needs no credentials. From the return of SendMsg on,
// a message is the stream's, but for body chunks, which are used again. See package embed.
func (s *Server) FetchMany(stream grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]) (err error) {
	s.service.InFlight.Add(1)
	defer s.service.InFlight.Add(-1)
	defer func() {
		if p := recover(); p != nil {
			err = s.service.LogPanic(stream.Context(), "panic in a call", p)
		}
	}()
	return s.service.FetchMany(stream)
}

// gauges returns the numbers that the metrics show.
func (s *service) gauges() observe.Gauges {
	return observe.Gauges{Fetches: s.Fetches.Load, Callers: s.Fetches.Loads, Memory: s.memory,
		Draining: func() bool { return s.Draining.Err() != nil }, Connections: s.client.Connections,
		Stores: func() iter.Seq2[string, observe.StoreStats] {
			return named(s.stores.Load().All(), func(to *stores.Store) observe.StoreStats { return observe.StoreStats(to.Stats()) })
		},
		Archives: func() iter.Seq2[string, observe.ArchiveStats] {
			return named(s.stores.Load().Archives(), func(to *archive.Archive) observe.ArchiveStats { return observe.ArchiveStats(to.Stats()) })
		}}
}

// named returns the numbers of each store by its name.
func named[T interface{ Name() string }, N any](all iter.Seq[T], numbers func(T) N) iter.Seq2[string, N] {
	return func(yield func(string, N) bool) {
		for store := range all {
			if !yield(store.Name(), numbers(store)) {
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

// descriptor is the contract as .ci/generated compiles it, with the comments, which
// the generated code leaves out.
//
//go:embed descriptor.binpb
var descriptor []byte

const (
	// watchGrace is how long health watches may report that the server stops.
	watchGrace = time.Second
	// idleWatchGrace is the same while no call is in flight.
	idleWatchGrace = 250 * time.Millisecond
	// idleGrace is how long connections may stay open while no call is in flight. A
	// live client has answered the GOAWAY by then.
	idleGrace = 500 * time.Millisecond
	// lateGrace replaces idleGrace once ctx is done. It is for answers that are still
	// being written.
	lateGrace = 50 * time.Millisecond
	// cutGrace is how long callers may still read outcomes after that.
	cutGrace = 250 * time.Millisecond
	// idleEvery is how often a drain checks whether a call is in flight.
	idleEvery = 10 * time.Millisecond
)

// Shutdown stops the server: health turns NOT_SERVING, new calls get UNAVAILABLE,
// fetches that wait end as SHUTDOWN, and the others may finish. Those in flight shortly
// before the deadline of ctx (by the reserve of spec §9), or when ctx is canceled, end as
// SHUTDOWN too, and their callers get the outcomes. Callers that do not read them are cut
// off 250 ms after ctx is done. Without a call in flight, open connections delay the end
// by at most half a second. The HTTP endpoint stops last, so that it can be asked for
// metrics and readiness until then.
//
// Shutdown returns nil if every fetch finished by itself. Otherwise it returns the error
// of ctx, or [context.DeadlineExceeded] if its deadline is only near.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.drain()
	defer s.service.Rejected.Flush()
	defer s.service.denials.Flush()
	defer s.service.client.Close()
	defer s.service.workers.Close()
	defer s.watch()
	defer time.AfterFunc(watchGrace, s.watch).Stop()
	defer s.end()
	cut, drop := context.WithCancel(context.Background())
	defer drop()
	done := make(chan struct{})
	go func() { // ends once the connections are closed
		defer close(done)
		s.grpc.GracefulStop()
		if s.web.Shutdown(cut) != nil {
			_ = s.web.Close() // its connections are closed anyway
		}
	}()
	if s.finish(ctx, drop, done) {
		return nil
	}
	return cmp.Or(ctx.Err(), context.DeadlineExceeded)
}

// finish waits until done is closed. It ends the calls and connections that would delay
// that, and reports whether every call finished by itself.
func (s *Server) finish(ctx context.Context, drop func(), done <-chan struct{}) bool {
	early, stop := reserve(ctx)
	defer stop()
	nearlyOver, over := early.Done(), ctx.Done()
	finished, grace := true, idleGrace
	var cut <-chan time.Time
	dropping := false
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	for busy := time.Now(); ; { // when a call was last in flight
		select {
		case <-done:
			return finished
		case <-nearlyOver:
			nearlyOver = nil
			finished = s.service.client.End() == 0
			s.end()
		case <-over:
			over, grace, cut = nil, lateGrace, time.After(cutGrace)
		case <-cut:
			dropping, finished = true, finished && !s.isBusy()
		case <-tick.C:
		}
		if s.isBusy() {
			busy = time.Now()
		}
		idle := time.Since(busy)
		if idle >= idleWatchGrace {
			s.watch()
		}
		if dropping = dropping || idle >= grace; dropping {
			drop()
			s.listening.Load().DropAll()
			s.listeningWeb.Load().DropAll()
		}
	}
}

// isBusy reports whether a call is in flight, health aside, or an outcome is unread.
func (s *Server) isBusy() bool {
	fetches, _ := s.service.Fetches.Load()
	return fetches > 0 || s.service.InFlight.Load() > 0
}
