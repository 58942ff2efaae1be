package frontier

import (
	"context"
	"sync"
	"time"
)

// backoff delays claims while bodies, or records, cannot be stored.
type backoff struct {
	mu    sync.Mutex
	d     time.Duration
	until time.Time
}

// failed delays claims by a second, and by twice as long each further time. It reports whether it
// did: failures during a delay have the same cause.
func (b *backoff) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until) {
		return false
	}
	b.d = min(max(2*b.d, time.Second), 30*time.Second)
	b.until = time.Now().Add(b.d)
	return true
}

func (b *backoff) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.d, b.until = 0, time.Time{}
}

func (b *backoff) wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.until)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
