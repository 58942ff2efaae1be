//go:build linux

package crawls

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fetchd/test/rig"
)

// bucket starts a bucket for the bodies. It returns the folder with its objects, and the flags of a
// worker.
func (c *crawl) bucket() (b *rig.Bucket, dir string, flags []string) {
	c.Helper()
	b = rig.NewBucket(c.ctx, c.T, "bodies")
	file := filepath.Join(c.dir, "stores.yaml")
	text := fmt.Sprintf(`stores: {archive: {url: "s3://%s", prefix: crawl, access-key-id: %s, secret-access-key: %s}}`, b.Query(b.Address), rig.BucketKeyID, rig.BucketSecret)
	must(c, os.WriteFile(file, []byte(text), 0o600))
	return b, filepath.Join(b.Dir, "crawl"), []string{"--stores-file", file, "--bodies", "archive"}
}

// TestBucketDown crawls into a bucket that goes down in the middle and comes back. Every object must
// be the origin's body.
func TestBucketDown(t *testing.T) {
	ctx := long(t)
	c := newCrawl(ctx, t, filepath.Join(t.TempDir(), "frontier.db"), 1)
	b, dir, flags := c.bucket()
	c.body = c.site.Origin().Body(longest + 1<<20)
	pages := c.faulty(200, 2)
	c.add(urlsOf(pages))
	w := c.worker(append(flags, "--open", "32", "--accept", "any", "--max-body-bytes", "33554432", "--total-timeout", "30s")...)
	rig.Until(ctx, t, "bodies are stored", func() bool { return c.count(`SELECT count(*) FROM fetches`) >= 20 })
	b.Stop()
	w.wrote(ctx, "cannot keep a body")
	c.failing(w, 2)
	stored := c.bodies(dir) // each outcome has its body
	b.Start(ctx)
	c.finished(w)
	c.complete()
	total := c.equal(pages, dir)
	t.Logf("%d bodies of %d MiB, %d of them before the bucket went down, in %.1f s, %d requests", len(pages), total>>20, stored, time.Since(c.started).Seconds(), c.site.Count())
}
