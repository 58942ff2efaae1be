package fetch

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch/urls"
)

// TestFirstHeader checks that a shared header equals the one that would be built, and that no other
// header is shared.
func TestFirstHeader(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Egress: Egress{Unrestricted: true}, UserAgent: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, row := range []struct {
		name   string
		change func(*Request)
		shared bool
	}{
		{"nothing expected", func(*Request) {}, true},
		{"bytes as they are", func(r *Request) { r.KeepEncoding = true }, true},
		{"a download", func(r *Request) { r.Policy = classify.Download.Policy() }, true},
		{"an empty header", func(r *Request) { r.Header = http.Header{} }, true},
		{"a header", func(r *Request) { r.Header = http.Header{"Range": {"bytes=1-"}} }, false},
		{"a key", func(r *Request) { r.IdempotencyKey = "k" }, false},
		{"from another fetch", func(r *Request) { r.Hops = 1 }, false},
	} {
		r := NewRequest(classify.Standard)
		row.change(r)
		got := c.firstHeader(r)
		if diff := cmp.Diff(c.headerOf(r), got); diff != "" {
			t.Errorf("%s: the header is not the request's (-want +got)\n%s", row.name, diff)
		}
		again := c.firstHeader(r)
		again["X-Mark"] = nil
		if _, shared := got["X-Mark"]; shared != row.shared {
			t.Errorf("%s: shared %t, want %t", row.name, shared, row.shared)
		}
		delete(again, "X-Mark")
	}
}

// TestWaits checks that a shutdown ends the fetches that wait, and those that start to wait later.
// End ends the others. The list has no fetch that is over.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shutdown, shut := context.WithCancel(t.Context())
		c, err := New(Config{Egress: Egress{Unrestricted: true}, Shutdown: shutdown})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		started := func() *run { return c.newRun(t.Context(), NewRequest(classify.Standard), nil) }
		over, first, gone, second, later := started(), started(), started(), started(), started()
		over.setWaiting(true)
		over.setWaiting(false)
		first.setWaiting(true)
		gone.close()
		gone.close()
		second.setWaiting(true)
		shut()
		synctest.Wait()
		later.setWaiting(true)
		for name, row := range map[string]struct {
			*run
			want error
		}{"over": {over, nil}, "first": {first, errShutdown}, "second": {second, errShutdown}, "later": {later, errShutdown}} {
			if got := row.cancelCause(); got != row.want { //nolint:errorlint // the very one
				t.Errorf("%s ended by %v, want %v", name, got, row.want)
			}
		}
		second.close()
		if n := c.End(); n != 3 {
			t.Errorf("End = %d fetches, want 3", n)
		}
		last := started()
		for name, r := range map[string]*run{"over": over, "last": last} {
			if got := r.cancelCause(); got != errShutdown { //nolint:errorlint // the very one
				t.Errorf("%s ended by %v, want %v", name, got, errShutdown)
			}
		}
		for _, r := range []*run{last, over, later, first} {
			r.close()
		}
		if n := len(c.runs.all()); n != 0 {
			t.Errorf("%d fetches are listed that have ended", n)
		}
	})
}

// TestLargeStack checks that with many fetches in flight, one whose goroutine has a large stack already
// waits for its origin there, unless it needs more stack.
func TestLargeStack(t *testing.T) {
	t.Parallel()
	o, err := origin.Start(origin.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	for _, row := range []struct {
		name, key string
		change    func(*Request)
		idle      int // workers, of one, while the origin is waited for
	}{
		{"large stack", "large", func(r *Request) { r.LargeStack = true }, 1},
		{"large stack, events of attempts", "events", func(r *Request) { r.LargeStack, r.Events = true, Attempts }, 0},
		{"small stack", "small", func(*Request) {}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := crowded(t, Config{})
			c.workers.Call(func() {})
			for c.workers.Idle() == 0 { // it is on its way
				runtime.Gosched()
			}
			r := NewRequest(classify.Standard)
			r.Events = Ends
			row.change(r)
			r.URL, _ = urls.Parse(o.URL("http", "/s/"+row.key+"/silent"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan *Outcome, 1)
			go func() { ended <- c.Fetch(ctx, r, func(Event) error { return nil }) }()
			if _, err := o.Await(t.Context(), row.key, 1); err != nil {
				t.Fatal(err)
			}
			if got := c.workers.Idle(); got != row.idle {
				t.Errorf("%d workers idle while the origin is waited for, want %d", got, row.idle)
			}
			cancel()
			if out := <-ended; out.Failure == nil || out.Failure.Class != classify.Cancelled || out.Attempts != 1 {
				t.Errorf("%+v, want cancelled after 1 attempt", out)
			}
		})
	}
}

// TestLargeStackHandover checks the worker that reads the body: a limit that passes there is reported as
// that limit, and a panic of the sink reaches the caller.
func TestLargeStackHandover(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		panics bool // the sink does, when the attempt has ended
	}{
		{"the limit passes", false},
		{"the sink panics", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, r := crowded(t, Config{Dial: halfAnswer}), NewRequest(classify.Standard)
				r.URL, _ = urls.Parse("http://example.com/")
				r.LargeStack, r.Events, r.AttemptTimeout, r.Policy.MaxAttempts = true, Ends, time.Second, 1
				out, panicked := caught(func() *Outcome {
					return c.Fetch(t.Context(), r, func(Event) error {
						if row.panics {
							panic("a reason")
						}
						return nil
					})
				})
				if (panicked != nil) != row.panics {
					t.Errorf("panicked with %v, want one: %t", panicked, row.panics)
				}
				if !row.panics && (out.Failure == nil || out.Failure.Class != classify.AttemptTimeout || out.Failure.Phase != classify.PhaseTransfer || out.Response == nil) {
					t.Errorf("%+v, want ATTEMPT_TIMEOUT in the body", out)
				}
				if got := c.open.Load(); got != maxOnCaller {
					t.Errorf("%d fetches are open, want the %d from before", got, maxOnCaller)
				}
			})
		})
	}
}

// crowded returns a client with as many fetches in flight as run on their callers' goroutines.
func crowded(t *testing.T, cfg Config) *Client {
	t.Helper()
	cfg.Egress.Unrestricted = true
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.open.Store(maxOnCaller)
	return c
}

// halfAnswer is a [Config.Dial] to an origin in memory that never sends all of a body.
func halfAnswer(context.Context, string, string) (net.Conn, error) {
	ours, its := net.Pipe()
	go func() {
		if _, err := http.ReadRequest(bufio.NewReader(its)); err == nil {
			_, _ = io.WriteString(its, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			_, _ = io.Copy(io.Discard, its)
		}
	}()
	return ours, nil
}

// caught calls f and returns what it panics with; nil means that it returned.
func caught(f func() *Outcome) (out *Outcome, panicked any) {
	defer func() { panicked = recover() }()
	return f(), nil
}
