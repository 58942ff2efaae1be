package frontier

import (
	"context"
	"time"
)

// seenEvery is a third of store.VanishedAfter, so that one slow call does not make a worker vanish.
const seenEvery = 10 * time.Second

// seenLoop reports to the store that this worker runs, so that "frontier status" can name one that has
// vanished. A worker without a name is not reported.
func (w *Worker) seenLoop(ctx context.Context) {
	if w.config.Name == "" {
		return
	}
	for started := true; ctx.Err() == nil; {
		asked := time.Now()
		err := w.store.WorkerSeen(ctx, w.config.Name, started)
		w.config.Metrics.storeCall("seen", time.Since(asked), err)
		switch {
		case err == nil:
			started = false
		case ctx.Err() == nil:
			w.reportError(ctx, "report that this worker runs", err)
		}
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
