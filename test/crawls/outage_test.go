//go:build linux

package crawls

import (
	"context"
	"database/sql"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/test/rig"
	"fetchd/test/wait"
)

// TestOneDown stops one of four databases, continues it, and later crashes another one. Meanwhile the hosts of the
// other databases keep their pace. Its own continue when it works again. Nothing is lost.
func TestOneDown(t *testing.T) {
	t.Parallel() // first: the time of other tests does not count
	ctx := rig.Long(t, rig.Pick("FETCHD_CRAWLS", limit, 3*limit))
	const hosts, delay = 40, 500 * time.Millisecond
	outage := rig.Pick("FETCHD_CRAWLS", 10*time.Second, time.Minute)
	var c *crawl
	w := &web{hosts: hosts, pages: 400, some: 400, at: func(host, path string) string { return c.site.URL(host, path) }}
	c = newCrawlMany(ctx, t, newMany(t, 4), 1, site.Config{Page: w.page, Robots: w.robots, Suffix: "test"})
	c.delay = delay
	urls := make([]string, w.pages)
	for n := range urls {
		urls[n] = w.url(n)
	}
	c.add(urls)
	// Pages are fetched again and again, so no host runs out of them.
	worker := c.workerOf("crawl", "--scope", "all", "--open", "100", "--recrawl", "1s", "--recrawl-min", "1s", "--recrawl-max", "1s", urls[0])
	c.requests(2 * hosts)
	requests := func() map[string]int {
		byHost := map[string]int{}
		for _, v := range c.site.Visits() {
			byHost[v.Host]++
		}
		return byHost
	}
	down := func(number int, kill, start func()) {
		own := c.many[number].hosts(ctx)
		pace := func() float64 {
			at, before := time.Now(), requests()
			wait.For(ctx, outage)
			n := 0
			for host, after := range requests() {
				if !own[host] {
					n += after - before[host]
				}
			}
			return float64(n) / time.Since(at).Seconds()
		}
		before := pace()
		kill()
		meanwhile := pace()
		atEnd, ended := requests(), time.Now()
		start()
		rig.Until(ctx, t, "the hosts of the database continue", func() bool {
			now := requests()
			for host := range own {
				if now[host] == atEnd[host] {
					return false
				}
			}
			return true
		})
		t.Logf("database %d with %d of %d hosts is down for %v: the others had %.1f requests/s before and %.1f/s meanwhile (%.2f); its own continue after %v",
			number, len(own), hosts, outage, before, meanwhile, meanwhile/before, time.Since(ended).Round(time.Millisecond))
		rig.AtLeast(t, "the pace of the other hosts", meanwhile/before, 0.9)
	}
	a, b := c.many[1], c.many[2]
	down(1, func() { must(t, a.Suspend()) }, func() { must(t, a.Resume()) })
	down(2, b.kill, func() { b.restart(b.dsn()) })
	c.delivered()
	worker.Signal(syscall.SIGTERM)
	worker.exits(ctx, 130)
	c.placed()
	c.polite()
	for _, p := range c.many {
		p.logged()
	}
}

// hosts returns the names of the hosts in a database, without ports.
func (p *postgres) hosts(ctx context.Context) map[string]bool {
	p.Helper()
	db, err := sql.Open("pgx", p.dsn())
	must(p, err)
	defer db.Close()
	names := map[string]bool{}
	for name := range texts(ctx, p.T, db, `SELECT host FROM hosts`) {
		host, _, _ := strings.Cut(name, ":")
		names[host] = true
	}
	return names
}
