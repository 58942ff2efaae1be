//go:build linux

package crawls

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fetchd/test/rig"
)

// wrapper runs the example with a resolver for the names of the site, whose name server it does not
// know.
const wrapper = `import runpy, socket, sys
real = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: real("127.0.0.1" if host.endswith(".test") else host, *more, **named)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
`

// TestAPI crawls with two workers and two Python programs, which use the API of frontier serve, on one
// PostgreSQL. One program is killed while it holds claims.
func TestAPI(t *testing.T) {
	ctx := long(t)
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		if python, err = exec.LookPath("python3"); err != nil {
			rig.Cannot(t, "Python is not installed: %v", err)
		}
	}
	c := newCrawl(ctx, t, newPostgres(ctx, t).dsn(), 1)
	pages := sized(12_000, 1600)
	c.put(sized(120, 60), pages, 0)
	address := c.serve()
	script := filepath.Join(t.TempDir(), "client.py")
	if err := os.WriteFile(script, []byte(wrapper), 0o600); err != nil {
		t.Fatal(err)
	}
	client := func(name string) *process {
		return start(t, name, python, script, "../../client/examples/crawl.py", "--api", "http://"+address, "--name", name, "--threads", "8",
			"--delay", fmt.Sprint(delay.Seconds()), "--lease", "3", "--quiet")
	}
	w1, w2 := c.worker("--open", "2"), c.worker("--open", "2")
	p1, p2 := client("p1"), client("p2")
	c.requests(pages / 3)
	held := c.hold(ctx, p2, "p2")
	p2.kill()
	p2.exits(ctx, -1)
	c.finished(w1, w2, p1)
	took := time.Since(c.started)
	c.complete()
	c.polite()
	workers := c.outcomes()
	t.Logf("%d URLs in %.1f s, %.0f/s: %d requests, %d by the workers, the killed program held %d", c.urls, took.Seconds(), float64(c.urls)/took.Seconds(),
		c.site.Count(), workers, held)
	if workers == 0 || workers >= c.urls*9/10 {
		t.Errorf("the workers recorded %d of %d URLs: both kinds of callers should have had a part", workers, c.urls)
	}
}

// hold suspends a process while its caller holds claims, and returns their number.
func (c *crawl) hold(ctx context.Context, p *process, name string) (held int) {
	c.Helper()
	rig.Until(ctx, c.T, name+" holds leases", func() bool {
		p.suspend()
		if held = c.count(`SELECT count(*) FROM urls WHERE worker = '` + name + `' AND status = 'fetching'`); held > 0 {
			return true
		}
		p.Signal(syscall.SIGCONT)
		return false
	})
	return held
}

// serve starts a frontier serve, and returns its HTTP address.
func (c *crawl) serve() string {
	c.Helper()
	p := start(c.T, "frontier serve", "frontier", "serve", "--db", c.dsn, "--delay", delay.String(), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	at, err := p.Serving(c.ctx)
	if err != nil {
		c.Fatal(err)
	}
	return at.HTTP
}
