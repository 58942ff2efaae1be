package frontier

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/fetch"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/site"
	"fetchd/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a site, a fetchd that reaches it, and an empty frontier.
type rig struct {
	*testing.T
	site    *site.Site
	service *fetchd
	store   store.Store
	config  Config

	mu      sync.Mutex
	records []Record
}

// newRig has delay from a fetch's end to the next start of its host.
func newRig(t *testing.T, delay time.Duration, cfg site.Config) *rig {
	t.Helper()
	s, err := site.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := &rig{T: t, site: s, store: openStore(t, filepath.Join(t.TempDir(), "frontier.db"), delay)}
	r.service = newFetchd(t, s)
	r.config = Config{Policy: DefaultPolicy(), MaxAttempts: 1, IgnoreRobots: true, Recorded: func(rec Record) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.records = append(r.records, rec)
		return nil
	}}
	r.config.Policy.RetryDelay = 0
	return r
}

func openStore(t *testing.T, dsn string, delay time.Duration) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), dsn, store.Config{Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fetchd is one service, on a connection of its own.
type fetchd struct {
	server   *server.Server
	listener *bufconn.Listener
	conn     *grpc.ClientConn
	served   chan struct{}

	mu    sync.Mutex
	conns []net.Conn // below conn
}

// newFetchd is a service that reaches the site.
func newFetchd(t *testing.T, s *site.Site) *fetchd {
	t.Helper()
	return newFetchdWith(t, s, fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{uint16(s.Port())}})
}

func newFetchdWith(t *testing.T, s *site.Site, egress fetch.Egress) *fetchd {
	t.Helper()
	srv, err := server.New(server.Config{Fetch: fetch.Config{Resolver: s.Resolver(), Egress: egress}})
	if err != nil {
		t.Fatal(err)
	}
	f := &fetchd{server: srv, listener: bufconn.Listen(256 << 10), served: make(chan struct{})}
	go func() {
		defer close(f.served)
		_ = srv.Serve(f.listener)
	}()
	f.conn, err = grpc.NewClient("passthrough:///inside", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(f.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.kill)
	return f
}

func (f *fetchd) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := f.listener.DialContext(ctx)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.conns = append(f.conns, conn)
	}
	return conn, err
}

// kill breaks the connections, and ends the service.
func (f *fetchd) kill() {
	_ = f.listener.Close()
	f.mu.Lock()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = f.server.Shutdown(ctx)
	<-f.served
	_ = f.conn.Close()
}

func (f *fetchd) as(name string) Service {
	return Service{Name: name, Client: pb.NewFetchServiceClient(f.conn)}
}

// add puts pages of hosts into the frontier, each as "HOST/PATH".
func (r *rig) add(urls ...string) {
	r.Helper()
	got, err := r.store.Put(r.Context(), urls)
	if err != nil || len(got.Bad) > 0 {
		r.Fatalf("Put(%q) = %+v, %v", urls, got, err)
	}
}

// worker is a worker of the rig's configuration.
func (r *rig) worker(services ...Service) *Worker {
	r.Helper()
	if len(services) == 0 {
		services = []Service{r.service.as("inside")}
	}
	w, err := New(r.store, services, r.config)
	if err != nil {
		r.Fatal(err)
	}
	return w
}

// crawl works until nothing is left.
func (r *rig) crawl(services ...Service) Stats {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	w := r.worker(services...)
	if err := w.Run(ctx); err != nil {
		r.Fatalf("Run = %v", err)
	}
	return w.Stats()
}

func (r *rig) row(url string) store.URL {
	r.Helper()
	e, err := r.store.Why(r.Context(), url)
	if err != nil {
		r.Fatalf("Why(%s) = %v", url, err)
	}
	return e.URL
}

// paths are the requests that the site saw, in order, as HOST/PATH.
func (r *rig) paths() []string {
	var paths []string
	for _, v := range r.site.Visits() {
		paths = append(paths, v.Host+v.Path)
	}
	return paths
}
