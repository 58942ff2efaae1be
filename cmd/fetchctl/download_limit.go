package main

import (
	"context"
	"sync"
	"time"
)

// limiter holds a rate over all that share it. A nil one lets everything pass.
type limiter struct {
	rate int64 // bytes a second

	mu   sync.Mutex
	free time.Time // when all that was let pass so far is paid for
}

// pay waits for as long as n bytes take. Time in which nothing was asked for is
// not saved up.
func (l *limiter) pay(ctx context.Context, n int) error {
	if l == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(l.book(n))):
		return nil
	}
}

func (l *limiter) book(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	return l.free
}
