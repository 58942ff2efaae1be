// Package wait waits for a time, or polls a condition, until a context ends. It is for tests and
// benchmarks of whole processes.
package wait

import (
	"context"
	"time"
)

// For waits for d. It returns false if ctx ends first. If d is zero or negative, it does not wait.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Until calls done at once and then at each interval, until it returns true. It returns the cause of
// ctx if ctx ends first. every must be positive.
func Until(ctx context.Context, every time.Duration, done func() bool) error {
	return Poll(ctx, every, func() (bool, error) { return done(), nil })
}

// Poll is like [Until], but also returns when done returns an error.
func Poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
