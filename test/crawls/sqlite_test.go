//go:build linux

package crawls

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/test/rig"
	"fetchd/test/wait"
)

// TestStopped stops one of three workers on one SQLite file for longer than its lease, and
// then continues it. By then other workers have claimed its URLs.
func TestStopped(t *testing.T) {
	ctx := long(t)
	c := newCrawl(ctx, t, filepath.Join(t.TempDir(), "frontier.db"), 2)
	c.put(60, 1200, 400)
	w1, w2, w3 := c.worker(), c.worker(), c.worker()
	host, err := os.Hostname()
	must(t, err)
	name := fmt.Sprintf("%s/%d", host, w1.Pid()) // of the worker in the database
	held := c.stop(w1, name)
	rig.Until(ctx, t, "another worker has claimed the URLs of the stopped one", func() bool {
		return c.count(`SELECT count(*) FROM urls WHERE worker = ? AND status = 'fetching'`, name) == 0 &&
			c.count(`SELECT count(*) FROM urls WHERE crash_count > 0 AND status = 'fetched'`) > 0
	})
	w1.Signal(syscall.SIGCONT)
	c.finished(w1, w2, w3)
	// Which of the two depends on whether the services have ended its streams meanwhile.
	if log := w1.log.String(); !strings.Contains(log, " stale") && !strings.Contains(log, " lost") {
		t.Errorf("w1 logs neither a stale outcome nor a lost one")
	}
	took := time.Since(c.started)
	c.complete()
	c.polite()
	if crashed := c.count(`SELECT sum(crash_count) FROM urls`); crashed != held {
		t.Errorf("%d leases crashed, want the %d of the stopped worker: its late results must not count", crashed, held)
	}
	t.Logf("%d URLs in %.1f s; the stopped worker held %d, %d leases crashed, %d lines of outcomes, %d bodies", c.urls, took.Seconds(),
		held, c.count(`SELECT sum(crash_count) FROM urls`), c.outcomes(), c.bodies(filepath.Join(c.dir, "bodies")))
}

// stop stops a worker while it holds leases whose requests have all been sent, and does not
// hold SQLite's lock, which would stop the others too. A stopped process sends its remaining
// requests when it continues, which no lease can prevent. stop returns the number of leases.
func (c *crawl) stop(w *process, name string) int {
	c.Helper()
	held := 0
	c.requests(300)
	rig.Until(c.ctx, c.T, name+" can be stopped", func() bool {
		w.suspend()
		if held = c.holds(name); held > 0 && c.asked(name) {
			return true
		}
		w.Signal(syscall.SIGCONT)
		return false
	})
	return held
}

// holds returns the number of leases of a worker, or zero if the database is locked.
func (c *crawl) holds(name string) int {
	c.Helper()
	conn, err := c.db.Conn(c.ctx)
	must(c, err)
	defer conn.Close()
	// The other workers hold the lock for milliseconds only.
	if _, err := conn.ExecContext(c.ctx, `PRAGMA busy_timeout = 500`); err != nil {
		c.Fatal(err)
	}
	if _, err := conn.ExecContext(c.ctx, `BEGIN IMMEDIATE`); err != nil {
		return 0
	}
	defer func() { _, _ = conn.ExecContext(c.ctx, `ROLLBACK`) }()
	return c.count(`SELECT count(*) FROM urls WHERE worker = ? AND status = 'fetching'`, name)
}

// asked reports whether the origin has received a request for every URL that a worker has
// leased, or receives it within a moment.
func (c *crawl) asked(name string) bool {
	c.Helper()
	rows, err := c.db.QueryContext(c.ctx, `SELECT url FROM urls WHERE worker = ? AND status = 'fetching'`, name)
	must(c, err)
	defer func() { _ = rows.Close() }()
	missing := map[string]bool{}
	for rows.Next() {
		var text string
		must(c, rows.Scan(&text))
		u, err := url.Parse(text)
		must(c, err)
		missing[u.Hostname()+u.RequestURI()] = true
	}
	must(c, rows.Err())
	for range 20 {
		for _, v := range c.site.Visits() {
			delete(missing, v.Host+v.Path)
		}
		if len(missing) == 0 {
			return true
		}
		if !wait.For(c.ctx, 10*time.Millisecond) {
			break
		}
	}
	return false
}
