//go:build linux

package crawls

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/frontier/store"
	"fetchd/internal/site"
	"fetchd/test/rig"
)

// web is pages of several hosts that link to each other. Page n links to pages 2n+1 and 2n+2, so that all
// are found from page 0, and to pages that were found before.
type web struct{ hosts, pages int }

func (w web) host(n int) string { return fmt.Sprintf("h%d", n*7%w.hosts) }

// page is [site.Config.Page]. Links need no port: they are at the port of the page.
func (w web) page(port func() int) func(host, target string) site.Page {
	return func(_, target string) site.Page {
		var n int
		if _, err := fmt.Sscanf(target, "/x/%d", &n); err != nil || n >= w.pages {
			return site.Page{}
		}
		var b strings.Builder
		for _, to := range []int{2*n + 1, 2*n + 2, n / 2, 0} {
			if to < w.pages {
				fmt.Fprintf(&b, "<a href=\"http://%s.demo.test:%d/x/%d\">%d</a>\n", w.host(to), port(), to, to)
			}
		}
		return site.Page{Type: "text/html", Body: b.String() + strings.Repeat(fmt.Sprintf("page %d ", n), 50)}
	}
}

// TestDiscoveryCrashes kills one of three workers, stops another one for longer than its lease, and
// kills the services, while a crawl finds its URLs. On both databases every page is found and recorded
// once, and no host receives a request too early.
func TestDiscoveryCrashes(t *testing.T) {
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
			w := web{hosts: 40, pages: 3000}
			var c *crawl
			c = newCrawlOf(ctx, t, dsn, 2, site.Config{Page: w.page(func() int { return c.site.Port() })})
			s, err := store.Open(ctx, dsn, store.Config{}) // one worker creates the database
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			seed := c.site.URL(w.host(0), "/x/0")
			flags := []string{"--scope", "domain", seed}
			w1, w2 := c.workerOf("crawl", flags...), c.workerOf("crawl", flags...)
			c.requests(10)
			w3 := c.workerOf("crawl") // joins the crawl of the database
			c.requests(w.pages / 3)
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
			c.requests(w.pages / 2)
			c.services[0].kill()
			c.finished(w1, w3)
			took := time.Since(c.started)
			c.urls = w.pages
			c.complete()
			c.polite()
			if n := c.count(`SELECT count(*) FROM urls u WHERE u.depth > 0 AND NOT EXISTS (SELECT 1 FROM urls p WHERE p.id = u.parent_id)`); n > 0 {
				t.Errorf("%d pages have a depth and no parent", n)
			}
			t.Logf("%d pages in %.1f s: %d requests, %d leases crashed, %d bodies", w.pages, took.Seconds(), c.site.Count(),
				c.count(`SELECT COALESCE(sum(crash_count), 0) FROM urls`), c.bodies(filepath.Join(c.dir, "bodies")))
		})
	}
}
