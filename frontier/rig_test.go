package frontier

import (
	"context"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fetchd/client"
	"fetchd/cmd/frontier/site"
	"fetchd/fetch"
	"fetchd/frontier/store"
	"fetchd/server"
	"fetchd/server/fetchdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a site, a fetchd that reaches it, and an empty frontier.
type rig struct {
	*testing.T
	site    *site.Site
	service *fetchd
	store   store.Store
	db      string
	config  Config

	*journal
}

// journal has what the worker recorded.
type journal struct {
	mu      sync.Mutex
	records []Record
}

// in returns r for a subtest.
func (r *rig) in(t *testing.T) *rig {
	c := *r
	c.T = t
	return &c
}

// newRig returns a rig with a delay between the fetches of a host.
func newRig(t *testing.T, delay time.Duration, cfg site.Config) *rig {
	t.Helper()
	s, err := site.Start(cfg)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	r := &rig{T: t, site: s, db: filepath.Join(t.TempDir(), "frontier.db"), journal: new(journal)}
	r.store = openStore(t, r.db, delay)
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
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// fetchd is one service, on a connection of its own.
type fetchd struct{ *fetchdtest.Server }

// newFetchd is a service that reaches the site.
func newFetchd(t *testing.T, s *site.Site) *fetchd {
	t.Helper()
	return newFetchdWith(t, s, fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{uint16(s.Port())}})
}

func newFetchdWith(t *testing.T, s *site.Site, egress fetch.Egress) *fetchd {
	t.Helper()
	return &fetchd{fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, InMemory: true, Configure: func(c *server.Config) {
		c.Fetch.Resolver, c.Fetch.Egress = s.Resolver(), egress
	}})}
}

func (f *fetchd) as(name string) Service {
	return Service{Name: name, Client: client.New(f.Conn)}
}

// add puts pages into the frontier, each as "HOST/PATH".
func (r *rig) add(urls ...string) {
	r.Helper()
	got, err := r.store.Put(r.Context(), store.Entries(urls...), store.Limits{})
	if err != nil || len(got.Bad) > 0 {
		r.Fatalf("Put(%q) = %+v, %v", urls, got, err)
	}
}

// worker returns a worker with the rig's configuration.
func (r *rig) worker(services ...Service) *Worker {
	r.Helper()
	if len(services) == 0 {
		services = []Service{r.service.as("inside")}
	}
	w, err := New(r.store, services, r.config)
	must(r, err)
	return w
}

// crawl works until nothing is left.
func (r *rig) crawl(services ...Service) Stats {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	w := r.worker(services...)
	must(r, w.Run(ctx))
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

// paths returns the requests to the site in order, as HOST/PATH.
func (r *rig) paths() []string {
	var paths []string
	for _, v := range r.site.Visits() {
		paths = append(paths, v.Host+v.Path)
	}
	return paths
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
