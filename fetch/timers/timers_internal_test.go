package timers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
)

type cancelFunc context.CancelCauseFunc

func (f cancelFunc) Cancel(cause error) { f(cause) }

// stopwatch is a limit in a bubble, and the context that it cancels.
type stopwatch struct {
	*testing.T
	Limit
	ctx   context.Context
	start time.Time
}

func newStopwatch(t *testing.T) *stopwatch {
	t.Helper()
	s := &stopwatch{T: t, start: time.Now()}
	var cancel context.CancelCauseFunc
	s.ctx, cancel = context.WithCancelCause(t.Context())
	s.Init(new(Clock), cancelFunc(cancel))
	return s
}

// pass lets time pass.
func (s *stopwatch) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// fire runs the timer's function at another time than its own.
func (s *stopwatch) fire() { s.clock.fire() }

// wantAt waits for the limit, and checks when it passed and which it was.
func (s *stopwatch) wantAt(at time.Duration, class classify.Class, limit time.Duration) {
	s.Helper()
	select {
	case <-s.ctx.Done():
	case <-time.After(time.Hour):
		s.Fatalf("not cancelled, want it after %v", at)
	}
	if took := time.Since(s.start); took != at {
		s.Errorf("cancelled after %v, want %v", took, at)
	}
	cause, ok := errors.AsType[*Error](context.Cause(s.ctx))
	if !ok || cause.Class != class || cause.Limit != limit {
		s.Errorf("cause %v, want %s of %v", context.Cause(s.ctx), class, limit)
	}
	if !errors.Is(context.Cause(s.ctx), context.DeadlineExceeded) {
		s.Errorf("cause %v does not match context.DeadlineExceeded", context.Cause(s.ctx))
	}
}

// wantNever lets an hour pass.
func (s *stopwatch) wantNever() {
	s.Helper()
	s.pass(time.Hour)
	if err := context.Cause(s.ctx); err != nil {
		s.Errorf("cancelled: %v, want it never", err)
	}
}

// TestLimit arms and disarms a limit in a bubble, where time is exact.
func TestLimit(t *testing.T) {
	t.Parallel()
	const idle, head, s = classify.BodyTimeout, classify.ResponseTimeout, time.Second
	for _, row := range []struct {
		name string
		do   func(*stopwatch)
	}{
		{"a limit passes", func(w *stopwatch) { w.Arm(5*s, idle); w.wantAt(5*s, idle, 5*s) }},
		{"never armed", func(w *stopwatch) { w.wantNever() }},
		{"no limit", func(w *stopwatch) { w.Arm(0, idle); w.wantNever() }},
		{"a negative limit is none", func(w *stopwatch) { w.Arm(-s, idle); w.wantNever() }},
		{"armed again in time", func(w *stopwatch) {
			w.Arm(5*s, idle)
			for range 10 {
				w.pass(4 * s)
				w.Arm(5*s, idle)
			}
			w.wantAt(45*s, idle, 5*s)
		}},
		{"armed again with another limit", func(w *stopwatch) {
			w.Arm(5*s, idle)
			w.pass(4 * s)
			w.Arm(7*s, head)
			w.wantAt(11*s, head, 7*s)
		}},
		{"armed again with a shorter one", func(w *stopwatch) {
			w.Arm(time.Minute, idle)
			w.pass(s)
			w.Arm(2*s, idle)
			w.wantAt(3*s, idle, 2*s)
		}},
		{"armed again with none", func(w *stopwatch) { w.Arm(5*s, idle); w.pass(4 * s); w.Arm(0, idle); w.wantNever() }},
		{"at rest", func(w *stopwatch) { w.Arm(5*s, idle); w.pass(4 * s); w.Rest(); w.wantNever() }},
		{"armed after a rest", func(w *stopwatch) {
			w.Arm(5*s, idle)
			w.Rest()
			w.pass(s)
			w.Arm(5*s, idle)
			w.wantAt(6*s, idle, 5*s)
		}},
		{"stopped", func(w *stopwatch) { w.Arm(5*s, idle); w.pass(4 * s); w.Stop(); w.wantNever() }},
		{"armed after a stop", func(w *stopwatch) { w.Stop(); w.Arm(5*s, idle); w.wantNever() }},
		{"stopped before it was armed", func(w *stopwatch) { w.Stop(); w.Stop(); w.Rest(); w.wantNever() }},
		{"a pause keeps what was left", func(w *stopwatch) {
			w.Arm(5*s, idle)
			w.pass(2 * s)
			left := w.Pause(time.Now())
			w.pass(time.Hour)
			w.Resume(time.Now(), left)
			w.wantAt(time.Hour+5*s, idle, 5*s)
		}},
		{"many pauses", func(w *stopwatch) {
			w.Arm(5*s, idle)
			for range 4 {
				w.pass(s)
				left := w.Pause(time.Now())
				w.pass(time.Minute)
				w.Resume(time.Now(), left)
			}
			w.wantAt(4*time.Minute+5*s, idle, 5*s)
		}},
		{"a pause that is not ended", func(w *stopwatch) { w.Arm(5*s, idle); w.Pause(time.Now()); w.wantNever() }},
		{"a pause of a limit that was not armed", func(w *stopwatch) { w.Resume(time.Now(), w.Pause(time.Now())); w.wantNever() }},
		{"a pause at rest", func(w *stopwatch) {
			w.Arm(5*s, idle)
			w.Rest()
			w.Resume(time.Now(), w.Pause(time.Now()))
			w.wantNever()
		}},
		{"a pause after a stop", func(w *stopwatch) {
			w.Arm(5*s, idle)
			w.Stop()
			w.Resume(time.Now(), w.Pause(time.Now()))
			w.wantNever()
		}},
		{"stopped in a pause", func(w *stopwatch) {
			w.Arm(5*s, idle)
			left := w.Pause(time.Now())
			w.Stop()
			w.Resume(time.Now(), left)
			w.wantNever()
		}},
		{"a pause at the very end", func(w *stopwatch) {
			w.Arm(5*s, idle)
			w.ends = time.Now() // as if the time had passed and the timer had not fired yet
			left := w.Pause(time.Now())
			w.pass(time.Minute)
			w.Resume(time.Now(), left)
			w.wantAt(time.Minute+1, idle, 5*s)
		}},
		// The timer's goroutine may already run while the limit is changed.
		{"fired and armed again", func(w *stopwatch) { w.Arm(5*s, idle); w.fire(); w.wantAt(5*s, idle, 5*s) }},
		{"fired and at rest", func(w *stopwatch) { w.Arm(5*s, idle); w.Rest(); w.fire(); w.wantNever() }},
		{"fired and stopped", func(w *stopwatch) { w.Arm(5*s, idle); w.Stop(); w.fire(); w.wantNever() }},
		{"fired and paused", func(w *stopwatch) { w.Arm(5*s, idle); w.Pause(time.Now()); w.fire(); w.wantNever() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { row.do(newStopwatch(t)) })
		})
	}
}

// TestLimitIsSafe uses a limit from several goroutines, for the race detector.
func TestLimitIsSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newStopwatch(t)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 100 {
					w.Arm(time.Second, classify.BodyTimeout)
					w.Resume(time.Now(), w.Pause(time.Now()))
					w.fire()
					w.Rest()
				}
			})
		}
		all.Wait()
		w.wantNever()
	})
}

// TestClockIsStopped checks that no limit passes after the fetch is over, even if the timer
// has fired or a limit is armed later.
func TestClockIsStopped(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(*stopwatch)
	}{
		{"before the timer has rung", func(w *stopwatch) { w.clock.Stop() }},
		{"while the timer rings", func(w *stopwatch) { w.clock.Stop(); w.fire() }},
		{"before a limit is set anew", func(w *stopwatch) { w.clock.Stop(); w.Arm(time.Second, classify.BodyTimeout) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newStopwatch(t)
				w.Arm(5*time.Second, classify.BodyTimeout)
				row.do(w)
				w.wantNever()
			})
		})
	}
}

// TestPassed checks which limit has passed, even if its timer has not fired yet.
func TestPassed(t *testing.T) {
	t.Parallel()
	const idle, head, s = classify.BodyTimeout, classify.ResponseTimeout, time.Second
	for _, row := range []struct {
		name string
		do   func(*stopwatch)
		want *Error
	}{
		{"never armed", func(*stopwatch) {}, nil},
		{"not yet", func(w *stopwatch) { w.Arm(5*s, idle); w.pass(4 * s) }, nil},
		{"now", func(w *stopwatch) { w.Arm(5*s, idle); w.ends = time.Now() }, &Error{idle, 5 * s}},
		{"long ago", func(w *stopwatch) { w.Arm(5*s, idle); w.pass(time.Minute) }, &Error{idle, 5 * s}},
		{"disarmed in time", func(w *stopwatch) { w.Arm(5*s, idle); w.Rest(); w.pass(time.Minute) }, nil},
		{"disarmed too late", func(w *stopwatch) { w.Arm(5*s, idle); w.pass(5 * s); w.Rest() }, &Error{idle, 5 * s}},
		{"armed again", func(w *stopwatch) { w.Arm(5*s, idle); w.pass(5 * s); w.Arm(7*s, head) }, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newStopwatch(t)
				row.do(w)
				got := w.Passed()
				if (got == nil) != (row.want == nil) || got != nil && *got != *row.want {
					t.Errorf("passed: %v, want %v", got, row.want)
				}
			})
		})
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	err := &Error{classify.ConnectTimeout, 5 * time.Second}
	var timeout net.Error = err
	if !timeout.Timeout() || classify.Error(classify.NoPhase, err) != classify.ConnectTimeout || fmt.Sprint(err) != "connect_timeout after 5s" {
		t.Errorf("%v: timeout %t, class %s", err, timeout.Timeout(), classify.Error(classify.NoPhase, err))
	}
}
