// Package fetchdtest runs a real fetchd inside a test, and next to it an origin that fails on
// request. Use it to test code that calls fetchd:
//
//	func TestMirror(t *testing.T) {
//		s := fetchdtest.Start(t, fetchdtest.Options{})
//		page := s.Origin.URL("http", "/s/page/503/200:body=hello") // 503, then 200
//		if err := mirror(t.Context(), client.New(s.Conn), page); err != nil {
//			t.Error(err)
//		}
//	}
//
// The path of a URL selects what the origin does: statuses, delays, truncated bodies, resets,
// TLS errors. Package [fetchd/conformance/origin] describes it.
package fetchdtest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/conformance/origin"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
	"fetchd/stores"
)

// refused is an address of the origin on which nothing listens.
const refused = "refused"

// Options configures a [Server]. The zero value starts a fetchd and an origin on loopback.
type Options struct {
	// Configure changes the configuration of the service before it starts. The configuration
	// it receives lets the service reach the listeners of the origin and nothing else. To
	// reach another server on loopback, append its port to Fetch.Egress.AllowPorts. Nil
	// changes nothing.
	Configure func(*server.Config)
	// InMemory connects client, service and origin through memory instead of loopback.
	// A test in a [testing/synctest] bubble needs it.
	InMemory bool
	// Origin is an existing origin that the service may reach. Start does not close it. Nil
	// starts one with seed 1. With InMemory it must be nil.
	Origin *origin.Origin
	// StoresFile is a file with the stores of the service, as the flag --stores-file of fetchd
	// reads it. Empty means no stores. [Server.Close] waits for their uploads.
	StoresFile string
	// NoOrigin starts no origin, for a test that has a server to fetch from.
	NoOrigin bool
	// Fake answers gRPC calls in place of a fetchd, with what no real fetchd answers. There is
	// no origin and no HTTP API then, and Configure is not called.
	Fake pb.FetchServiceServer
	// DialOptions are added to the options of Conn, which is plaintext without them.
	DialOptions []grpc.DialOption
}

// Server is a running fetchd, its origin, and a connection to it.
type Server struct {
	// Service is the fetchd. Nil with a Fake.
	Service *server.Server
	// Origin answers what the service fetches. Nil with NoOrigin or a Fake.
	Origin *origin.Origin
	// Conn is a connection to the gRPC API, for [fetchd/client.New] or generated stubs.
	Conn *grpc.ClientConn
	// Client is the generated client on Conn.
	Client pb.FetchServiceClient
	// Addr is the address of the gRPC API, as host:port. In memory nothing can dial it:
	// use [Server.DialGRPC].
	Addr string
	// URL is the base URL of the HTTP API, without a slash at its end. Empty with
	// a Fake.
	URL string
	// HTTPClient sends requests for any host to the HTTP API. Nil with a Fake.
	HTTPClient *http.Client

	grpc, web *listener
	stops     []func() error // in the order of the starts
	closing   sync.Once

	inMemory bool
	dialing  chan struct{} // holds a value while an in-memory connection is made
}

// Start starts a service and stops it when the test ends. It fails the test if that is not
// possible.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatalf("fetchdtest: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Errorf("fetchdtest: %v", err)
		}
	})
	return s
}

// New is [Start] for an example or a program. The caller calls [Server.Close].
func New(o Options) (*Server, error) {
	s := &Server{inMemory: o.InMemory, dialing: make(chan struct{}, 1)}
	start := s.start
	if o.Fake != nil {
		start = s.startFake
	}
	err := start(&o)
	if err == nil {
		err = s.connect(o.DialOptions)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) startFake(o *Options) (err error) {
	g := grpc.NewServer()
	pb.RegisterFetchServiceServer(g, o.Fake)
	if s.grpc, err = s.listen(); err == nil {
		s.serve(g.Serve, s.grpc, g.Stop)
	}
	return err
}

func (s *Server) start(o *Options) error {
	egress := fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	cfg := server.Config{Fetch: fetch.Config{Egress: egress}}
	if err := s.startOrigin(o, &cfg.Fetch); err != nil {
		return err
	}
	var err error
	if o.StoresFile != "" {
		if cfg.Stores, err = stores.ReadFile(o.StoresFile, new(stores.Set)); err != nil {
			return err
		}
		s.stops = append(s.stops, func() error { return cfg.Stores.Close(context.Background()) })
	}
	if o.Configure != nil {
		o.Configure(&cfg)
	}
	if s.Service, err = server.New(cfg); err != nil {
		return err
	}
	if s.grpc, err = s.listen(); err != nil {
		return err
	}
	if s.web, err = s.listen(); err != nil {
		return err
	}
	s.serve(s.Service.ServeWeb, s.web, s.shutdown)
	s.serve(s.Service.Serve, s.grpc, s.shutdown)
	s.HTTPClient = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.DialHTTP(ctx) }}}
	s.URL = "http://" + s.address(s.web)
	if cfg.TLS != nil {
		s.URL = "https://" + s.address(s.web)
	}
	s.stops = append(s.stops, func() error { s.HTTPClient.CloseIdleConnections(); return nil })
	return nil
}

// startOrigin starts the origin, and lets the service reach it.
func (s *Server) startOrigin(o *Options, cfg *fetch.Config) error {
	switch {
	case o.NoOrigin:
		return nil
	case o.InMemory && o.Origin != nil:
		return errors.New("Options.Origin cannot be used with InMemory: leave one out")
	case o.InMemory:
		s.startMemoryOrigin(cfg)
	case o.Origin != nil:
		s.Origin = o.Origin
	default:
		started, err := origin.Start(origin.Config{Seed: 1})
		if err != nil {
			return err
		}
		s.Origin = started
		s.stops = append(s.stops, started.Close)
	}
	for _, name := range append(origin.Listeners(), refused) {
		if at, err := netip.ParseAddrPort(s.Origin.Addr(name)); err == nil { // it is empty in memory
			cfg.Egress.AllowPorts = append(cfg.Egress.AllowPorts, at.Port())
		}
	}
	cfg.RootCAs = s.Origin.CA()
	return nil
}

// startMemoryOrigin starts an origin whose listeners are in memory. The host of a URL selects
// the listener, see [origin.Origin.URL]. Other hosts reach the listener "http".
func (s *Server) startMemoryOrigin(cfg *fetch.Config) {
	s.Origin = origin.New(origin.Config{Seed: 1})
	listeners := make(map[string]*bufconn.Listener)
	for _, name := range origin.Listeners() {
		l := bufconn.Listen(64 << 10)
		listeners[name] = l
		s.serve(func(l net.Listener) error { return s.Origin.ServeAs(name, l) }, l, func() { _ = s.Origin.Close() })
	}
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		name, _, _ := strings.Cut(address, ".origin.test:")
		if name == refused {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return s.dialMemory(ctx, cmp.Or(listeners[name], listeners["http"]))
	}
}

// listener keeps the connections that it accepts, for [Server.Kill].
type listener struct {
	net.Listener
	mu     sync.Mutex
	conns  []net.Conn
	killed bool
}

func (s *Server) listen() (*listener, error) {
	if s.inMemory {
		return &listener{Listener: bufconn.Listen(64 << 10)}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, func() error { l.Close(); return nil })
	return &listener{Listener: l}, nil
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, conn)
		if l.killed {
			conn.Close()
		}
	}
	return conn, err
}

// kill closes the connections, and those accepted from now on.
func (l *listener) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
	for _, conn := range l.conns {
		conn.Close()
	}
}

// address returns the address of l. In memory it is a name that the HTTP API accepts from
// browsers.
func (s *Server) address(l *listener) string {
	if s.inMemory {
		return "localhost"
	}
	return l.Addr().String()
}

// serve runs f on l until stop.
func (s *Server) serve(f func(net.Listener) error, l net.Listener, stop func()) {
	served := make(chan error, 1)
	go func() { served <- f(l) }()
	s.stops = append(s.stops, func() error {
		stop()
		if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // it is ErrServerStopped if stop was called before f
			return err
		}
		return nil
	})
}

func (s *Server) connect(options []grpc.DialOption) (err error) {
	s.Addr = s.address(s.grpc)
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.DialGRPC(ctx) })}, options...)
	if s.Conn, err = grpc.NewClient("passthrough:///"+s.Addr, options...); err != nil {
		return err
	}
	s.stops = append(s.stops, func() error { s.Conn.Close(); return nil }) // the test may have closed it
	s.Client = pb.NewFetchServiceClient(s.Conn)
	return nil
}

// DialGRPC opens a connection to the gRPC API, for a test that writes frames itself.
func (s *Server) DialGRPC(ctx context.Context) (net.Conn, error) { return s.dial(ctx, s.grpc) }

// DialHTTP opens a connection to the HTTP API.
func (s *Server) DialHTTP(ctx context.Context) (net.Conn, error) { return s.dial(ctx, s.web) }

func (s *Server) dial(ctx context.Context, l *listener) (net.Conn, error) {
	if m, ok := l.Listener.(*bufconn.Listener); ok {
		return s.dialMemory(ctx, m)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
}

// dialMemory makes one connection at a time. bufconn starts timers that fire at once, and Go
// 1.26's race detector crashes when two of them start at one time in one bubble.
func (s *Server) dialMemory(ctx context.Context, l *bufconn.Listener) (net.Conn, error) {
	select {
	case s.dialing <- struct{}{}: // not a mutex: a goroutine that waits for one stops the bubble's clock
		defer func() { <-s.dialing }()
		return l.DialContext(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Kill breaks all connections of the service and stops it, as the end of its process does.
// Calls in flight end with UNAVAILABLE, and so do later calls on Conn. The origin keeps running
// until [Server.Close]. A Fake cannot be killed.
func (s *Server) Kill() {
	s.grpc.kill()
	s.web.kill()
	s.shutdown()
}

// shutdown stops the service without a wait for the calls in flight.
func (s *Server) shutdown() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Service.Shutdown(ended)
}

// Close stops the service and the origin that was started with it. It does not wait for calls
// in flight: they end with UNAVAILABLE. Further calls of Close do nothing.
func (s *Server) Close() (err error) {
	s.closing.Do(func() {
		for _, stop := range slices.Backward(s.stops) {
			err = errors.Join(err, stop())
		}
	})
	return err
}
