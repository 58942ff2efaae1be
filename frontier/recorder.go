package frontier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"fetchd/frontier/store"
)

const (
	// A batch has at most recordBatch outcomes, and waits recordTime for more.
	recordBatch = 128
	recordTime  = 4 * time.Millisecond
	firstRetry  = 100 * time.Millisecond
	recordWait  = 5 * time.Second // longest time between two tries
)

// recorder records outcomes, many in one transaction.
type recorder struct {
	*reporter
	store  store.Store
	lease  time.Duration
	report func(context.Context, store.Claim, store.Fetch) // is called for each recorded outcome
	queue  chan *pending
	// recorded receives a value when outcomes are in the store.
	recorded chan struct{}
}

// pending is an outcome that is not recorded yet.
type pending struct {
	claim store.Claim
	fetch store.Fetch
	since time.Time
	done  chan struct{}
}

func newRecorder(s store.Store, r *reporter, lease time.Duration, report func(context.Context, store.Claim, store.Fetch)) *recorder {
	return &recorder{reporter: r, store: s, lease: lease, report: report, queue: make(chan *pending, recordBatch), recorded: make(chan struct{}, 1)}
}

// submit has an outcome recorded. It closes done when the outcome is in the store, or was given up.
func (r *recorder) submit(c store.Claim, f store.Fetch) *pending {
	p := &pending{claim: c, fetch: f, since: time.Now(), done: make(chan struct{})}
	r.queue <- p
	return p
}

// close makes run return. No call of submit may be in flight or follow.
func (r *recorder) close() { close(r.queue) }

// run records until close is called. After ctx has ended it gives outcomes up.
func (r *recorder) run(ctx context.Context) {
	for first := range r.queue {
		batch := []*pending{first}
		patience := time.NewTimer(recordTime)
	more:
		for len(batch) < min(recordBatch, int(r.stats.claimed.Load())) { // without other claims there is nothing to wait for
			select {
			case p, open := <-r.queue:
				if !open {
					break more
				}
				batch = append(batch, p)
			case <-patience.C:
				break more
			}
		}
		patience.Stop()
		r.write(ctx, batch)
	}
}

// write tries until the store accepts the batch. If a single outcome cannot be recorded, it records
// the others.
func (r *recorder) write(ctx context.Context, batch []*pending) {
	for wait := firstRetry; ; wait = min(2*wait, recordWait) {
		err := r.try(ctx, batch)
		if err == nil {
			return
		}
		r.reportError(ctx, "record outcomes", err)
		if batch = r.drop(ctx, r.apart(ctx, batch)); len(batch) == 0 {
			return
		}
		sleep(ctx, wait)
		batch = r.more(batch)
	}
}

// drop gives up the outcomes that are too old, and returns the others. Their leases expire, and
// their URLs are fetched again.
func (r *recorder) drop(ctx context.Context, batch []*pending) []*pending {
	return slices.DeleteFunc(batch, func(p *pending) bool {
		over := ctx.Err() != nil || time.Since(p.since) > r.lease
		if over {
			close(p.done)
		}
		return over
	})
}

// more adds outcomes that have arrived meanwhile. With several outcomes, apart can tell a bad one
// from a store that accepts none.
func (r *recorder) more(batch []*pending) []*pending {
	for len(batch) < recordBatch {
		select {
		case p, open := <-r.queue:
			if !open {
				return batch
			}
			batch = append(batch, p)
		default:
			return batch
		}
	}
	return batch
}

// apart records each outcome of a batch separately, and returns those to try again. If some
// succeed, the store works, so it gives up those that fail.
func (r *recorder) apart(ctx context.Context, batch []*pending) []*pending {
	if len(batch) < 2 {
		return batch
	}
	var failed []*pending
	var last error
	for i, p := range batch {
		err := r.try(ctx, []*pending{p})
		if err == nil {
			continue
		}
		failed, last = append(failed, p), err
		if i == 1 && len(failed) == 2 {
			return batch // probably the store does not work
		}
	}
	if len(failed) == len(batch) {
		return batch
	}
	for _, p := range failed {
		r.logger.ErrorContext(ctx, "outcome cannot be recorded", slog.Int64("id", p.claim.ID), slog.String("url", p.claim.URL), slog.Any("error", last))
		_, _ = r.store.Abandon(ctx, []store.Lease{p.claim.Lease}) // if this fails, the lease expires
		close(p.done)
	}
	return nil
}

// try records a batch in one transaction.
func (r *recorder) try(ctx context.Context, batch []*pending) error {
	fetches := make([]store.Fetch, len(batch))
	for i, p := range batch {
		fetches[i] = p.fetch
	}
	started := time.Now()
	each, err := r.store.RecordFetch(ctx, fetches)
	r.measured(ctx, "record", started, err)
	if err != nil {
		return err
	}
	for i, p := range batch {
		r.settle(ctx, p, each[i])
		close(p.done)
	}
	select {
	case r.recorded <- struct{}{}:
	default: // a value is pending already
	}
	return nil
}

func (r *recorder) settle(ctx context.Context, p *pending, err error) {
	switch {
	case errors.Is(err, store.ErrStale):
		r.leaseLost()
		r.logger.WarnContext(ctx, "outcome not recorded: the lease was lost", slog.Int64("id", p.claim.ID), slog.String("url", p.claim.URL))
		return
	case err != nil: // the final URL has no normal form: record the outcome without it
		r.logger.WarnContext(ctx, "final URL not kept", slog.Int64("id", p.claim.ID), slog.String("url", p.claim.URL), slog.Any("error", err))
		p.fetch.FinalURL = ""
		again, err := r.store.RecordFetch(ctx, []store.Fetch{p.fetch})
		if err != nil || again[0] != nil {
			r.reportError(ctx, "record an outcome", errors.Join(append(again, err)...))
			return
		}
	}
	r.report(ctx, p.claim, p.fetch)
}
