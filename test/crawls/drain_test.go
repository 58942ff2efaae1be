//go:build linux

package crawls

import (
	"strings"
	"syscall"
	"testing"

	"fetchd/test/rig"
)

// TestDrain stops workers in the middle of claims, while pages are in flight that take longer
// than the drain allows. Some stop in order, one at once. The next run fetches everything.
func TestDrain(t *testing.T) {
	t.Parallel()
	const rounds = 5
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			ctx := long(t)
			c := newCrawl(ctx, t, dsn(t), 1)
			c.put(200, 1000, 200)
			c.slow(200, "3000")
			for range rounds {
				c.drained(c.worker("--drain-time", "100ms"))
			}

			hasty := c.worker("--drain-time", "1h")
			c.requests(c.site.Count() + 20)
			left := 0
			c.services[0].suspend() // no fetch ends from here on
			rig.Until(ctx, t, "the worker holds leases", func() bool {
				left = c.count(`SELECT count(*) FROM urls WHERE status = 'fetching'`)
				return left > 0
			})
			hasty.Signal(syscall.SIGTERM)
			hasty.wrote(ctx, "stopping: ")
			hasty.Signal(syscall.SIGTERM)
			hasty.exits(ctx, -1)
			c.services[0].Signal(syscall.SIGCONT)

			c.finished(c.worker())
			c.complete()
			c.polite()
			t.Logf("%d URLs, %d requests; %d URLs were leased when a worker ended at once", c.urls, c.site.Count(), left)
		})
	}
}

// drained stops a worker in order while it is busy. It fails the test if a URL stays leased.
func (c *crawl) drained(w *process) {
	c.Helper()
	c.requests(c.site.Count() + 150)
	w.Signal(syscall.SIGTERM)
	w.exits(c.ctx, 130)
	if !strings.Contains(w.log.String(), "stopping: ") {
		c.Errorf("the log does not mention SIGTERM:\n%s", w.log.String())
	}
	for _, row := range []struct{ what, query string }{
		{"URLs are neither pending nor fetched", `SELECT count(*) FROM urls WHERE status NOT IN ('pending', 'fetched')`},
		{"hosts have a fetch in flight", `SELECT count(*) FROM hosts WHERE in_flight <> 0`},
		{"URLs crashed", `SELECT count(*) FROM urls WHERE crash_count > 0`},
	} {
		if n := c.count(row.query); n != 0 {
			c.Errorf("after SIGTERM %d %s, want none", n, row.what)
		}
	}
}
