//go:build linux

package crawls

import (
	"context"
	"testing"
	"time"
)

// TestCrashes kills one of three workers, and then PostgreSQL, in the middle of 12,000 URLs
// (6,000 in the short form). Half of them are pairs of redirects to one page of another host.
func TestCrashes(t *testing.T) {
	crashes(t, func(_ context.Context, p *postgres) string { return p.dsn() })
}

// TestCrashesBehindPgBouncer does the same with a pooler between workers and server.
func TestCrashesBehindPgBouncer(t *testing.T) {
	if !all() {
		t.Skip("only in the long form")
	}
	crashes(t, func(ctx context.Context, p *postgres) string { return p.bouncer(ctx) })
}

// crashes runs the crawl of TestCrashes. dsn returns the connection string that the workers use.
func crashes(t *testing.T, dsn func(context.Context, *postgres) string) {
	t.Helper()
	ctx := long(t)
	server := newPostgres(ctx, t)
	c := newCrawl(ctx, t, server.dsn(), 2)
	c.dsn = dsn(ctx, server)
	pages := sized(6000, 3000)
	c.put(120, pages, pages/2)
	w1, w2, w3 := c.worker(), c.worker(), c.worker()
	c.requests(pages * 2 / 3)
	held := c.hold(ctx, w2, "w2")
	w2.kill()
	w2.exits(ctx, -1)
	c.requests(pages * 4 / 3)
	server.crash()
	down := c.site.Count()
	stopped := time.Now()
	w1.wrote(ctx, "level=ERROR msg=\"cannot ")
	w3.wrote(ctx, "level=ERROR msg=\"cannot ")
	for time.Since(stopped) < 3*time.Second {
		select {
		case <-time.After(3*time.Second - time.Since(stopped)):
		case <-ctx.Done():
		}
	}
	asked := c.site.Count() - down
	server.start(ctx)
	c.finished(w1, w3)
	took := time.Since(c.started)
	c.complete()
	c.polite()
	server.logged()
	t.Logf("%s: %d URLs in %.1f s, %.0f/s: %d requests, %d of them while the database was away, the killed worker held %d, %d leases crashed, %d lines of outcomes, %d bodies",
		server.describe(), c.urls, took.Seconds(), float64(c.urls)/took.Seconds(), c.site.Count(), asked, held,
		c.count(`SELECT COALESCE(sum(crash_count), 0) FROM urls`), c.outcomes(), c.bodies(c.dir+"/bodies"))
}
