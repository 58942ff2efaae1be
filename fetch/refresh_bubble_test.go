package fetch_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/fetch"
)

// TestStalledRefresh checks that equal fetches whose time ends during a refresh end equally, and
// that no attempt reports a retry that does not follow (A2).
func TestStalledRefresh(t *testing.T) {
	t.Parallel()
	const limit = 400 * time.Millisecond
	total := func(r *fetch.Request) { r.TotalTimeout = limit }
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request) // nil: none
		caller     bool                 // the limit is the caller's deadline
		refresh    time.Duration        // how long a refresh takes; zero: it never ends
		attempts   []string             // class and verdict of each, as reported
		end        string               // class, stop reason, rule, retryable
		exchanges  int
		took       time.Duration
	}{
		{"stalled until total_timeout", "/s/k/401", total, false, 0,
			[]string{"deadline deadline"}, "deadline deadline P3 true", 1, limit},
		{"stalled until the caller's deadline", "/s/k/401", nil, true, 0,
			[]string{"deadline deadline"}, "deadline deadline P3 true", 1, limit},
		{"stalled, of a POST", "/s/k/401", func(r *fetch.Request) { total(r); r.Method = "POST" }, false, 0,
			[]string{"deadline deadline"}, "deadline deadline P3 false", 1, limit},
		{"over exactly at the deadline", "/s/k/401", total, false, limit,
			[]string{"deadline deadline"}, "deadline deadline P3 true", 1, limit},
		{"over just before the deadline", "/s/k/401", total, false, limit - time.Millisecond,
			[]string{"auth_required retry", "auth_required auth_failed"}, "auth_required auth_failed A2 false", 2, limit - time.Millisecond},
		{"no time left to start one", "/s/k/401:size=9,stall=3", total, false, 0,
			[]string{"auth_required no_time"}, "auth_required no_time W4 true", 1, limit},
		{"stalled after a 503", "/s/k/503/401", total, false, 0,
			[]string{"http_server_error retry", "deadline deadline"}, "deadline deadline P3 true", 2, limit},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				synctest.Test(t, func(t *testing.T) {
					w := newBubble(t, nil)
					r := w.standard(1, row.path)
					r.Credentials = slow{row.refresh}
					if row.change != nil {
						row.change(r)
					}
					ctx := t.Context()
					if row.caller {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, limit)
						defer cancel()
					}
					var attempts []string
					out := w.client.Fetch(ctx, r, func(e fetch.Event) error {
						if f, ok := e.(fetch.AttemptFinished); ok {
							attempts = append(attempts, fmt.Sprintf("%s %s", f.Failure.Class, f.Decision.Verdict))
						}
						return nil
					})
					f := out.Failure
					end := fmt.Sprintf("%s %s %s %t", f.Class, out.StopReason, out.Rule, f.Retryable)
					if end != row.end || out.Attempts != len(row.attempts) || out.Exchanges != row.exchanges || out.Total != row.took {
						t.Errorf("%s after %d attempts, %d exchanges and %v; want %s after %d, %d and %v", end, out.Attempts, out.Exchanges, out.Total,
							row.end, len(row.attempts), row.exchanges, row.took)
					}
					if !slices.Equal(attempts, row.attempts) {
						t.Errorf("attempts %q, want %q", attempts, row.attempts)
					}
				})
			}
		})
	}
}

// slow is how long a refresh takes; zero means that it never ends.
type slow struct{ takes time.Duration }

func (slow) Covers(*url.URL) bool { return true }

func (slow) Field(context.Context) (string, string, error) { return "Authorization", "Bearer x", nil }

func (s slow) Refresh(ctx context.Context, _ string) error {
	if s.takes > 0 {
		<-time.After(s.takes)
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}
