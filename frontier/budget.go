package frontier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fetchd/frontier/store"
)

// ErrBudget ends Run when a budget of the whole crawl is used up.
var ErrBudget = errors.New("a budget is used up")

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
	u, err := w.store.TotalUse(ctx)
	if err != nil {
		return // the next reading has it
	}
	w.othersBytes.Store(u.Bytes - w.stats.bytes.Load())
	w.checkSpent()
}

// checkSpent ends the worker if the crawl has used its bytes.
func (w *Worker) checkSpent() {
	if b := w.config.Budget.Bytes; b > 0 && w.othersBytes.Load()+w.stats.bytes.Load() >= b {
		w.drain(fmt.Errorf("%w: %d bytes", ErrBudget, b))
	}
}

// checkBudget ends a visit to a host that has used up its budget.
func (v *visit) checkBudget() *ending {
	b := v.w.config.Budget
	if b.HostBytes == 0 && b.HostTime == 0 {
		return nil
	}
	u, err := v.w.store.HostUse(v.ctx, v.claim.Host)
	if err != nil {
		return v.storeFailed("read the use of a host", err)
	}
	text := b.over(u)
	if text == "" {
		return nil
	}
	e := v.failed(ClassOverBudget, ClassOverBudget+": "+text, false, 0)
	e.action, e.fetch.Status = AbortHost, store.Dead
	return &e
}
