//go:build linux

package crawls

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDrain ends workers with pages under way that take longer than they have left:
// one in order, one at once. The next run fetches everything.
func TestDrain(t *testing.T) {
	ctx := long(t)
	for name, dsn := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "frontier.db") },
		"postgres": func(t *testing.T) string { return newPostgres(ctx, t).dsn() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrawl(ctx, t, dsn(t), 1)
			c.put(20, 200, 0)
			c.slow(20, "3000")
			held := func() int { return c.count(`SELECT count(*) FROM urls WHERE status = 'fetching'`) }

			first := c.worker("--drain-time", "200ms")
			c.requests(40)
			first.signal(syscall.SIGTERM)
			first.exits(ctx, 130)
			if n := held(); n != 0 {
				t.Errorf("after SIGTERM %d URLs are held, want 0", n)
			}
			if n := c.count(`SELECT count(*) FROM urls WHERE status NOT IN ('pending', 'fetched')`); n != 0 {
				t.Errorf("after SIGTERM %d URLs are neither pending nor fetched, want 0", n)
			}
			if !strings.Contains(first.text(), "stopping: ") {
				t.Errorf("SIGTERM was not told of:\n%s", first.text())
			}

			second := c.worker("--drain-time", "1h")
			before := c.site.Count()
			c.requests(before + 20)
			second.signal(syscall.SIGTERM)
			second.wrote(ctx, "stopping: ")
			second.signal(syscall.SIGTERM)
			second.exits(ctx, -1)
			left := held()

			c.finished(c.worker())
			c.complete()
			c.polite()
			t.Logf("%d URLs, %d requests; %d URLs were held when a worker ended at once", c.urls, c.site.Count(), left)
		})
	}
}
