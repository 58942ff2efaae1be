// Package wait waits for a time or for a condition that nothing reports, no longer
// than a context lives. It is for tests and benchmarks of whole processes.
package wait

import (
	"context"
	"time"
)

// For waits for d, and reports whether ctx has not ended. Zero or less does not wait.
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

// Until calls done at once and then every so often until it returns true. It returns
// the cause of ctx where that ends first. The time between calls must be positive.
func Until(ctx context.Context, every time.Duration, done func() bool) error {
	return Poll(ctx, every, func() (bool, error) { return done(), nil })
}

// Poll is [Until] for what can fail: it returns the first error of done.
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
