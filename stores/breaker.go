package stores

import (
	"sync"
	"time"
)

const (
	breakerFailures = 5
	breakerPause    = 5 * time.Second
	breakerMemory   = time.Minute
)

// breaker refuses uploads to a store that has failed several times in a row. After a pause it lets
// one upload through. If that upload does not end within another pause, it lets through one more: a
// prepared upload may never begin, because its origin failed.
type breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // if open: when the next upload is let through
	prepared bool      // ready let an upload through that has not begun
}

func (b *breaker) openLocked() bool { return b.failures >= breakerFailures }

// up reports whether the breaker is closed, or has let no upload through for a minute. It is then not
// known whether the store is down.
func (b *breaker) up() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.until.Add(-breakerPause) // failure, or upload that was let through
	return !b.openLocked() || time.Since(last) >= breakerMemory
}

// ready reports whether an upload may be prepared.
func (b *breaker) ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.openLocked() {
		return true
	}
	ok := b.passLocked()
	b.prepared = b.prepared || ok
	return ok
}

// begin reports whether an upload may begin. One that ready let through may.
func (b *breaker) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.openLocked() {
		return true
	}
	if b.prepared {
		b.prepared = false
		return true
	}
	return b.passLocked()
}

func (b *breaker) passLocked() bool {
	now := time.Now()
	if now.Before(b.until) {
		return false
	}
	b.until = now.Add(breakerPause)
	return true
}

func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.prepared = 0, false
}

func (b *breaker) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.until = time.Now().Add(breakerPause)
}
