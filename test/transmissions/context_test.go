package transmissions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestContextIsOver checks that a fetch whose context is over sends nothing and costs no connection:
// it dials none, and the connection of the fetch before it carries the fetch after it.
func TestContextIsOver(t *testing.T) {
	t.Parallel()
	const tries = 200
	for _, row := range []struct {
		name string
		// over returns a context, and a sink. One of both ends the context before a request is sent.
		over func(context.Context) (context.Context, fetch.Sink)
	}{
		{"cancelled before the fetch", func(ctx context.Context) (context.Context, fetch.Sink) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, nil
		}},
		{"past its deadline before the fetch", func(ctx context.Context) (context.Context, fetch.Sink) {
			ctx, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
			cancel()
			return ctx, nil
		}},
		{"cancelled when the attempt starts", func(ctx context.Context) (context.Context, fetch.Sink) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, func(fetch.Event) error { cancel(); return nil }
		}},
	} {
		for protocol := 1; protocol <= 2; protocol++ {
			for _, isWarm := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP/%d, warm %t", row.name, protocol, isWarm), func(t *testing.T) {
					t.Parallel()
					o := start(t, answering(protocol))
					client := newClient(t)
					if isWarm {
						warm(t, client, o)
					}
					for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
						for range tries {
							ctx, sink := row.over(t.Context())
							out := client.Fetch(ctx, newRequest(t, classify.Standard, method, o.url+"/over"), sink)
							if out.Failure == nil || out.Failure.Class != classify.Cancelled && out.Failure.Class != classify.Deadline || out.Exchanges != 0 {
								t.Fatalf("%s: %s, %d requests, %+v: want a fetch that is over and sent nothing", method, out.Kind, out.Exchanges, out.Failure)
							}
						}
					}
					warm(t, client, o)
					if n := o.connections(); n != 1 {
						t.Errorf("%d connections, want one for the fetches before and after", n)
					}
					if got := o.requests("/over"); len(got) != 0 {
						t.Errorf("the origin received %d requests of fetches that were over", len(got))
					}
				})
			}
		}
	}
}

// TestCancelledAtAnyTime cancels fetches at random moments. What the origin has received was reported as
// sent.
func TestCancelledAtAnyTime(t *testing.T) {
	t.Parallel()
	const tries = 1000
	for protocol := 1; protocol <= 2; protocol++ {
		t.Run(fmt.Sprintf("HTTP/%d", protocol), func(t *testing.T) {
			t.Parallel()
			o := start(t, answering(protocol))
			client := newClient(t)
			warm(t, client, o)
			sent := make([]int, tries)
			var all sync.WaitGroup
			for worker := range 8 {
				all.Go(func() {
					for i := worker; i < tries; i += 8 {
						ctx, cancel := context.WithTimeout(t.Context(), rand.N(time.Millisecond))
						sent[i] = run(ctx, client, newRequest(t, classify.Standard, http.MethodPut, fmt.Sprintf("%s/%d", o.url, i))).sent()
						cancel()
					}
				})
			}
			all.Wait()
			warm(t, client, o)
			received, over := 0, 0
			for i := range tries {
				n := len(o.requests(fmt.Sprintf("/%d", i)))
				if n > sent[i] {
					t.Errorf("fetch %d: the origin received %d requests, %d were reported", i, n, sent[i])
				}
				received += n
				if sent[i] == 0 {
					over++
				}
			}
			t.Logf("%d of %d fetches were received, %d sent nothing", received, tries, over)
		})
	}
}

// TestBursts starts many fetches at once from an origin that no connection leads to yet. It permits five
// streams for each connection and refuses more. No fetch may meet a refusal, because each would cost an
// attempt.
func TestBursts(t *testing.T) {
	t.Parallel()
	const streams, fetches, rounds = 5, 50, 4
	var answers sync.WaitGroup
	var mu sync.Mutex
	open := make(map[int]int) // streams of each connection
	refused := 0
	o := start(t, script{http1: answer1, settings: []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: streams}},
		http2: func(f *frames, r request) bool {
			mu.Lock()
			defer mu.Unlock()
			if open[r.connection] == streams {
				refused++
				return resetStream(http2.ErrCodeRefusedStream)(f, r)
			}
			open[r.connection]++
			answers.Go(func() {
				<-time.After(20 * time.Millisecond) // others arrive in the meantime
				mu.Lock()
				open[r.connection]--
				mu.Unlock()
				answer2(f, r)
			})
			return true
		}})
	for round := range rounds {
		client := newClient(t)
		for range 2 { // cold, and then warm
			var all sync.WaitGroup
			for i := range fetches {
				all.Go(func() {
					path := fmt.Sprintf("/burst/%d/%d", round, i)
					r := newRequest(t, classify.Standard, http.MethodGet, o.url+path)
					r.Policy.MaxAttempts = 1
					if e := run(t.Context(), client, r); e.Kind != classify.Success || e.sent() != 1 || string(e.InlineBody) != path {
						t.Errorf("%s, %d requests, %q, %+v: want success", e.Kind, e.sent(), e.InlineBody, e.Failure)
					}
				})
			}
			all.Wait()
		}
	}
	answers.Wait()
	if refused != 0 {
		t.Errorf("the origin refused %d streams, want none", refused)
	}
	t.Logf("%d connections for %d times %d fetches", o.connections(), rounds, fetches)
}
