package toxic

import (
	"slices"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
)

// inSeconds sets limits that the third attempt, over TLS, keeps on a busy machine, too.
func inSeconds(r *fetch.Request) { r.ConnectTimeout, r.HeaderTimeout = 4*time.Second, 4*time.Second }

// TestRetry removes the toxic after the second failed attempt, so that the third succeeds.
func TestRetry(t *testing.T) {
	t.Parallel()
	for _, row := range []originRow{
		{"latency", toxic{"latency", down, ms("latency", 60_000), atOnce}, short, inSeconds, headLate(), connectLate(), connectLate()},
		{"timeout for ever", toxic{"timeout", down, ms("timeout", 0), atOnce}, whole, inSeconds, headLate(), connectLate(), connectLate()},
		{"timeout upstream for ever", toxic{"timeout", up, ms("timeout", 0), atOnce}, whole, inSeconds, headLate(), connectLate(), connectLate()},
		{"timeout, then closed", toxic{"timeout", down, ms("timeout", 100), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"reset_peer", toxic{"reset_peer", down, ms("timeout", 0), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"reset_peer after a while", toxic{"reset_peer", down, ms("timeout", 100), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"limit_data before anything", toxic{"limit_data", down, ms("bytes", 0), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"limit_data in the head", toxic{"limit_data", down, ms("bytes", 8000), atOnce}, bigHead, nil, headReset(), headReset(), headReset()},
		{"limit_data in the body", toxic{"limit_data", down, ms("bytes", 30000), atOnce}, whole, nil, bodyCut(), bodyCut(), bodyCut()},
	} {
		for _, p := range row.protocols() {
			t.Run(row.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				l := newLink(t, p.listener)
				r := l.request(row.path)
				if row.change != nil {
					row.change(r)
				}
				l.prepare(row.toxic)
				var reported []attempt
				out := l.client.Fetch(t.Context(), r, func(e fetch.Event) error {
					f, ok := e.(fetch.AttemptFinished)
					if !ok {
						return nil
					}
					if reported = append(reported, attemptOf(f)); len(reported) == 2 {
						l.remove()
					}
					return nil
				})
				l.check(out, protocol{p.name, p.listener, p.version, success()})
				bad := attempt{p.end.class, classify.Retry}
				if want := []attempt{bad, bad, {classify.NoClass, classify.Done}}; !slices.Equal(reported, want) {
					t.Errorf("attempts %v, want %v", reported, want)
				}
				if out.Attempts != 3 {
					t.Errorf("%d attempts, want 3", out.Attempts)
				}
			})
		}
	}
}

// TestRetriesEnd keeps the toxic, so that the fetch ends with the failure of its last
// attempt.
func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	for _, row := range []originRow{
		{"reset_peer", toxic{"reset_peer", down, ms("timeout", 0), atOnce}, whole, nil, headReset(), handshake(), handshake()},
		{"timeout for ever", toxic{"timeout", down, ms("timeout", 0), atOnce}, whole,
			func(r *fetch.Request) { headSoon(r); r.ConnectTimeout = 500 * time.Millisecond }, headLate(), connectLate(), connectLate()},
		{"limit_data in the body", toxic{"limit_data", down, ms("bytes", 30000), atOnce}, whole, nil, bodyCut(), bodyCut(), bodyCut()},
	} {
		for _, p := range row.protocols() {
			t.Run(row.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				l := newLink(t, p.listener)
				r := l.request(row.path)
				if row.change != nil {
					row.change(r)
				}
				l.prepare(row.toxic)
				out := l.client.Fetch(t.Context(), r, nil)
				l.check(out, p)
				if out.Attempts != 3 || out.StopReason != classify.AttemptsExhausted || out.Failure == nil || !out.Failure.Retryable {
					t.Errorf("%d attempts, stopped for %s, failure %+v; want 3, no attempt left, retryable", out.Attempts, out.StopReason, out.Failure)
				}
			})
		}
	}
}

// attempt is how an attempt ended and what follows it.
type attempt struct {
	class   classify.Class
	verdict classify.Verdict
}

func attemptOf(f fetch.AttemptFinished) attempt {
	a := attempt{verdict: f.Decision.Verdict}
	if f.Failure != nil {
		a.class = f.Failure.Class
	}
	return a
}
