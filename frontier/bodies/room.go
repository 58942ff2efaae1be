package bodies

import (
	"context"
	"slices"
	"sync"
)

// room limits the bytes of temporary files. It is safe for concurrent use.
type room struct {
	limit int64

	mu    sync.Mutex
	used  int64
	waits []*wait // oldest first
}

// wait is a body that waits for room.
type wait struct {
	bytes   int64
	granted chan struct{}
}

// grow takes bytes for a body that has held bytes, unless there is no room. A body that has none does not
// overtake those that wait.
func (r *room) grow(held, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+bytes > r.limit || held == 0 && len(r.waits) > 0 {
		return false
	}
	r.used += bytes
	return true
}

// reserve waits until there is room for bytes, and takes it.
func (r *room) reserve(ctx context.Context, bytes int64) error {
	w := &wait{bytes, make(chan struct{})}
	r.mu.Lock()
	r.waits = append(r.waits, w)
	r.grantLocked()
	r.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waits, w); i >= 0 {
		r.waits = slices.Delete(r.waits, i, i+1)
	} else {
		r.used -= bytes
	}
	r.grantLocked()
	return context.Cause(ctx)
}

// release gives bytes back.
func (r *room) release(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= bytes
	r.grantLocked()
}

func (r *room) grantLocked() {
	for len(r.waits) > 0 && r.used+r.waits[0].bytes <= r.limit {
		r.used += r.waits[0].bytes
		close(r.waits[0].granted)
		r.waits = slices.Delete(r.waits, 0, 1)
	}
}
