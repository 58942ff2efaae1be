//go:build linux

package crawls

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fetchd/test/rig"
)

// bucket is an S3 server whose objects are files.
type bucket struct {
	*testing.T
	program, address, data string
	process                *rig.Process
}

// start runs the server and waits until it listens.
func (b *bucket) start(ctx context.Context) {
	b.Helper()
	var err error
	b.process, err = rig.Start([]string{b.program, "--port", b.address, "--region", "us-east-1", "posix", b.data},
		[]string{"ROOT_ACCESS_KEY=id", "ROOT_SECRET_KEY=secret"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(b.process.Stop)
	rig.Until(ctx, b.T, "the bucket can be reached", func() bool {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// TestBucketDown crawls into a bucket that goes down in the middle and comes back. Every object must
// be the origin's body.
func TestBucketDown(t *testing.T) {
	ctx := long(t)
	program, err := exec.LookPath("versitygw")
	if err != nil {
		rig.Cannot(t, "%v: run PATH=$(.ci/tools versitygw):$PATH", err)
	}
	c := newCrawl(ctx, t, filepath.Join(t.TempDir(), "frontier.db"), 1)
	b := &bucket{T: t, program: program, address: rig.FreeAddress(t, "127.0.0.1"), data: filepath.Join(t.TempDir(), "data")}
	dir := filepath.Join(b.data, "bodies", "crawl")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.start(ctx)
	file := filepath.Join(c.dir, "stores.yaml")
	text := fmt.Sprintf(`stores: {archive: {url: "s3://bodies?region=us-east-1&use_path_style=true&endpoint=http://%s", prefix: crawl, access-key-id: id, secret-access-key: secret}}`, b.address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.body = c.site.Origin().Body(longest + 1<<20)
	pages := c.faulty(200, 2)
	c.add(urlsOf(pages))
	w := c.worker("--open", "32", "--accept", "any", "--max-body-bytes", "33554432", "--stores-file", file, "--bodies", "archive",
		"--total-timeout", "30s", "--lease", "45s")
	rig.Until(ctx, t, "bodies are stored", func() bool { return c.count(`SELECT count(*) FROM fetches`) >= 20 })
	b.process.Stop()
	w.wrote(ctx, "cannot keep a body")
	c.failing(w, 2)
	stored := c.bodies(dir) // each outcome has its body
	b.start(ctx)
	c.finished(w)
	c.complete()
	total := c.equal(pages, dir)
	t.Logf("%d bodies of %d MiB, %d of them before the bucket went down, in %.1f s, %d requests", len(pages), total>>20, stored, time.Since(c.started).Seconds(), c.site.Count())
}
