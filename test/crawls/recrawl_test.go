//go:build linux

package crawls

import (
	"syscall"
	"testing"
	"time"

	"fetchd/internal/site"
	"fetchd/test/rig"
)

// TestRecrawlCrashes fetches pages again and again, and kills one of two workers. Every page is fetched
// in each round, recorded once for each claim, and never before it is due.
func TestRecrawlCrashes(t *testing.T) {
	if !all() {
		t.Skip("only in the long form: it waits for leases to expire")
	}
	const interval, rounds = 4 * time.Second, 4
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			ctx := long(t)
			w := web{hosts: 40, pages: 400}
			var c *crawl
			c = newCrawlOf(ctx, t, dsn(ctx, t), 2, site.Config{Page: w.page(func() int { return c.site.Port() })})
			flags := []string{"--scope", "domain", "--recrawl", interval.String(), "--recrawl-min", interval.String(), c.site.URL(w.host(0), "/x/0")}
			w1 := c.workerOf("crawl", flags...)
			c.requests(1)
			w2 := c.workerOf("crawl", flags...)
			c.requests(2 * w.pages)
			held := 0
			rig.Until(ctx, t, "w2 holds leases", func() bool {
				w2.suspend()
				if held = c.count(`SELECT count(*) FROM urls WHERE worker = 'w2' AND status = 'fetching'`); held > 0 {
					return true
				}
				w2.Signal(syscall.SIGCONT)
				return false
			})
			w2.kill()
			w2.exits(ctx, -1)
			rig.Until(ctx, t, "every page was fetched in each round", func() bool {
				return c.count(`SELECT count(*) FROM (SELECT url_id FROM fetches WHERE status = 'fetched' GROUP BY url_id HAVING count(*) >= $1) AS x`, rounds) == w.pages
			})
			w1.Signal(syscall.SIGTERM)
			w1.exits(ctx, 130)
			for _, row := range []struct {
				what, query string
				want        int
			}{
				{"URLs", `SELECT count(*) FROM urls`, w.pages},
				{"outcomes other than fetched", `SELECT count(*) FROM fetches WHERE status <> 'fetched'`, 0},
				{"claims with two outcomes", `SELECT count(*) FROM (SELECT 1 FROM fetches GROUP BY url_id, token HAVING count(*) > 1) AS x`, 0},
				{"hosts with a fetch in flight", `SELECT count(*) FROM hosts WHERE in_flight <> 0`, 0},
			} {
				if got := c.count(row.query); got != row.want {
					t.Errorf("%s: %d, want %d", row.what, got, row.want)
				}
			}
			early := c.count(`SELECT count(*) FROM (SELECT ended_at - lag(ended_at) OVER (PARTITION BY url_id ORDER BY id) AS after FROM fetches) AS x
				WHERE after < $1`, interval.Milliseconds())
			if early > 0 {
				t.Errorf("%d pages were fetched again before they were due", early)
			}
			c.polite()
			t.Logf("%d pages, %d outcomes in %.1f s; the killed worker held %d", w.pages, c.count(`SELECT count(*) FROM fetches`), time.Since(c.started).Seconds(), held)
		})
	}
}
