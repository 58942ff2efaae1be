package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// startSite serves pages on loopback, at URLs with an IP address.
func startSite(t *testing.T, cfg site.Config) *site.Site {
	t.Helper()
	s, err := site.Start(cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// at returns a URL of the site with its IP address.
func at(s *site.Site, path string) string { return "http://" + s.Addr() + path }

// inside returns the flags that let the fetchd inside reach a port of 127.0.0.1, without a delay.
func inside(port int) []string {
	return []string{"--egress-allow-cidr", "127.0.0.0/8", "--egress-allow-port", fmt.Sprint(port), "--delay", "1ms"}
}

// run runs the crawl, with more flags.
func (c *fixture) run(flags []string, more ...string) result {
	c.t.Helper()
	return c.cli(append(append([]string{"crawl"}, flags...), more...)...)
}

// statuses returns the URLs of the crawl by status and error class.
func (c *fixture) statuses() map[string]int {
	c.t.Helper()
	got := make(map[string]int)
	c.store(func(s store.Store) error {
		for u, err := range s.URLs(c.t.Context()) {
			if err != nil {
				return err
			}
			got[strings.TrimSpace(fmt.Sprintf("%s %s", u.Status, u.ErrorClass))]++
		}
		return nil
	})
	return got
}

// background is a run that a test watches.
type background struct {
	t        *testing.T
	stop     context.CancelFunc // as SIGTERM does
	out, err *tail
	code     chan int
}

// start starts a run on the crawl.
func (c *fixture) start(args ...string) *background {
	c.t.Helper()
	return c.startWith(nil, args...)
}

// startWith starts a run with an environment.
func (c *fixture) startWith(env map[string]string, args ...string) *background {
	c.t.Helper()
	ctx, stop := context.WithCancel(c.t.Context())
	b := &background{t: c.t, stop: stop, code: make(chan int, 1)}
	var out, err io.WriteCloser
	b.out, out = newTail()
	b.err, err = newTail()
	go func() {
		b.code <- run(ctx, append([]string{"crawl", "--db", c.db}, args...), func(name string) string { return env[name] }, cli.Streams{In: strings.NewReader(""), Out: out, Err: err})
		_, _ = out.Close(), err.Close()
	}()
	return b
}

// end stops the run and checks its exit code.
func (b *background) end(want int) {
	b.t.Helper()
	b.stop()
	if got := <-b.code; got != want {
		b.t.Errorf("exit status %d, want %d", got, want)
	}
	b.out.rest()
	b.err.rest()
}

// tail sends the lines that are written to it to a channel.
type tail struct{ lines chan string }

func newTail() (*tail, io.WriteCloser) {
	r, w := io.Pipe()
	t := &tail{lines: make(chan string, 10_000)}
	go func() {
		defer close(t.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			t.lines <- s.Text()
		}
	}()
	return t, w
}

// until returns the first line with a prefix.
func (t *tail) until(tt *testing.T, prefix string) string {
	tt.Helper()
	var seen []string
	for line := range t.lines {
		if strings.HasPrefix(line, prefix) {
			return line
		}
		seen = append(seen, line)
	}
	tt.Fatalf("no line begins with %q: %q", prefix, seen)
	return ""
}

// rest returns the lines up to the end.
func (t *tail) rest() []string {
	var lines []string
	for line := range t.lines {
		lines = append(lines, line)
	}
	return lines
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
