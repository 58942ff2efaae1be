//go:build linux

package crawls

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fetchd/test/need"
	"fetchd/test/rig"
)

// longest is the size of the longest body.
const longest = 20 << 20

// page is a page whose body the test knows.
type page struct {
	url    string
	digest string
	size   int64
}

// expect returns the page at a path of a host. The origin's last answer has size bytes from offset on.
func (c *crawl) expect(host int, path string, offset, size int64) page {
	sum := sha256.Sum256(c.body[offset : offset+size])
	return page{c.site.URL(fmt.Sprintf("h%d", host), path), hex.EncodeToString(sum[:]), size}
}

// faulty returns pages of 0 to 20 MiB, most of which break in their first answers. large is how many
// of eight pages may have more than 64 KiB.
func (c *crawl) faulty(pages, large int) []page {
	const from, middle = 16, 64 << 10
	between := func(low, high int64, part float64) int64 {
		return int64(float64(low) * math.Pow(float64(high)/float64(low), part))
	}
	all := make([]page, 0, pages)
	for n := range pages {
		part := float64(n) / float64(pages)
		size := between(from, middle, part)
		if n%8 < large {
			size = between(middle, longest, part)
		}
		switch n {
		case 0:
			size = 0
		case pages - 1:
			size = longest
		}
		offset := int64(n) // each body has its own bytes
		const tag = ",etag=%22v%22,range"
		body := fmt.Sprintf("size=%d,offset=%d", size, offset)
		whole := "200:" + body
		cut := fmt.Sprintf("%s,cut=%d", whole, size/2)
		script := [...]string{
			whole,
			cut + tag + "/" + cut + tag + "/" + whole + tag, // resumed twice
			cut + "/" + whole,                      // no validator: it starts over
			cut + ",etag=%22old%22/" + whole + tag, // another version: it starts over
			fmt.Sprintf("200:size=%d,offset=%d,cut=%d,etag=%%22old%%22,range/%s", size+100_000, offset, size/2+50_000, whole+tag), // one that is shorter
			cut + ",chunked,how=rst/" + whole + ",chunked",
			fmt.Sprintf("reset:at=in-body,after=%d/503/%s", size/2, whole),
			"503/fin/" + whole,
			"200:drip=65536@5ms," + body,
			fmt.Sprintf("200:%s,stall=%d/%s", body, size, whole), // the end is delayed until the client has all of it
		}[n%10]
		all = append(all, c.expect(n%200, fmt.Sprintf("/s/f%d/%s", n, script), offset, size))
	}
	return all
}

// urlsOf returns the URLs of pages.
func urlsOf(pages []page) []string {
	urls := make([]string, len(pages))
	for i, p := range pages {
		urls[i] = p.url
	}
	return urls
}

// equal checks that the body of each page, as the table names it, is the origin's. It returns the
// number of bytes.
func (c *crawl) equal(pages []page, dir string) (total int64) {
	c.Helper()
	for _, p := range pages {
		var digest string
		var size int64
		err := c.db.QueryRowContext(c.ctx, `SELECT body_digest, bytes FROM fetches WHERE status = 'fetched' AND url = ?`, p.url).Scan(&digest, &size)
		if err != nil || digest != p.digest || size != p.size {
			c.Errorf("%s: %d bytes with the digest %q, %v; want %d and %s", p.url, size, digest, err, p.size, p.digest)
		}
		total += p.size
	}
	c.bodies(dir) // compares each file with its name, and the table with the files
	if left := c.unfinished(dir); left > 0 {
		c.Errorf("%d unfinished files are left", left)
	}
	return total
}

// unfinished returns the number of bodies that are being written.
func (c *crawl) unfinished(dir string) int {
	c.Helper()
	names, err := os.ReadDir(filepath.Join(dir, ".incoming"))
	if err != nil && !os.IsNotExist(err) {
		c.Fatal(err)
	}
	return len(names)
}

// TestLongBodies crawls pages of up to 20 MiB from an origin with faults, and kills workers in the
// middle of bodies. Every body on the disk must be the origin's.
func TestLongBodies(t *testing.T) {
	ctx := long(t)
	const peak = 256 << 10 // KiB
	kills := rig.Pick("FETCHD_CRAWLS", 1, 3)
	c := newCrawl(ctx, t, filepath.Join(t.TempDir(), "frontier.db"), 1)
	c.body = c.site.Origin().Body(longest + 1<<20)
	pages := c.faulty(rig.Pick("FETCHD_CRAWLS", 700, 2000), rig.Pick("FETCHD_CRAWLS", 1, 4))
	for n := range 20 { // those that a kill interrupts
		pages = append(pages, c.expect(n, fmt.Sprintf("/s/k%d/200:size=%d,drip=65536@20ms", n, 4<<20+n), 0, int64(4<<20+n)))
	}
	c.add(urlsOf(pages))
	dir := filepath.Join(c.dir, "bodies")
	work := func() *process {
		return c.worker("--open", "128", "--accept", "any", "--max-body-bytes", "33554432", "--total-timeout", "14s")
	}
	w, interrupted, memory := work(), 0, 0
	for range kills {
		c.requests(c.site.Count() + 300)
		rig.Until(ctx, t, "bodies are being written", func() bool {
			w.suspend() // what is unfinished now is so at the kill
			if c.unfinished(dir) > 2 {
				return true
			}
			w.Signal(syscall.SIGCONT)
			return false
		})
		memory = max(memory, w.peak())
		w.kill()
		w.exits(ctx, -1)
		interrupted += c.unfinished(dir)
		w = work()
	}
	for running := true; running; {
		select {
		case <-w.Gone:
			running = false
		case <-time.After(100 * time.Millisecond):
			if _, now, err := w.Resident(); err == nil { // it may have ended meanwhile
				memory = max(memory, int(now>>10))
			}
		}
	}
	c.finished(w)
	took := time.Since(c.started)
	c.complete()
	total := c.equal(pages, dir)
	if memory > peak {
		t.Errorf("peak of a worker: %d KiB, want at most %d", memory, peak)
	}
	t.Logf("%d bodies of %d MiB in %.1f s: %d requests; %d kills of a worker while it wrote %d bodies in all; peak of a worker %d MiB, with up to 128 fetches in flight",
		len(pages), total>>20, took.Seconds(), c.site.Count(), kills, interrupted, memory>>10)
}

// TestDiskFullLong fills the disk of the bodies while long bodies arrive, and then frees it. The
// database is on another disk.
func TestDiskFullLong(t *testing.T) {
	ctx := long(t)
	dir := need.SmallDisk(t, "size=64m")
	c := newCrawl(ctx, t, filepath.Join(t.TempDir(), "frontier.db"), 1)
	const size, steps = 4 << 20, 64
	c.body = c.site.Origin().Body(size + steps)
	var pages []page
	for n := range 10 {
		pages = append(pages, c.expect(n, fmt.Sprintf("/s/d%d/200:size=%d,drip=%d@50ms", n, size+n, size/steps), 0, int64(size+n)))
	}
	c.add(urlsOf(pages))
	bodies := filepath.Join(dir, "bodies")
	w := c.worker("--accept", "any", "--bodies", bodies, "--total-timeout", "30s") // a body takes 3 s
	rig.Until(ctx, t, "bodies are being written", func() bool { return c.unfinished(bodies) == len(pages) })
	filler := filepath.Join(dir, "filler")
	c.fill(filler)
	w.wrote(ctx, "cannot keep a body", "no space left on device")
	rig.Until(ctx, t, "nothing is being written", func() bool { return c.unfinished(bodies) == 0 })
	c.bodies(bodies) // no outcome was recorded without its body
	c.free(filler)
	c.finished(w)
	c.complete()
	c.equal(pages, bodies)
	t.Logf("%d bodies in %.1f s, %d requests", len(pages), time.Since(c.started).Seconds(), c.site.Count())
}
