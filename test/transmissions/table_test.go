package transmissions

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/test/wait"
)

// always is more transmissions than any fetch makes.
const always = 100

// fault is what an origin does to a request, or to an idle connection.
type fault struct {
	name  string
	class classify.Class
	// http1 and http2 commit the fault. They report whether to keep the connection. A fault without
	// http2 is tested over HTTP/1.1 only. POST takes a connection of HTTP/1.1 from any origin.
	http1 func(net.Conn) bool
	http2 func(*frames, request) bool
	// only2 is set if only HTTP/2 has the fault, and http1 is what POST meets in its place.
	only2 bool
	// idle is set if the fault is committed once, on the connection that has carried the first request.
	idle bool
	// reused is set if the fault is committed only on connections that have carried a request.
	reused bool
}

var faults = []fault{
	{name: "reset on a reused connection", class: classify.ConnectionReset, http1: reset1, http2: reset2, reused: true},
	{name: "reset before the head", class: classify.ConnectionReset, http1: reset1, http2: reset2},
	{name: "close before the head", class: classify.ConnectionReset, http1: close1, http2: close2},
	{name: "GOAWAY", class: classify.ConnectionReset, http1: close1, http2: goAway(http2.ErrCodeNo), only2: true},
	{name: "GOAWAY with an error", class: classify.ConnectionReset, http1: close1, http2: goAway(http2.ErrCodeEnhanceYourCalm), only2: true},
	{name: "REFUSED_STREAM", class: classify.ConnectionReset, http1: close1, http2: resetStream(http2.ErrCodeRefusedStream), only2: true},
	{name: "RST_STREAM INTERNAL_ERROR", class: classify.ConnectionReset, http1: close1, http2: resetStream(http2.ErrCodeInternal), only2: true},
	{name: "close in HEADERS", class: classify.ConnectionReset, http1: close1, http2: halfHead, only2: true},
	{name: "GOAWAY, then close", class: classify.ConnectionReset, http1: close1, http2: lastStream(close2), only2: true},
	{name: "GOAWAY, then the answer", http1: answer204, http2: lastStream(answer2), only2: true},
	{name: "408 on an idle connection", http1: late408, idle: true},
	{name: "close of an idle connection", http1: leave, http2: func(f *frames, _ request) bool { return leave(f) }, idle: true},
	{name: "GOAWAY on an idle connection", http2: dismiss, only2: true, idle: true},
	{name: "silence", class: classify.ResponseTimeout, http1: silent1, http2: silent2},
}

// cell is a fetch from an origin that commits a fault.
type cell struct {
	fault
	count    int // how many transmissions meet the fault
	method   string
	protocol int
	warm     bool
	max      int
	profile  classify.Profile
}

// cells are the fetches of one fault, by name.
func (f fault) cells() map[string]cell {
	all := make(map[string]cell)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodPost} {
		for _, warm := range []bool{false, true} {
			for _, attempts := range []int{1, 3} {
				for protocol := 1; protocol <= 2; protocol++ {
					for _, p := range profiles {
						for _, count := range []int{2, always} {
							if protocol == 1 && f.only2 || protocol == 2 && f.http2 == nil || count == 2 && (f.idle || f.reused) {
								continue
							}
							name := fmt.Sprintf("%s HTTP/%d warm=%t attempts=%d %s", method, protocol, warm, attempts, p.name)
							if count == 2 {
								name += " twice"
							}
							all[name] = cell{f, count, method, protocol, warm, attempts, p.profile}
						}
					}
				}
			}
		}
	}
	return all
}

// origin starts an origin that commits the cell's fault.
func (c cell) origin(t *testing.T) *origin {
	fails := func(r request) bool {
		switch {
		case c.idle:
			return false
		case r.path == "/warm":
			return false
		case c.reused:
			return r.place > 1
		}
		return r.turn <= c.count
	}
	s := script{http1: func(conn net.Conn, r request) bool {
		switch {
		case fails(r):
			return c.http1(conn)
		case c.idle && r.path == "/warm":
			return answer1(conn, r) && c.http1(conn)
		}
		return answer1(conn, r)
	}}
	if c.protocol == 2 {
		s.http2 = func(f *frames, r request) bool {
			switch {
			case fails(r):
				return c.http2(f, r)
			case c.idle && r.path == "/warm":
				return answer2(f, r) && c.http2(f, r)
			}
			return answer2(f, r)
		}
	}
	return start(t, s)
}

// TestOneTransmission commits faults of every kind to requests of every kind. The origin receives one
// request for each hop that is reported as sent, and the rules alone decide how many there are: the
// state of the pool does not, unless the fault is one of reused connections.
func TestOneTransmission(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			defer all.Wait()
			for name, c := range f.cells() {
				all.Go(func() { t.Run(name, c.check) })
			}
		})
	}
}

func (c cell) check(t *testing.T) {
	o := c.origin(t)
	client := newClient(t)
	began := time.Now()
	if c.warm {
		warm(t, client, o)
		if c.idle {
			until(t, "the client has seen the end of the connection", func() bool {
				return !o.isOpen(1) || len(o.requests(pingAnswer)) > 0
			})
		}
	}
	r := newRequest(t, c.profile, c.method, o.url+"/fault")
	r.Policy.MaxAttempts = c.max
	if c.class == classify.ResponseTimeout {
		r.HeaderTimeout = 5 * time.Second // all cells send at the same time
	}
	e := run(t.Context(), client, r)
	recent := time.Since(began) < 800*time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The origin may read a request after the fetch has given it up. What it never reads is reported below.
	_ = wait.Until(ctx, time.Millisecond, func() bool { return len(o.requests("/fault")) >= e.sent() })

	received := o.requests("/fault")
	failing := c.failing(received, recent)
	attempts, stop := min(failing+1, c.max), classify.AttemptsExhausted
	protocol := c.protocol
	if !classify.Idempotent(c.method) {
		attempts, stop = 1, classify.NotIdempotent
		protocol = 1 // on a connection that no other request uses
	}
	if e.Attempts != attempts || e.sent() != attempts || len(received) != attempts {
		t.Errorf("%d attempts, %d requests reported, the origin received %d: want %d", e.Attempts, e.sent(), len(received), attempts)
	}
	switch success := failing < attempts; {
	case success && e.Kind != classify.Success:
		t.Errorf("%s, %+v: want success", e.Kind, e.Failure)
	case !success && (e.class() != c.class.String() || e.StopReason != stop):
		t.Errorf("%s, %s, %s: want %s, %s", e.Kind, e.class(), e.StopReason, c.class, stop)
	}
	c.checkAttempts(t, r.Policy, e)
	if i := slices.IndexFunc(received, func(r request) bool { return r.protocol != protocol }); i >= 0 {
		t.Errorf("request %d came over HTTP/%d, want HTTP/%d", i+1, received[i].protocol, protocol)
	}
}

// failing returns how many requests of the fetch must fail if there are enough attempts. recent
// reports whether the connection of the first fetch was used within 0.8 s.
func (c cell) failing(received []request, recent bool) int {
	switch {
	case c.class == classify.NoClass, c.reused && (!c.warm || !classify.Idempotent(c.method)):
		return 0
	case c.reused:
		// If only one attempt is permitted, it takes a connection that was used within 0.8 s, or else
		// a new one.
		if recent || c.max > 1 || len(received) > 0 && received[0].place > 1 {
			return 1
		}
		return 0
	}
	return c.count
}

// checkAttempts checks each attempt that failed: its class, and the wait after it.
func (c cell) checkAttempts(t *testing.T, policy classify.Policy, e ending) {
	t.Helper()
	for i, a := range e.attempts {
		if len(a.Hops) != 1 || !a.Hops[0].Exchange.Sent {
			t.Errorf("attempt %d: %d hops, want one that sent its request: %+v", a.Attempt, len(a.Hops), a.Hops)
		}
		if last := i == len(e.attempts)-1; last && e.Kind == classify.Success {
			continue
		}
		if a.Failure == nil || a.Failure.Class != c.class {
			t.Errorf("attempt %d: %+v, want %s", a.Attempt, a.Failure, c.class)
		}
		if want := policy.Backoff(a.Attempt) + policy.Jitter(a.Attempt); a.Decision.Verdict == classify.Retry && a.Decision.Delay != want {
			t.Errorf("attempt %d: a wait of %v, want %v", a.Attempt, a.Decision.Delay, want)
		}
	}
}
