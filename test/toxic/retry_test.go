package toxic

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
)

// inSeconds sets limits that the third attempt, over TLS, keeps on a busy machine, too.
func inSeconds(r *fetch.Request) { r.ConnectTimeout, r.HeaderTimeout = 4*time.Second, 4*time.Second }

// TestRetry removes the toxic after the second failed attempt, so that the third succeeds, or keeps it, so
// that the fetch ends with the failure of its last attempt.
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
			for _, removed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, removed %t/%s", row.name, removed, p.name), func(t *testing.T) {
					t.Parallel()
					l := newLink(t, p.listener)
					r := l.request(row.path)
					switch {
					case row.change != nil && removed:
						row.change(r)
					case row.change != nil:
						r.ConnectTimeout, r.HeaderTimeout = 500*time.Millisecond, 300*time.Millisecond
					}
					row.toxic.prepare(l.Link)
					var reported []attempt
					out := l.client.Fetch(t.Context(), r, func(e fetch.Event) error {
						f, ok := e.(fetch.AttemptFinished)
						if !ok {
							return nil
						}
						if reported = append(reported, attemptOf(f)); len(reported) == 2 && removed {
							l.Remove()
						}
						return nil
					})
					bad := attempt{p.end.class, classify.Retry}
					last, end := attempt{p.end.class, classify.AttemptsExhausted}, p
					if removed {
						last, end.end = attempt{classify.NoClass, classify.NoFailure}, success()
					}
					l.check(out, end)
					if want := []attempt{bad, bad, last}; !slices.Equal(reported, want) || out.Attempts != 3 {
						t.Errorf("%d attempts %v, want %v", out.Attempts, reported, want)
					}
					if f := out.Failure; f != nil && (!f.Retryable || out.StopReason != classify.AttemptsExhausted) {
						t.Errorf("stopped for %s, failure %+v; want no attempt left, retryable", out.StopReason, f)
					}
				})
			}
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
