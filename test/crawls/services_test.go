//go:build linux

package crawls

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServicesKilled kills all services in the middle of a crawl and restarts them.
func TestServicesKilled(t *testing.T) {
	ctx := long(t)
	c := newCrawl(ctx, t, filepath.Join(t.TempDir(), "frontier.db"), 2)
	c.put(60, 1200, 400)
	w1, w2 := c.worker(), c.worker()
	c.requests(1000)
	for _, s := range c.services {
		s.kill()
	}
	for _, s := range c.services {
		s.exits(ctx, -1)
	}
	w1.wrote(ctx, "service lost")
	w2.wrote(ctx, "service lost")
	for _, s := range c.services {
		c.service(strings.TrimPrefix(s.name, "fetchd at "))
	}
	c.finished(w1, w2)
	took := time.Since(c.started)
	c.complete()
	c.polite()
	if n := c.count(`SELECT count(*) FROM urls WHERE crash_count > 2`); n != 0 {
		t.Errorf("%d URLs crashed more than twice, but two services crashed, once each", n)
	}
	t.Logf("%d URLs in %.1f s: %d requests, %d leases crashed, %d lines of outcomes, %d bodies", c.urls, took.Seconds(), c.site.Count(),
		c.count(`SELECT sum(crash_count) FROM urls`), c.outcomes(), c.bodies(filepath.Join(c.dir, "bodies")))
}
