package fetch

import (
	"context"
	"sync"
	"time"

	"fetchd/classify"
)

// watch is a time limit that can be armed again and again, on one timer. When
// it passes it cancels with a *[TimeoutError] as the cause.
type watch struct {
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	ends    time.Time // zero: not armed
	cause   *TimeoutError
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
	if w.cause == nil || w.cause.Class != class || w.cause.Limit != limit {
		w.cause = &TimeoutError{Class: class, Limit: limit}
	}
	w.set(limit)
}

// pause stops the clock, and returns what goes on with what was left.
func (w *watch) pause() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil || w.cause == nil || w.ends.IsZero() {
		return func() {}
	}
	left := time.Until(w.ends)
	w.disarm()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.stopped {
			w.set(max(left, 1))
		}
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
	w.stopped, w.timer, w.cause, w.cancel = true, nil, nil, nil
}

// passed returns the limit that has passed, or nil. Where two limits end at the
// same instant it makes one of them always the one that is told (spec §11).
func (w *watch) passed() *TimeoutError {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expired == nil && w.over() {
		return w.cause
	}
	return w.expired
}

// over tells that an armed limit has passed.
func (w *watch) over() bool { return !w.ends.IsZero() && !time.Now().Before(w.ends) }

func (w *watch) disarm() {
	if w.over() {
		w.expired = w.cause
	}
	w.ends = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *watch) set(limit time.Duration) {
	w.ends = time.Now().Add(limit)
	if w.timer == nil {
		w.timer = time.AfterFunc(limit, w.fire)
		return
	}
	w.timer.Reset(limit)
}

// fire cancels, unless the limit was moved while the timer was on its way.
func (w *watch) fire() {
	w.mu.Lock()
	passed, cause, cancel := w.over(), w.cause, w.cancel
	w.mu.Unlock()
	if passed {
		cancel(cause)
	}
}
