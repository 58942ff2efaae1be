package frontier

import (
	"context"
	"sync"
	"time"
)

const (
	// strayPiece is how many robots.txt of hosts that redirects led to are dropped
	// from the store at once, and half of those that are kept in any case.
	strayPiece = 16
	// strayAge is how old a robots.txt is that no worker is about to use, whatever
	// its host: it is swept from the store if that host has no URL.
	strayAge = time.Hour
)

// strays are the origins that redirects led to, whose robots.txt was saved. Whoever
// redirects can name as many hosts as he likes. It is safe for concurrent use.
type strays struct {
	mu      sync.Mutex
	origins []string // the oldest first
}

// add returns the origins whose turn it is to be dropped, if their hosts still have
// no URL.
func (s *strays) add(origin string) (old []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.origins = append(s.origins, origin)
	if len(s.origins) < 2*strayPiece {
		return nil
	}
	old = s.origins[:strayPiece:strayPiece]
	s.origins = append([]string(nil), s.origins[strayPiece:]...)
	return old
}

// stray notes that the robots.txt of a host was saved that a redirect led to.
func (w *Worker) stray(origin string) {
	old := w.strays.add(origin)
	if len(old) == 0 {
		return
	}
	ctx, cancel := w.finishing()
	defer cancel()
	if _, err := w.store.ForgetRobots(ctx, old); err != nil { // sweepLoop will
		w.trouble(ctx, "drop robots.txt of hosts without URLs", err)
	}
}

// sweepLoop goes through the robots.txt in the store, a few at a time, and drops
// those of hosts that have no URL.
func (w *Worker) sweepLoop(ctx context.Context) {
	after := ""
	for ctx.Err() == nil {
		begun := time.Now()
		next, _, err := w.store.SweepRobots(ctx, after, strayAge)
		w.config.Metrics.storeCall("sweep", time.Since(begun), err)
		if err != nil && ctx.Err() == nil {
			w.trouble(ctx, "sweep robots.txt", err)
		} else {
			after = next
		}
		sleep(ctx, reapEvery)
	}
}
