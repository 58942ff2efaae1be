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

// slowestStart is the minimum number of URLs per second that a slow start allows.
const slowestStart = 500

// slowStart spreads the first fetches when many hosts are due at the start of a worker. Without it
// they would start together, be due together again after each delay, and then wait for the CPU. One
// goroutine uses it.
type slowStart struct {
	began   time.Time
	lasts   time.Duration // zero means that there is no slow start
	rate    float64       // per second
	started int
}

// newSlowStart starts at now, if more hosts are due than the worker can fetch from at once.
func newSlowStart(now time.Time, hosts int64, delay time.Duration, open int) slowStart {
	if hosts <= int64(open) || delay <= 0 {
		return slowStart{}
	}
	rate := max(float64(hosts)/delay.Seconds(), slowestStart)
	return slowStart{began: now, rate: rate, lasts: time.Duration(float64(hosts) / rate * float64(time.Second))}
}

// allowed returns how many of n URLs may start now. The caller reports them with [slowStart.add].
func (r *slowStart) allowed(now time.Time, n int) int {
	past := now.Sub(r.began)
	if r.lasts == 0 || past >= r.lasts {
		return n
	}
	return max(0, min(n, 1+int(past.Seconds()*r.rate)-r.started))
}

func (r *slowStart) add(n int) { r.started += n }
