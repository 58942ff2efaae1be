package fetch_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/internal/budget"
)

// mute is a connection that is gone when the first byte is written.
type mute struct{ net.Conn }

func (m mute) Write([]byte) (int, error) {
	_ = m.Close()
	return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

// checkLast checks that no recording but the last one is kept, and that one only if the request was processed.
func (t *tape) checkLast(tb testing.TB, processed bool) {
	tb.Helper()
	for i, r := range t.recordings {
		kept := processed && i == len(t.recordings)-1
		if r.discarded == kept || kept && bytes.Count(r.sent, []byte("HTTP/1.1\r\n")) != 1 {
			tb.Errorf("recording %d of %d has %q; discarded: %t", i+1, len(t.recordings), r.sent, r.discarded)
		}
	}
}

// TestRepeats checks that a request of which nothing was written goes again within its attempt, up to three times
// and whatever its method. Each time it is whole and newly signed, and only the last one is counted, recorded and
// charged (I6). Limits and a cancellation apply meanwhile.
func TestRepeats(t *testing.T) {
	t.Parallel()
	silent := func(ctx context.Context, _ context.CancelFunc) { <-ctx.Done() }
	for _, row := range []struct {
		name     string
		mutes    int // of the first connections
		method   string
		body     int
		last     func(context.Context, context.CancelFunc) // when the connection after them is dialled
		attempts int
		class    classify.Class
	}{
		{name: "POST", mutes: 3, method: "POST", body: 10, attempts: 1},
		{name: "a long POST", mutes: 1, method: "POST", body: 100_000, attempts: 1},
		{name: "GET", mutes: 2, method: "GET", attempts: 1},
		{name: "POST once too often", mutes: 4, method: "POST", body: 10, attempts: 1, class: classify.ConnectionReset},
		{name: "GET once too often", mutes: 4, method: "GET", attempts: 2},
		{name: "never", mutes: 8, method: "PUT", body: 10, attempts: 2, class: classify.ConnectionReset},
		{name: "a limit", mutes: 1, method: "POST", last: silent, attempts: 1, class: classify.ConnectTimeout},
		{name: "cancelled", mutes: 1, method: "GET", last: func(ctx context.Context, cancel context.CancelFunc) { cancel(); silent(ctx, nil) }, attempts: 1, class: classify.Cancelled},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := newWire(t)
			dials := 0
			w.client = newClient(t, fetch.Config{Egress: unrestricted, Dial: func(dialled context.Context, network, address string) (net.Conn, error) {
				dials++
				if dials > row.mutes && row.last != nil {
					row.last(dialled, cancel)
				}
				c, err := new(net.Dialer).DialContext(dialled, network, address)
				if dials <= row.mutes && err == nil {
					c = mute{c}
				}
				return c, err
			}})
			records := &tape{}
			r := w.request("http", "/s/k/200")
			r.Method, r.Body, r.Recorder, r.Memory = row.method, bytes.Repeat([]byte("b"), row.body), records, budget.New(1<<30).Lease("a")
			r.Policy.MaxAttempts, r.Policy.BaseDelay, r.Events = 2, 0, fetch.All
			if row.class == classify.ConnectTimeout {
				r.ConnectTimeout = 20 * time.Millisecond
			}
			n := signs(r)
			res := w.run(ctx, r)
			var class classify.Class
			if res.Failure != nil {
				class = res.Failure.Class
			}
			seen := w.origin.Requests("k")
			if class != row.class || res.Attempts != row.attempts || res.Exchanges != len(seen) || strings.Count(strings.Join(res.order, " "), "started") != row.attempts {
				t.Errorf("%s after %d attempts and %d exchanges, events %v; want %s after %d", class, res.Attempts, res.Exchanges, res.order, row.class, row.attempts)
			}
			if want := min(row.mutes+1, 4*row.attempts); dials != want {
				t.Errorf("%d connections, want %d", dials, want)
			}
			if held := r.Memory.Held(budget.Receiving); held != 0 {
				t.Errorf("%d bytes are charged for connections", held)
			}
			records.checkLast(t, row.class == 0)
			for _, q := range seen {
				if diff := cmp.Diff(n.expected(dials-1), received(&q)); diff != "" || q.BodyBytes != int64(row.body) {
					t.Errorf("%d bytes, want %d; signed and received: %s", q.BodyBytes, row.body, diff)
				}
			}
		})
	}
}

// TestMisdirected checks that a 421 on a kept connection is followed by one attempt on a new one, over HTTP/1.1 and
// HTTP/2 (H11), and that the connection takes no other request.
func TestMisdirected(t *testing.T) {
	t.Parallel()
	const tag = ",etag=%22v1%22,range"
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request)
		attempts   int
		end        string // the rule of the class, or that of the outcome, and the stop reason
		retryable  bool
	}{
		{"then 200", "421/200:size=10", nil, 2, "H0", false},
		{"always", "421", nil, 2, "H6 not_retried", false},
		{"then other failures", "421/503/503/200", nil, 3, "H1 attempts_exhausted", true},
		{"after another failure", "503/421/200", nil, 3, "H0", false},
		{"to the only attempt", "421/200", func(r *fetch.Request) { r.Policy.MaxAttempts = 1 }, 1, "H11 attempts_exhausted", true},
		{"to a PUT", "421/200", func(r *fetch.Request) { r.Method, r.Body = "PUT", make([]byte, 100_000) }, 2, "H0", false},
		{"to a POST", "421/200", func(r *fetch.Request) { r.Method, r.Body = "POST", []byte("b") }, 1, "H6 not_retried", false},
		{"to a POST that may be repeated", "421/200", func(r *fetch.Request) {
			r.Method, r.IdempotencyKey, r.Policy.RepeatUnsafe = "POST", "key", true
		}, 2, "H0", false},
		{"as a status to retry", "421/421/200", func(r *fetch.Request) { r.Policy.Additional = []int{421} }, 3, "H0", false},
		{"instead of the rest of a body", "200:size=1000000,cut=600000" + tag + "/421/200:size=1000000" + tag, func(r *fetch.Request) { r.HoldBackBytes, r.Recovery = 0, fetch.Resume }, 3, "H0", false},
	} {
		for _, listener := range []string{"http", "https"} {
			if listener == "http" && strings.Contains(row.path, "cut") { // it ends the connection, and the 421 comes on a new one
				continue
			}
			t.Run(row.name+", "+listener, func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				w.fetch(w.request(listener, "/s/before/200"))
				r := w.request(listener, "/s/k/"+row.path)
				if row.change != nil {
					row.change(r)
				}
				res := w.fetch(r)
				end := string(res.Rule)
				if f := res.Failure; f != nil {
					end = string(f.Rule) + " " + res.StopReason.String()
				}
				if res.Attempts != row.attempts || end != row.end || res.Failure != nil && res.Failure.Retryable != row.retryable {
					t.Errorf("%s after %d attempts, %+v; want %s after %d, retryable %t", end, res.Attempts, res.Failure, row.end, row.attempts, row.retryable)
				}
				used := make(map[uint64]bool)
				for i, q := range w.origin.Requests("k") {
					if used[q.Connection] {
						t.Errorf("request %d came on the connection of a 421", i+1)
					}
					used[q.Connection] = q.Step == "421"
				}
			})
		}
	}
	w := newWire(t)
	if out := w.fetch(w.request("http", "/s/new/421/200")); out.Attempts != 1 || out.Failure == nil || out.Failure.Rule != "H6" {
		t.Errorf("on a new connection: %d attempts, %+v", out.Attempts, out.Failure)
	}
}
