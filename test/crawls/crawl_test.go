//go:build linux

package crawls

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	"fetchd/test/rig"
)

const (
	// delay is the delay between the fetches of a host.
	delay = 20 * time.Millisecond
	// totalTimeout is short: a lease is five times as long, and the URLs of a dead worker are claimed by another
	// when it ends.
	totalTimeout = "4s"
)

// crawl is an origin, a frontier, and the processes that work on it.
type crawl struct {
	*testing.T
	ctx      context.Context // of the test
	site     *site.Site
	dsn      string
	dir      string // outcomes and bodies
	db       *sql.DB
	services []*process
	urls     int // number of URLs put
	finals   int // pages that two URLs lead to
	workers  []*process
	body     []byte    // of the origin, from its first byte on; for tests that compare bodies
	started  time.Time // when the first worker was
	delay    time.Duration
}

// newCrawl starts an origin and n services. put creates the database.
func newCrawl(ctx context.Context, t *testing.T, dsn string, n int) *crawl {
	t.Helper()
	return newCrawlOf(ctx, t, dsn, n, site.Config{})
}

// newCrawlOf is newCrawl with another origin.
func newCrawlOf(ctx context.Context, t *testing.T, dsn string, n int, cfg site.Config) *crawl {
	t.Helper()
	c := &crawl{T: t, ctx: ctx, site: rig.Site(t, cfg), dsn: dsn, dir: t.TempDir(), delay: delay}
	driver, name := "sqlite", "file:"+dsn+"?_pragma=busy_timeout(30000)"
	if strings.HasPrefix(dsn, "postgres:") {
		driver, name = "pgx", dsn
	}
	var err error
	if c.db, err = sql.Open(driver, name); err != nil {
		t.Fatal(err)
	}
	c.db.SetMaxIdleConns(-1) // the server may be killed before the next query
	t.Cleanup(func() { c.db.Close() })
	for range n {
		c.services = append(c.services, c.service(rig.FreeAddress(t, "127.0.0.1")))
	}
	return c
}

// service starts a service that can reach the origin, and waits until it serves.
func (c *crawl) service(address string) *process {
	c.Helper()
	p := start(c.T, "fetchd at "+address, "fetchd", "--grpc-addr", address, "--http-addr", "", "--drain-time", "1s",
		"--egress-resolver", c.site.NameServer(), "--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", strconv.Itoa(c.site.Port()))
	p.wrote(c.ctx, `"msg":"serving"`)
	return p
}

// put adds pages of hosts. For each pair it also adds redirects of two hosts to the same page
// of a third.
func (c *crawl) put(hosts, pages, pairs int) {
	c.Helper()
	name := func(n int) string { return fmt.Sprintf("h%d", n%hosts) }
	var urls []string
	for n := range pages {
		urls = append(urls, c.site.URL(name(n), fmt.Sprintf("/p/%d", n)))
	}
	for n := range pairs {
		final := url.QueryEscape(c.site.URL(name(7*n+3), fmt.Sprintf("/p/%d", pages+n)))
		for m := range 2 {
			urls = append(urls, c.site.URL(name(7*n+4+m), fmt.Sprintf("/go/302/%d?to=%s", n, final)))
		}
	}
	c.add(urls)
	c.finals += pairs
}

// add puts URLs that are not in the database yet.
func (c *crawl) add(urls []string) {
	c.Helper()
	s, err := store.Open(c.ctx, c.dsn, store.Config{})
	must(c, err)
	defer s.Close()
	got, err := s.Put(c.ctx, store.Entries(urls...), store.Limits{})
	if err != nil || got.Added != int64(len(urls)) {
		c.Fatalf("Put of %d URLs = %+v, %v", len(urls), got, err)
	}
	c.urls += len(urls)
}

// slow adds a page to each host that takes ms milliseconds.
func (c *crawl) slow(hosts int, ms string) {
	c.Helper()
	var urls []string
	for n := range hosts {
		urls = append(urls, c.site.URL(fmt.Sprintf("h%d", n), "/slow/"+ms+"/0"))
	}
	c.add(urls)
}

// worker starts a worker, w1 and so on, with outcomes and bodies in the crawl's folder.
func (c *crawl) worker(flags ...string) *process {
	c.Helper()
	if len(c.workers) == 0 {
		c.started = time.Now()
	}
	name := fmt.Sprintf("w%d", len(c.workers)+1)
	args := []string{"crawl", "--db", c.dsn, "--delay", c.delay.String(), "--log-level", "info",
		"--outcomes", filepath.Join(c.dir, name+".jsonl"), "--bodies", filepath.Join(c.dir, "bodies"),
		"--total-timeout", totalTimeout}
	for _, s := range c.services {
		args = append(args, "--server", strings.TrimPrefix(s.name, "fetchd at "))
	}
	w := start(c.T, "frontier crawl "+name, "frontier", append(args, flags...)...)
	c.workers = append(c.workers, w)
	return w
}

// requests waits until the origin has received n requests.
func (c *crawl) requests(n int) {
	c.Helper()
	rig.Until(c.ctx, c.T, fmt.Sprintf("the origin has received %d requests", n), func() bool { return c.site.Count() >= n })
}

// count returns the number that a query selects.
func (c *crawl) count(query string, args ...any) int {
	c.Helper()
	var n int
	if err := c.db.QueryRowContext(c.ctx, query, args...).Scan(&n); err != nil {
		c.Fatalf("%s: %v", query, err)
	}
	return n
}

// finished waits until workers exit by themselves.
func (c *crawl) finished(workers ...*process) {
	c.Helper()
	for _, w := range workers {
		w.exits(c.ctx, 0)
	}
}
