package frontier

import (
	"context"
	"sync"
	"time"
)

const (
	// strayPiece is how many robots.txt of redirect targets are deleted at once. At most twice as
	// many are kept.
	strayPiece = 16
	// strayAge is the age after which no worker still needs a robots.txt. Older ones of hosts
	// without URLs are deleted.
	strayAge = time.Hour
)

// strays are origins that redirects led to and whose robots.txt was saved. A redirecting
// host can name any number of hosts. It is safe for concurrent use.
type strays struct {
	mu      sync.Mutex
	origins []string // oldest first
}

// add adds an origin. It returns the origins to delete, if their hosts still have no URL.
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

// stray records that the robots.txt of a redirect's target was saved.
func (w *Worker) stray(origin string) {
	old := w.strays.add(origin)
	if len(old) == 0 {
		return
	}
	ctx, cancel := w.finishing()
	defer cancel()
	if _, err := w.store.ForgetRobots(ctx, old); err != nil { // sweepLoop will delete them
		w.reportError(ctx, "drop robots.txt of hosts without URLs", err)
	}
}

// sweepLoop deletes the robots.txt of hosts without URLs from the store, a few at a time. It also
// notices which ones must be fetched again.
func (w *Worker) sweepLoop(ctx context.Context) {
	after, refreshed := "", ""
	for ctx.Err() == nil {
		started := time.Now()
		next, _, err := w.store.SweepRobots(ctx, after, strayAge)
		w.config.Metrics.storeCall("sweep", time.Since(started), err)
		if err != nil && ctx.Err() == nil {
			w.reportError(ctx, "sweep robots.txt", err)
		} else {
			after = next
		}
		refreshed = w.refresh(ctx, refreshed)
		sleep(ctx, reapEvery)
	}
}

// refresh drops the rules of some origins after the given one, those whose robots.txt a user wants to be
// fetched again. It returns the origin to continue from.
func (w *Worker) refresh(ctx context.Context, after string) (next string) {
	origins, next, err := w.store.RobotsToRefresh(ctx, after)
	if err != nil {
		if ctx.Err() == nil {
			w.reportError(ctx, "look for robots.txt to fetch again", err)
		}
		return after
	}
	w.rulebook.drop(origins)
	return next
}
