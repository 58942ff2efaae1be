package fetch

import (
	"context"
	"slices"
	"sync"
	"time"

	"fetchd/classify"
)

// clock is the timer of one fetch, on which all its limits run. They are moved
// many times in each exchange, and hardly ever pass. So the timer is left as it is
// where it rings soon enough, and set anew when it does.
type clock struct {
	mu      sync.Mutex
	timer   *time.Timer
	rings   time.Time // when the timer does; zero: it does not run
	watches [3]*watch // of the fetch, of an attempt, of an exchange; nil: none
	stopped bool
}

// watch is a time limit that can be armed again and again. When it passes it
// cancels with a *[TimeoutError] as the cause.
type watch struct {
	clock   *clock
	cancel  context.CancelCauseFunc
	ends    time.Time // zero: not armed
	limit   time.Duration
	expired *TimeoutError  // the limit that had passed when it was last disarmed
	class   classify.Class // what it means that the limit passes
	stopped bool
}

// arm sets the limit in force, in place of any before. Zero means none.
func (w *watch) arm(limit time.Duration, class classify.Class) { w.armAt(time.Now(), limit, class) }

func (w *watch) armAt(now time.Time, limit time.Duration, class classify.Class) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.expired = nil // what has passed before is forgotten
	if limit <= 0 || w.stopped {
		w.ends = time.Time{}
		return
	}
	w.class, w.limit = class, limit
	w.set(now, limit)
}

// pause stops the clock, and returns what was left, to [watch.resume] with: zero
// where it did not run.
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

// resume goes on with what was left.
func (w *watch) resume(now time.Time, left time.Duration) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	if left > 0 && !w.stopped {
		w.set(now, left)
	}
}

// rest disarms the limit; arm starts it again.
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

// passed returns the limit that has passed, or nil. Where two limits end at the
// same instant it makes one of them always the one that is told (spec §11).
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

// ring has the timer ring no later than at, in d. The lock is held.
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

// fire cancels what has passed, and rings again for what has not.
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
