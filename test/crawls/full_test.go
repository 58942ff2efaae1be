//go:build linux

package crawls

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fetchd/test/need"
	"fetchd/test/rig"
)

// TestDiskFull fills the disk of the database and the bodies in the middle of a crawl, and
// then frees it.
func TestDiskFull(t *testing.T) {
	ctx := long(t)
	dir := need.SmallDisk(t, "size=32m")
	c := newCrawl(ctx, t, filepath.Join(dir, "frontier.db"), 1)
	c.put(60, 1200, 300)
	const open = 16
	w := c.worker("--log-level", "debug", "--open", "16", "--bodies", filepath.Join(dir, "bodies"))
	c.requests(600)
	filler := filepath.Join(dir, "filler")
	c.fill(filler)
	w.wrote(ctx, "level=ERROR") // fetches in flight have failed to write
	before := c.site.Count()
	c.failing(w, 3)
	w.wrote(ctx, c.dsn+": database or disk is full")
	asked := c.site.Count() - before
	if most := 4 * open; asked > most {
		t.Errorf("%d requests while the disk was full, want at most %d", asked, most)
	}
	c.free(filler)
	c.finished(w)
	took := time.Since(c.started)
	c.complete()
	c.polite()
	t.Logf("%d URLs in %.1f s: %d requests, %d of them while the disk was full; %d lines of outcomes, %d bodies", c.urls, took.Seconds(),
		c.site.Count(), asked, c.outcomes(), c.bodies(filepath.Join(dir, "bodies")))
}

// free removes the file that fills the disk.
func (c *crawl) free(name string) {
	c.Helper()
	must(c, os.Remove(name))
}

// failing waits until a worker has logged errors in more than n different seconds.
func (c *crawl) failing(w *process, n int) {
	c.Helper()
	rig.Until(c.ctx, c.T, "the worker logs errors about the full disk repeatedly", func() bool { return len(seconds(w.log.String())) > n })
}

// fill writes to a file until the disk is full.
func (c *crawl) fill(name string) {
	c.Helper()
	f, err := os.Create(name)
	must(c, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		c.Fatalf("fill the disk: %v", err)
	}
}
