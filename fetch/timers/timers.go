// Package timers has the time limits of a fetch. They share one timer.
package timers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"fetchd/classify"
)

// Error reports which time limit passed. Under errors.Is it matches
// [context.DeadlineExceeded].
type Error struct {
	// Class identifies the limit, such as [classify.ConnectTimeout].
	Class classify.Class
	// Limit is the time that passed.
	Limit time.Duration
}

// Error returns the class and the limit.
func (e *Error) Error() string { return fmt.Sprintf("%s after %s", e.Class, e.Limit) }

// Timeout implements net.Error.
func (e *Error) Timeout() bool { return true }

// Temporary implements net.Error.
func (e *Error) Temporary() bool { return true }

// Is matches context.DeadlineExceeded.
func (e *Error) Is(target error) bool { return target == context.DeadlineExceeded }

// ErrorClass implements [classify.Classified].
func (e *Error) ErrorClass() classify.Class { return e.Class }

// Clock is the timer of one fetch, which all its limits share. They move many times in each
// exchange, and rarely expire. So the timer is not reset if it fires early enough, and is
// set again when it has fired. The zero value is ready for use.
type Clock struct {
	mu      sync.Mutex
	timer   *time.Timer
	fires   time.Time // when the timer fires; zero: it does not run
	limits  [3]*Limit // of the fetch, an attempt and an exchange, in any order; nil: none
	stopped bool
}

// Canceller is what a limit ends.
type Canceller interface {
	Cancel(cause error)
}

// Limit is a time limit that can be armed many times. When it expires, it cancels with an
// *[Error] as the cause. Init must be called first.
type Limit struct {
	clock   *Clock
	of      Canceller // nil: stopped
	ends    time.Time // zero: not armed
	limit   time.Duration
	expired *Error         // the limit that had passed when it was last disarmed
	class   classify.Class // of the error when the limit expires
	stopped bool
}

// Init makes l a limit of what is done, by a clock. It is not armed. Init sets every field, so that a Limit can be
// a field of another struct.
func (l *Limit) Init(clock *Clock, of Canceller) {
	*l = Limit{clock: clock, of: of}
}

// Arm starts the limit, and replaces the one before. Zero means no limit.
func (l *Limit) Arm(limit time.Duration, class classify.Class) { l.ArmAt(time.Now(), limit, class) }

// ArmAt is Arm for a caller that knows the time.
func (l *Limit) ArmAt(now time.Time, limit time.Duration, class classify.Class) {
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	l.expired = nil
	if limit <= 0 || l.stopped {
		l.ends = time.Time{}
		return
	}
	l.class, l.limit = class, limit
	l.setLocked(now, limit)
}

// Pause disarms the limit and returns the time that was left, for [Limit.Resume]. It returns
// zero if the limit was not armed.
func (l *Limit) Pause(now time.Time) (left time.Duration) {
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	if l.ends.IsZero() {
		return 0
	}
	left = max(l.ends.Sub(now), 1)
	l.disarmLocked(now)
	return left
}

// Resume arms the limit with the time that was left.
func (l *Limit) Resume(now time.Time, left time.Duration) {
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	if left > 0 && !l.stopped {
		l.setLocked(now, left)
	}
}

// Rest disarms the limit until Arm is called.
func (l *Limit) Rest() {
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	l.disarmLocked(time.Now())
}

// Stop disarms the limit for good.
func (l *Limit) Stop() {
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	l.ends, l.stopped, l.of = time.Time{}, true, nil
	if i := slices.Index(l.clock.limits[:], l); i >= 0 {
		l.clock.limits[i] = nil
	}
}

// Passed returns the limit that has passed, or nil. If two limits pass at the same instant,
// the caller can always report the same one (spec §11).
func (l *Limit) Passed() *Error {
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	if l.expired == nil && l.overLocked(time.Now()) {
		return l.causeLocked()
	}
	return l.expired
}

// overLocked reports whether an armed limit has passed.
func (l *Limit) overLocked(now time.Time) bool { return !l.ends.IsZero() && !now.Before(l.ends) }

func (l *Limit) causeLocked() *Error { return &Error{Class: l.class, Limit: l.limit} }

func (l *Limit) disarmLocked(now time.Time) {
	if l.overLocked(now) {
		l.expired = l.causeLocked()
	}
	l.ends = time.Time{}
}

func (l *Limit) setLocked(now time.Time, limit time.Duration) {
	l.ends = now.Add(limit)
	l.clock.setTimerLocked(l.ends, limit)
	if !slices.Contains(l.clock.limits[:], l) {
		l.clock.limits[slices.Index(l.clock.limits[:], nil)] = l
	}
}

// setTimerLocked makes the timer fire at the given time, in d, or earlier.
func (c *Clock) setTimerLocked(at time.Time, d time.Duration) {
	switch {
	case c.stopped:
		return
	case c.timer == nil:
		c.timer = time.AfterFunc(d, c.fire)
	case c.fires.IsZero() || at.Before(c.fires):
		c.timer.Reset(d)
	default:
		return
	}
	c.fires = at
}

// fire cancels for the limits that have passed, and sets the timer for the others.
func (c *Clock) fire() {
	var passed []func()
	c.mu.Lock()
	c.fires = time.Time{}
	now := time.Now()
	for _, l := range c.limits {
		switch {
		case l == nil || l.ends.IsZero():
		case l.ends.After(now):
			c.setTimerLocked(l.ends, l.ends.Sub(now))
		default:
			cause, of := l.causeLocked(), l.of
			passed = append(passed, func() { of.Cancel(cause) })
		}
	}
	c.mu.Unlock()
	for _, cancel := range passed {
		cancel()
	}
}

// Stop stops the timer for good. No limit fires after it returns, even if one is already due.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.timer != nil {
		c.timer.Stop()
	}
}
