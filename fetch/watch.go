package fetch

import (
	"context"
	"slices"
	"sync"
	"time"

	"fetchd/classify"
)

// clock is the timer of one fetch, which all its limits share. They move many times in each
// exchange, and rarely expire. So the timer is not reset if it fires early enough, and is
// set again when it has fired.
type clock struct {
	mu      sync.Mutex
	timer   *time.Timer
	rings   time.Time // when the timer fires; zero: it does not run
	watches [3]*watch // of the fetch, an attempt and an exchange, in any order; nil: none
	stopped bool
}

// watch is a time limit that can be armed many times. When it expires, it cancels with a
// *[TimeoutError] as the cause.
type watch struct {
	clock   *clock
	cancel  context.CancelCauseFunc
	ends    time.Time // zero: not armed
	limit   time.Duration
	expired *TimeoutError  // the limit that had passed when it was last disarmed
	class   classify.Class // of the error when the limit expires
	stopped bool
}

// arm starts the limit, and replaces the one before. Zero means no limit.
func (w *watch) arm(limit time.Duration, class classify.Class) { w.armAt(time.Now(), limit, class) }

func (w *watch) armAt(now time.Time, limit time.Duration, class classify.Class) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.expired = nil
	if limit <= 0 || w.stopped {
		w.ends = time.Time{}
		return
	}
	w.class, w.limit = class, limit
	w.set(now, limit)
}

// pause disarms the limit and returns the time that was left, for [watch.resume]. It returns
// zero if the limit was not armed.
func (w *watch) pause(now time.Time) (left time.Duration) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	if w.ends.IsZero() {
		return 0
	}
	left = max(w.ends.Sub(now), 1)
	w.disarm(now)
	return left
}

// resume arms the limit with the time that was left.
func (w *watch) resume(now time.Time, left time.Duration) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	if left > 0 && !w.stopped {
		w.set(now, left)
	}
}

// rest disarms the limit until arm is called.
func (w *watch) rest() {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.disarm(time.Now())
}

// stop disarms the limit for good.
func (w *watch) stop() {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.ends, w.stopped, w.cancel = time.Time{}, true, nil
	if i := slices.Index(w.clock.watches[:], w); i >= 0 {
		w.clock.watches[i] = nil
	}
}

// passed returns the limit that has passed, or nil. If two limits pass at the same instant,
// it lets the caller always report the same one (spec §11).
func (w *watch) passed() *TimeoutError {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	if w.expired == nil && w.over(time.Now()) {
		return w.cause()
	}
	return w.expired
}

// over reports whether an armed limit has passed.
func (w *watch) over(now time.Time) bool { return !w.ends.IsZero() && !now.Before(w.ends) }

func (w *watch) cause() *TimeoutError { return &TimeoutError{Class: w.class, Limit: w.limit} }

func (w *watch) disarm(now time.Time) {
	if w.over(now) {
		w.expired = w.cause()
	}
	w.ends = time.Time{}
}

func (w *watch) set(now time.Time, limit time.Duration) {
	w.ends = now.Add(limit)
	w.clock.ring(w.ends, limit)
	if !slices.Contains(w.clock.watches[:], w) {
		w.clock.watches[slices.Index(w.clock.watches[:], nil)] = w
	}
}

// ring makes the timer fire at the given time, in d, or earlier. The lock is held.
func (c *clock) ring(at time.Time, d time.Duration) {
	switch {
	case c.stopped:
		return
	case c.timer == nil:
		c.timer = time.AfterFunc(d, c.fire)
	case c.rings.IsZero() || at.Before(c.rings):
		c.timer.Reset(d)
	default:
		return
	}
	c.rings = at
}

// fire cancels for the limits that have passed, and sets the timer for the others.
func (c *clock) fire() {
	var passed []func()
	c.mu.Lock()
	c.rings = time.Time{}
	now := time.Now()
	for _, w := range c.watches {
		switch {
		case w == nil || w.ends.IsZero():
		case w.ends.After(now):
			c.ring(w.ends, w.ends.Sub(now))
		default:
			cause, cancel := w.cause(), w.cancel
			passed = append(passed, func() { cancel(cause) })
		}
	}
	c.mu.Unlock()
	for _, cancel := range passed {
		cancel()
	}
}

// stop stops the timer for good. No limit fires after it returns, even if one is already due.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.timer != nil {
		c.timer.Stop()
	}
}
