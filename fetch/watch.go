package fetch

import (
	"context"
	"sync"
	"time"

	"fetchd/classify"
)

// watch is a time limit that can be armed again and again, on one timer. When
// it passes it cancels with a *[TimeoutError] as the cause.
//
// A limit is moved several times in each exchange, and hardly ever passes. So the
// timer is left as it is where it rings soon enough, and set anew when it does.
type watch struct {
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	rings   time.Time      // when the timer does; zero: it does not run
	ends    time.Time      // zero: not armed
	class   classify.Class // what it means that the limit passes
	limit   time.Duration
	expired *TimeoutError // the limit that had passed when it was last disarmed
	stopped bool
}

// arm sets the limit in force, in place of any before. Zero means none.
func (w *watch) arm(limit time.Duration, class classify.Class) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disarm()
	w.expired = nil
	if limit <= 0 || w.stopped {
		return
	}
	w.class, w.limit = class, limit
	w.set(limit)
}

// pause stops the clock, and returns what was left, to [watch.resume] with: zero
// where it did not run.
func (w *watch) pause() (left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ends.IsZero() {
		return 0
	}
	left = max(time.Until(w.ends), 1)
	w.disarm()
	return left
}

// resume goes on with what was left.
func (w *watch) resume(left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left > 0 && !w.stopped {
		w.set(left)
	}
}

// rest disarms the limit; arm starts it again.
func (w *watch) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disarm()
}

// stop disarms the limit for good.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disarm()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.stopped, w.timer, w.cancel = true, nil, nil
}

// passed returns the limit that has passed, or nil. Where two limits end at the
// same instant it makes one of them always the one that is told (spec §11).
func (w *watch) passed() *TimeoutError {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expired == nil && w.over() {
		return w.cause()
	}
	return w.expired
}

// over tells that an armed limit has passed.
func (w *watch) over() bool { return !w.ends.IsZero() && !time.Now().Before(w.ends) }

func (w *watch) cause() *TimeoutError { return &TimeoutError{Class: w.class, Limit: w.limit} }

func (w *watch) disarm() {
	if w.over() {
		w.expired = w.cause()
	}
	w.ends = time.Time{}
}

func (w *watch) set(limit time.Duration) {
	w.ends = time.Now().Add(limit)
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(limit, w.fire)
	case w.rings.IsZero() || w.ends.Before(w.rings):
		w.timer.Reset(limit)
	default:
		return
	}
	w.rings = w.ends
}

// fire cancels, unless the limit was moved meanwhile.
func (w *watch) fire() {
	w.mu.Lock()
	w.rings = time.Time{}
	if w.ends.IsZero() || w.stopped {
		w.mu.Unlock()
		return
	}
	if left := time.Until(w.ends); left > 0 {
		w.set(left)
		w.mu.Unlock()
		return
	}
	cause, cancel := w.cause(), w.cancel
	w.mu.Unlock()
	cancel(cause)
}
