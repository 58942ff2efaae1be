//go:build linux

package crawls

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fetchd/test/rig"
)

// TestRecrawlCrashes kills one of three workers and a service while pages are fetched again and again.
// No page is lost for the next time, recorded twice, or fetched before its time, and no host receives a
// request too early.
func TestRecrawlCrashes(t *testing.T) {
	if !all() {
		t.Skip("only in the long form: it waits for leases to expire")
	}
	for _, kind := range []string{"SQLite", "PostgreSQL"} {
		t.Run(kind, func(t *testing.T) {
			ctx := long(t)
			dsn := filepath.Join(t.TempDir(), "frontier.db")
			if kind == "PostgreSQL" {
				dsn = newPostgres(ctx, t).dsn()
			}
			const hosts, pages = 40, 400
			c := newCrawl(ctx, t, dsn, 2)
			c.put(hosts, pages, 0)
			flags := []string{"--recrawl", "2s", "--recrawl-min", "1s", "--recrawl-max", "4s"}
			w1, w2, w3 := c.worker(flags...), c.worker(flags...), c.worker(flags...)
			c.requests(3 * pages)
			rig.Until(ctx, t, "w2 holds leases", func() bool {
				w2.suspend()
				if c.count(`SELECT count(*) FROM urls WHERE worker = 'w2' AND status = 'fetching'`) > 0 {
					return true
				}
				w2.Signal(syscall.SIGCONT)
				return false
			})
			w2.kill()
			w2.exits(ctx, -1)
			c.requests(4 * pages)
			c.services[0].kill()
			rig.Until(ctx, t, "the URLs of w2 are fetched again", func() bool {
				return c.count(`SELECT count(*) FROM urls WHERE worker = 'w2' AND status = 'fetching'`) == 0
			})
			c.requests(c.site.Count() + 2*pages)
			took := time.Since(c.started)
			for _, w := range []*process{w1, w3} {
				w.Signal(syscall.SIGTERM)
				w.exits(ctx, 130)
			}
			for _, row := range []struct {
				what, query string
				want        int
			}{
				{"URLs", `SELECT count(*) FROM urls`, pages},
				{"URLs that are fetched again", `SELECT count(*) FROM urls WHERE status = 'fetched' AND recrawl_at > 0 OR status IN ('pending', 'failed')`, pages},
				{"URLs that were fetched three times or more", `SELECT count(*) FROM (SELECT 1 FROM fetches WHERE status = 'fetched' GROUP BY url_id HAVING count(*) >= 3) AS x`, pages},
				{"claims with two outcomes", `SELECT count(*) FROM (SELECT 1 FROM fetches GROUP BY url_id, token HAVING count(*) > 1) AS x`, 0},
				{"pages that were fetched again in less than a second", `SELECT count(*) FROM (SELECT ended_at - lag(ended_at) OVER (PARTITION BY url_id ORDER BY id) AS gap
					FROM fetches WHERE status = 'fetched') AS x WHERE gap < 1000`, 0},
				{"hosts with a fetch in flight", `SELECT count(*) FROM hosts WHERE in_flight <> 0`, 0},
			} {
				if got := c.count(row.query); got != row.want {
					t.Errorf("%s: %d, want %d", row.what, got, row.want)
				}
			}
			c.polite()
			t.Logf("%d pages in %.1f s: %d requests, %d outcomes, %d of them 304, %d leases crashed", pages, took.Seconds(), c.site.Count(),
				c.count(`SELECT count(*) FROM fetches`), c.count(`SELECT count(*) FROM fetches WHERE http_status = 304`),
				c.count(`SELECT COALESCE(sum(crash_count), 0) FROM urls`))
		})
	}
}
