package frontier

import (
	"context"
	"log/slog"
	"time"

	"fetchd/frontier/store"
)

// reapLoop takes back expired leases, usually of workers that are gone.
func (w *Worker) reapLoop(ctx context.Context) {
	for ctx.Err() == nil {
		started := time.Now()
		n, err := w.store.Reap(ctx)
		w.config.Metrics.storeCall("reap", time.Since(started), err)
		switch {
		case err != nil && ctx.Err() == nil:
			w.reportError(ctx, "reap", err)
		case n > 0:
			w.config.Logger.WarnContext(ctx, "leases expired", slog.Int64("urls", n))
		}
		sleep(ctx, reapEvery)
	}
}

// extendLoop extends the leases of fetches that make progress, and ends visits whose leases have
// expired.
func (w *Worker) extendLoop(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.extend(ctx)
		}
	}
}

func (w *Worker) extend(ctx context.Context) {
	now := time.Now()
	due := make(map[store.Lease]*visit)
	var leases []store.Lease
	w.mu.Lock()
	for v := range w.held {
		v.mu.Lock()
		left := v.until.Sub(now)
		switch {
		case left <= 0:
			v.cancel(errLeaseLost)
		case left < w.config.Lease*2/3 && (v.waiting || v.progress && now.Before(v.overdue)):
			due[v.claim.Lease] = v
			leases = append(leases, v.claim.Lease)
		}
		v.mu.Unlock()
	}
	w.mu.Unlock()
	if len(leases) == 0 {
		return
	}
	held, err := w.store.Extend(ctx, leases, w.config.Lease)
	w.config.Metrics.storeCall("extend", time.Since(now), err)
	if err != nil {
		if ctx.Err() == nil {
			w.reportError(ctx, "extend leases", err)
		}
		return
	}
	for _, l := range held {
		due[l].extended(now)
		delete(due, l)
	}
	for _, v := range due {
		v.cancel(errLeaseLost)
	}
}
