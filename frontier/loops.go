package frontier

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"fetchd/frontier/store"
)

const (
	reapEvery = 10 * time.Second
	// seenEvery is a third of store.VanishedAfter, so that one slow call does not make a worker vanish.
	seenEvery = 10 * time.Second
	// recrawlEvery is how often a worker looks for URLs that are due to be fetched again.
	recrawlEvery = 5 * time.Second
	// strayAge is the age after which no worker still needs a robots.txt. Older ones of hosts
	// without URLs are deleted.
	strayAge = time.Hour
)

// reapLoop takes back expired leases, usually of workers that are gone.
func (w *Worker) reapLoop(ctx context.Context) {
	for ctx.Err() == nil {
		started := time.Now()
		n, err := w.store.Reap(ctx)
		if w.called(ctx, "reap", "reap", started, err); n > 0 {
			w.logger.WarnContext(ctx, "leases expired", slog.Int64("urls", n))
		}
		sleep(ctx, reapEvery)
	}
}

// extendLoop extends the leases of fetches that make progress, and ends visits whose leases have
// expired.
func (c *claims) extendLoop(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.extend(ctx)
		}
	}
}

func (c *claims) extend(ctx context.Context) {
	now := time.Now()
	due := make(map[store.Lease]*visit)
	var leases []store.Lease
	c.mu.Lock()
	for v := range c.held {
		v.mu.Lock()
		left := v.until.Sub(now)
		switch {
		case left <= 0:
			v.cancel(errLeaseLost)
		case left < c.config.Lease*2/3 && (v.waiting || now.Before(v.queued) || v.progress && now.Before(v.overdue)):
			due[v.claim.Lease] = v
			leases = append(leases, v.claim.Lease)
		}
		v.mu.Unlock()
	}
	c.mu.Unlock()
	if len(leases) == 0 {
		return
	}
	held, err := c.store.Extend(ctx, leases, c.config.Lease)
	c.called(ctx, "extend", "extend leases", now, err)
	for _, l := range held {
		due[l].extended(now)
		delete(due, l)
	}
	if err != nil {
		return // what is known of the others is in a database that did not answer
	}
	for _, v := range due {
		v.cancel(errLeaseLost)
	}
}

// sweepLoop deletes the robots.txt of hosts without URLs from the store, a few at a time. It also
// notices which ones must be fetched again.
func (w *Worker) sweepLoop(ctx context.Context) {
	after, refreshed := "", ""
	for ctx.Err() == nil {
		started := time.Now()
		next, _, err := w.store.SweepRobots(ctx, after, strayAge)
		if w.called(ctx, "sweep", "sweep robots.txt", started, err); err == nil {
			after = next
		}
		if refreshed, err = w.rulebook.Refresh(ctx, refreshed); err != nil && ctx.Err() == nil {
			w.reportError(ctx, "look for robots.txt to fetch again", err)
		}
		sleep(ctx, reapEvery)
	}
}

// seenLoop reports to the store that this worker runs, so that "frontier status" can name one that has
// vanished. A worker without a name is not reported.
func (w *Worker) seenLoop(ctx context.Context) {
	if w.config.Name == "" {
		return
	}
	for started := true; ctx.Err() == nil; {
		asked := time.Now()
		err := w.store.WorkerSeen(ctx, w.config.Name, processOf(os.Getpid()), started)
		w.called(ctx, "seen", "report that this worker runs", asked, err)
		started = started && err != nil
		w.saveTraps(ctx)
		sleep(ctx, seenEvery)
	}
}

// reportStopped removes this worker from the store. If that fails, it will count as vanished.
func (w *Worker) reportStopped() {
	if w.config.Name == "" {
		return
	}
	ctx, cancel := w.finishing()
	defer cancel()
	if err := w.store.WorkerStopped(ctx, w.config.Name); err != nil {
		w.reportError(ctx, "report that this worker has stopped", err)
	}
}

// recrawlLoop makes URLs pending that are due to be fetched again.
func (w *Worker) recrawlLoop(ctx context.Context) {
	if !w.config.Recrawl.On() {
		return
	}
	for ctx.Err() == nil {
		asked := time.Now()
		n, err := w.store.Recrawl(ctx)
		w.called(ctx, "recrawl", "look for URLs to fetch again", asked, err)
		if n == 0 { // otherwise there may be more
			sleep(ctx, min(recrawlEvery, w.config.Recrawl.shortest()))
		}
	}
}

// bytesEvery is how often a worker reads what others have used.
const bytesEvery = 5 * time.Second

// startBudget watches the budgets of the whole crawl until ctx ends.
func (w *Worker) startBudget(ctx context.Context) {
	b := w.config.Budget
	if b.Time > 0 {
		w.others.Go(func() {
			if sleep(ctx, b.Time); ctx.Err() == nil {
				w.drain(fmt.Errorf("%w: the time of %v", ErrBudget, b.Time))
			}
		})
	}
	if b.Bytes > 0 {
		w.readUse(ctx)
		w.others.Go(func() {
			for ctx.Err() == nil {
				sleep(ctx, bytesEvery)
				w.readUse(ctx)
			}
		})
	}
}

// readUse adds what other workers have used.
func (w *Worker) readUse(ctx context.Context) {
	used, err := w.store.TotalBytes(ctx)
	if err != nil {
		return // the next reading has it
	}
	w.othersBytes.Store(used - w.stats.bytes.Load())
	w.checkSpent()
}
