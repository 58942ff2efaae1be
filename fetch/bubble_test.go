package fetch_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"fetchd/classify"
	"fetchd/conformance/origin"
	"fetchd/fetch"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// newBubble returns a wire with connections in memory, for a synctest bubble.
func newBubble(t *testing.T, shutdown context.Context) *wire {
	t.Helper()
	o := origin.New(origin.Config{Seed: 1})
	l := bufconn.Listen(64 << 10)
	go func() { _ = o.Serve(l) }() // ends with Close
	// One at a time: a connection of bufconn begins with timers that fire at once, and of
	// those Go 1.26's race detector takes no two in one bubble at one time.
	dialling := make(chan struct{}, 1)
	c, err := fetch.New(fetch.Config{
		Egress:   fetch.Egress{Unrestricted: true},
		Shutdown: shutdown,
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			if strings.HasPrefix(address, "silent.") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			select {
			case dialling <- struct{}{}:
				defer func() { <-dialling }()
				return l.DialContext(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	must(t, err)
	t.Cleanup(func() {
		c.Close()
		_ = o.Close()
		_ = l.Close()
	})
	return &wire{T: t, origin: o, client: c}
}

// standard returns a GET of path with the defaults of a profile and a fixed seed.
func (w *wire) standard(profile classify.Profile, path string) *fetch.Request {
	w.Helper()
	u, err := urls.Parse("http://origin.example" + path)
	must(w, err)
	r := fetch.NewRequest(profile)
	r.URL = u
	if parts := strings.Split(path, "/"); len(parts) > 2 {
		w.key = parts[2]
	}
	return r
}

// gaps returns the times between the requests that the origin received.
func (w *wire) gaps() []time.Duration {
	var gaps []time.Duration
	seen := w.origin.Requests(w.key)
	for i := 1; i < len(seen); i++ {
		gaps = append(gaps, seen[i].Time.Sub(seen[i-1].Time))
	}
	return gaps
}

// TestWaits measures the wait before each retry at the origin. Time in a bubble is exact.
func TestWaits(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	for _, row := range []struct {
		name    string
		profile classify.Profile
		path    string
		change  func(*fetch.Request)
		gaps    []time.Duration
		stop    classify.Verdict
		total   time.Duration
	}{
		{"STANDARD waits 200 and 400 ms", classify.Standard, "/s/a/503", nil,
			[]time.Duration{200 * ms, 400 * ms}, classify.AttemptsExhausted, 600 * ms},
		{"STANDARD goes on to 800 ms and stays at 2 s", classify.Standard, "/s/a/503",
			func(r *fetch.Request) { r.Policy.MaxAttempts = 7 },
			[]time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2 * s, 2 * s}, classify.AttemptsExhausted, 7 * s},
		{"DOWNLOAD waits 1, 2 and 4 s", classify.Download, "/s/a/503",
			func(r *fetch.Request) { r.Policy.MaxJitter = 0 },
			[]time.Duration{s, 2 * s, 4 * s}, classify.AttemptsExhausted, 7 * s},
		{"DOWNLOAD with the jitter of a seed", classify.Download, "/s/a/503",
			func(r *fetch.Request) { r.Policy.JitterSeed = 42; r.Policy.MaxAttempts = 3 },
			[]time.Duration{s + jitter(43), 2*s + jitter(44)}, classify.AttemptsExhausted, 3*s + jitter(43) + jitter(44)},
		{"Retry-After in seconds", classify.Standard, "/s/a/429:retry-after=7/200", nil, []time.Duration{7 * s}, 0, 7 * s},
		{"Retry-After 0", classify.Standard, "/s/a/429:retry-after=0/200", nil, []time.Duration{0}, 0, 0},
		{"Retry-After on a 503", classify.Standard, "/s/a/503:retry-after=3/200", nil, []time.Duration{3 * s}, 0, 3 * s},
		{"Retry-After on a 500 is ignored", classify.Standard, "/s/a/500:retry-after=3/200", nil, []time.Duration{200 * ms}, 0, 200 * ms},
		{"Retry-After as a date", classify.Standard, "/s/a/429:retry-after-date=5,form=imf/200", nil, []time.Duration{5 * s}, 0, 5 * s},
		{"Retry-After as an RFC 850 date", classify.Standard, "/s/a/429:retry-after-date=5,form=rfc850/200", nil, []time.Duration{5 * s}, 0, 5 * s},
		{"Retry-After as an asctime date", classify.Standard, "/s/a/429:retry-after-date=5,form=asctime/200", nil, []time.Duration{5 * s}, 0, 5 * s},
		{"Retry-After that is invalid", classify.Standard, "/s/a/429:retry-after=soon/200", nil, []time.Duration{200 * ms}, 0, 200 * ms},
		{"Retry-After that overflows", classify.Standard, "/s/a/429:retry-after=9223372037/200", nil, nil, classify.RetryAfterTooLong, 0},
		{"Retry-After too long", classify.Standard, "/s/a/429:retry-after=31/200", nil, nil, classify.RetryAfterTooLong, 0},
		{"no time for the wait", classify.Standard, "/s/a/503",
			func(r *fetch.Request) { r.TotalTimeout = 300 * ms }, []time.Duration{200 * ms}, classify.NoTime, 200 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t, nil)
				r := w.standard(row.profile, row.path)
				if row.change != nil {
					row.change(r)
				}
				res := w.fetch(r)
				if got := w.gaps(); !slices.Equal(got, row.gaps) {
					t.Errorf("gaps %v, want %v", got, row.gaps)
				}
				if res.StopReason != row.stop || res.Total != row.total {
					t.Errorf("stop %s after %v, want %s after %v", res.StopReason, res.Total, row.stop, row.total)
				}
				for i, gap := range row.gaps {
					if d := res.finished[i].Decision.Delay; d != gap {
						t.Errorf("attempt %d reports a delay of %v, the origin saw %v", i+1, d, gap)
					}
				}
			})
		})
	}
}

// jitter is splitmix64(x) mod 501 ms, by the definition of spec §2.
func jitter(x uint64) time.Duration {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return time.Duration((x^x>>31)%501) * time.Millisecond
}

// TestTimeLimits lets each limit of spec §9, and the caller's deadline, pass. Time in a bubble is exact.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, row := range []struct {
		name, url string
		change    func(*fetch.Request)
		class     classify.Class
		stop      classify.Verdict
		total     time.Duration
	}{
		{"header_timeout of 15 s", "http://origin.example/s/t/silent", nil, classify.ResponseTimeout, classify.AttemptsExhausted, 15 * s},
		{"idle_timeout of 15 s", "http://origin.example/s/t/200:size=100,stall=10", nil, classify.BodyTimeout, classify.AttemptsExhausted, 15 * s},
		{"connect_timeout of 10 s", "http://silent.example/", nil, classify.ConnectTimeout, classify.AttemptsExhausted, 10 * s},
		{"attempt_timeout of 30 s", "http://origin.example/s/t/200:size=100,drip=1/1s", nil, classify.AttemptTimeout, classify.AttemptsExhausted, 30 * s},
		{"total_timeout of 60 s", "http://origin.example/s/t/200:size=1000,drip=1/1s",
			func(r *fetch.Request) { r.AttemptTimeout = 0 }, classify.Deadline, classify.DeadlinePassed, 60 * s},
		{"total_timeout while connecting", "http://silent.example/",
			func(r *fetch.Request) { r.TotalTimeout = 4 * s }, classify.Deadline, classify.DeadlinePassed, 4 * s},
		{"deadline of the caller while connecting", "http://silent.example/", nil, classify.Deadline, classify.DeadlinePassed, 3 * s},
		{"deadline of the caller before the head", "http://origin.example/s/t/silent", nil, classify.Deadline, classify.DeadlinePassed, 3 * s},
		{"deadline of the caller in the body", "http://origin.example/s/t/200:size=9,stall=3", nil, classify.Deadline, classify.DeadlinePassed, 3 * s},
		{"a long body within the limits", "http://origin.example/s/t/200:size=25,drip=1/1s", nil, 0, 0, 25 * s},
		{"a body as slow as idle_timeout allows", "http://origin.example/s/t/200:size=4,drip=1/14s",
			func(r *fetch.Request) { r.AttemptTimeout = 0 }, 0, 0, 42 * s},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t, nil)
				r := w.standard(classify.Standard, "/s/t/")
				u, err := urls.Parse(strings.ReplaceAll(row.url, "drip=1/", "drip=1%2F"))
				must(t, err)
				r.URL, r.Policy.MaxAttempts = u, 1
				if row.change != nil {
					row.change(r)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if strings.HasPrefix(row.name, "deadline of the caller") {
					ctx, cancel = context.WithTimeout(ctx, row.total)
				}
				defer cancel()
				res := w.run(ctx, r)
				class := classOf(res.Failure)
				if class != row.class || res.StopReason != row.stop {
					t.Errorf("class %s, stop %s, want %s, %s", class, res.StopReason, row.class, row.stop)
				}
				if class == classify.ResponseTimeout && !strings.Contains(res.Failure.Message, ": header_timeout 15s, the default of profile standard; no attempt") {
					t.Errorf("the message does not name the limit: %s", res.Failure.Message)
				}
				if res.Total < row.total-s || res.Total > row.total {
					t.Errorf("ended after %v, want %v", res.Total, row.total)
				}
			})
		})
	}
}

// TestErrorBodyTakesTime checks that the time of reading the body of a failed response or of a
// redirect is part of the transfer time of its hop, and of the limits of attempt and fetch.
func TestErrorBodyTakesTime(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request)
		transfer   time.Duration   // of the first hop
		end        string          // class and verdict of the first attempt
		gaps       []time.Duration // between requests
	}{
		{"a stalled 503", "/s/a/503:size=100,stall=10/200", nil, 2000 * ms, "http_server_error retry", []time.Duration{2200 * ms}},
		{"a dripping 503", "/s/a/503:size=100,drip=1%2F1s/200", nil, 2000 * ms, "http_server_error retry", []time.Duration{2200 * ms}},
		{"a whole 503", "/s/a/503:size=100/200", nil, 0, "http_server_error retry", []time.Duration{200 * ms}},
		{"no error body", "/s/a/503:size=100,stall=10/200", func(r *fetch.Request) { r.ErrorBodyBytes = 0 }, 0, "http_server_error retry", []time.Duration{200 * ms}},
		{"a shorter idle timeout", "/s/a/503:size=100,stall=10/200", func(r *fetch.Request) { r.IdleTimeout = 500 * ms }, 500 * ms, "http_server_error retry", []time.Duration{700 * ms}},
		{"a shorter attempt timeout", "/s/a/503:size=100,stall=10/200", func(r *fetch.Request) { r.AttemptTimeout = 700 * ms }, 700 * ms, "http_server_error retry", []time.Duration{900 * ms}},
		{"a shorter total timeout", "/s/a/503:size=100,stall=10/200", func(r *fetch.Request) { r.TotalTimeout = 900 * ms }, 900 * ms, "http_server_error no_time", nil},
		{"a 404", "/s/a/404:size=100,stall=10/200", nil, 2000 * ms, "http_client_error not_retried", nil},
		{"a stalled redirect", "/s/a/302:size=100,stall=10,to=%2Fs%2Fb%2F404", nil, 250 * ms, "http_client_error not_retried", nil},
		{"a long redirect", "/s/a/302:size=5000,stall=10,to=%2Fs%2Fb%2F404", nil, 0, "http_client_error not_retried", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t, nil)
				r := w.standard(classify.Standard, row.path)
				if row.change != nil {
					row.change(r)
				}
				var first *fetch.AttemptFinished
				w.client.Fetch(t.Context(), r, func(e fetch.Event) error {
					if f, ok := e.(fetch.AttemptFinished); ok && f.Attempt == 1 {
						first = &f
					}
					return nil
				})
				end := first.Failure.Class.String() + " " + first.Decision.Verdict.String()
				if took := first.Hops[0].Exchange.Transfer; took != row.transfer || end != row.end {
					t.Errorf("transfer %v, %s; want %v, %s", took, end, row.transfer, row.end)
				}
				if gaps := w.gaps(); !slices.Equal(gaps, row.gaps) {
					t.Errorf("gaps %v, want %v", gaps, row.gaps)
				}
			})
		})
	}
}

// TestBackpressure checks that a slow caller is not taken for a silent origin (B7).
func TestBackpressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t, nil)
		r := w.standard(classify.Standard, "/s/bp/200:size=200000")
		r.HoldBackBytes = 0
		r.TotalTimeout = 10 * time.Minute
		var took time.Duration
		out := w.client.Fetch(t.Context(), r, func(e fetch.Event) error {
			if _, ok := e.(fetch.BodyChunk); ok {
				<-time.After(20 * time.Second) // longer than idle_timeout
				took += 20 * time.Second
			}
			return nil
		})
		if out.Kind != classify.Success || out.Body.Size != 200000 {
			t.Fatalf("%s with %d bytes (%+v), want success with 200000", out.Kind, out.Body.Size, out.Failure)
		}
		if got := out.Hops[0].Exchange.Backpressure; got != took || took < 100*time.Second {
			t.Errorf("back-pressure %v, the caller took %v", got, took)
		}
	})
}

// TestEnds cancels a fetch in each phase.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, url string
		shutdown  bool // instead of cancel
		class     classify.Class
		attempts  int
		retryable bool
	}{
		{"cancel while connecting", "http://silent.example/", false, classify.Cancelled, 1, false},
		{"cancel while waiting for the head", "http://origin.example/s/e/silent", false, classify.Cancelled, 1, false},
		{"cancel inside the body", "http://origin.example/s/e/200:size=10,stall=5", false, classify.Cancelled, 1, false},
		{"cancel in a wait", "http://origin.example/s/e/503:retry-after=20", false, classify.Cancelled, 1, false},
		{"shutdown in a wait", "http://origin.example/s/e/503:retry-after=20", true, classify.Shutdown, 1, true},
		{"shutdown before a wait", "http://origin.example/s/e/503:delay=10s", true, classify.Shutdown, 1, true},
		{"shutdown does not end an attempt", "http://origin.example/s/e/200:delay=10s", true, 0, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shutdown, shut := context.WithCancel(t.Context())
				defer shut()
				w := newBubble(t, shutdown)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := cancel
				if row.shutdown {
					end = shut
				}
				defer time.AfterFunc(5*time.Second, end).Stop()
				r := w.standard(classify.Standard, "/s/e/")
				r.URL, _ = urls.Parse(row.url)
				res := w.run(ctx, r)
				var class classify.Class
				var retryable bool
				if res.Failure != nil {
					class, retryable = res.Failure.Class, res.Failure.Retryable
				}
				if class != row.class || retryable != row.retryable || res.Attempts != row.attempts {
					t.Errorf("class %s, retryable %t, attempts %d, want %s, %t, %d",
						class, retryable, res.Attempts, row.class, row.retryable, row.attempts)
				}
				if row.class != 0 && res.StopReason != classify.Stopped {
					t.Errorf("stop reason %s, want stopped", res.StopReason)
				}
				if want := 5 * time.Second; !row.shutdown && res.Total != want {
					t.Errorf("ended after %v, want %v", res.Total, want)
				}
			})
		})
	}
}

// TestEnd ends fetches in every phase, and those that start later.
func TestEnd(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, url string
		change    func(*fetch.Request)
		after     time.Duration // of the start of the fetch
		attempts  int
		status    int // of the response that is kept; 0: none
		retryable bool
	}{
		{"while connecting", "http://silent.example/", nil, 5 * time.Second, 1, 0, true},
		{"while waiting for the head", "http://origin.example/s/e/silent", nil, 5 * time.Second, 1, 0, true},
		{"inside the body", "http://origin.example/s/e/200:size=10,stall=5", nil, 5 * time.Second, 1, 200, true},
		{"inside the body of a 503", "http://origin.example/s/e/503:size=10,stall=5", nil, time.Second, 1, 503, true},
		{"in a wait", "http://origin.example/s/e/503:retry-after=20", nil, 5 * time.Second, 1, 503, true},
		{"a POST", "http://origin.example/s/e/silent", func(r *fetch.Request) { r.Method = "POST" }, 5 * time.Second, 1, 0, false},
		{"before the fetch starts", "http://origin.example/s/e/200", nil, -time.Second, 0, 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t, nil)
				r := w.standard(classify.Standard, "/s/e/")
				r.URL, _ = urls.Parse(row.url)
				if row.change != nil {
					row.change(r)
				}
				ended := make(chan int, 1)
				end := func() { ended <- w.client.End() }
				if row.after < 0 {
					end()
				} else {
					time.AfterFunc(row.after, end)
				}
				res := w.run(t.Context(), r)
				if f := res.Failure; f == nil || f.Class != classify.Shutdown || f.Rule != "P5" || f.Retryable != row.retryable || res.StopReason != classify.Stopped {
					t.Fatalf("failure %+v, stop reason %s, want SHUTDOWN, STOPPED, P5, retryable %t", f, res.StopReason, row.retryable)
				}
				status := 0
				if res.Response != nil {
					status = res.Response.StatusCode
				}
				if res.Total != max(row.after, 0) || res.Attempts != row.attempts || status != row.status {
					t.Errorf("ended after %s, %d attempts, status %d; want %s, %d, %d", res.Total, res.Attempts, status, max(row.after, 0), row.attempts, row.status)
				}
				if got, want := <-ended, min(row.attempts, 1); got != want {
					t.Errorf("End = %d fetches, want %d", got, want)
				}
			})
		})
	}
}

// TestCauseOfTheCaller ends the context of a fetch with causes of the caller's own. The class is that of
// the context's error.
func TestCauseOfTheCaller(t *testing.T) {
	t.Parallel()
	own := errors.New("the user closed the tab")
	for _, row := range []struct {
		name, url string
		after     time.Duration // zero: before the fetch
		cause     error
		deadline  bool // the context ends at a deadline
	}{
		{"before the fetch", "http://origin.example/s/e/200", 0, own, false},
		{"while connecting", "http://silent.example/", time.Second, own, false},
		{"while waiting for the head", "http://origin.example/s/e/silent", time.Second, own, false},
		{"inside the body", "http://origin.example/s/e/200:size=10,stall=5", time.Second, own, false},
		{"in a wait", "http://origin.example/s/e/503:retry-after=20", time.Second, own, false},
		{"with an error of the network", "http://origin.example/s/e/silent", time.Second, &net.DNSError{IsNotFound: true}, false},
		{"with the failure of another fetch", "http://origin.example/s/e/silent", time.Second, fault.New(classify.TooManyRedirects, classify.NoPhase, ""), false},
		{"with a time limit", "http://origin.example/s/e/silent", time.Second, &fetch.TimeoutError{Class: classify.ResponseTimeout}, false},
		{"with context.Canceled", "http://origin.example/s/e/silent", time.Second, context.Canceled, false},
		{"deadline while waiting for the head", "http://origin.example/s/e/silent", time.Second, own, true},
		{"deadline before the fetch", "http://origin.example/s/e/silent", 0, own, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newBubble(t, nil)
				r := w.standard(classify.Standard, "/s/e/")
				r.URL, _ = urls.Parse(row.url)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				class := classify.Cancelled
				switch {
				case row.deadline:
					class = classify.Deadline
					var stop context.CancelFunc
					ctx, stop = context.WithTimeoutCause(t.Context(), row.after, row.cause)
					defer stop()
				case row.after == 0:
					cancel(row.cause)
				default:
					defer time.AfterFunc(row.after, func() { cancel(row.cause) }).Stop()
				}
				res := w.run(ctx, r)
				if res.Failure == nil || res.Failure.Class != class || res.Failure.Reason != "" || res.Total != row.after {
					t.Fatalf("%s: %+v after %s, want class %s without a reason after %s", res.Kind, res.Failure, res.Total, class, row.after)
				}
			})
		})
	}
}

// TestEndInsideAnErrorBody checks that the status is reported and not SHUTDOWN, because it is known
// by then.
func TestEndInsideAnErrorBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t, nil)
		time.AfterFunc(time.Second, func() { w.client.End() })
		res := w.run(t.Context(), w.standard(classify.Standard, "/s/e/404:size=10,stall=5"))
		if f := res.Failure; f == nil || f.Class != classify.HTTPClientError || res.Total != time.Second {
			t.Errorf("failure %+v after %s, want HTTP_CLIENT_ERROR after 1 s", f, res.Total)
		}
	})
}

// TestSinkThatFails checks that an error of the sink ends the fetch.
func TestSinkThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newBubble(t, nil)
		calls := 0
		out := w.client.Fetch(t.Context(), w.standard(classify.Standard, "/s/gone/503"), func(fetch.Event) error {
			calls++
			return errors.New("gone")
		})
		if out.Failure == nil || out.Failure.Class != classify.Cancelled || calls != 1 {
			t.Errorf("outcome %+v after %d calls of the sink, want CANCELLED after 1", out.Failure, calls)
		}
	})
}

// TestLimitsThatEndTogether checks that limits that pass together always give the same class
// (spec §11): that of the hop's own limit.
func TestLimitsThatEndTogether(t *testing.T) {
	t.Parallel()
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			w := newBubble(t, nil)
			r := w.standard(classify.Standard, "/s/k/silent")
			r.TotalTimeout, r.HeaderTimeout, r.AttemptTimeout = 10*time.Second, 10*time.Second, 10*time.Second
			if res := w.fetch(r); res.Failure.Class != classify.ResponseTimeout || res.StopReason != classify.NoTime {
				t.Errorf("class %s, stop %s, want response_timeout, no_time", res.Failure.Class, res.StopReason)
			}
			r.HeaderTimeout = 0
			if res := w.run(t.Context(), r); res.Failure.Class != classify.Deadline {
				t.Errorf("class %s, want deadline", res.Failure.Class)
			}
		})
	}
}
