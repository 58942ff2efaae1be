package frontier

import (
	"context"
	"errors"
	"sync"
	"time"

	"fetchd/client"
	"fetchd/frontier/store"
)

// errLeaseLost cancels a visit whose URL may belong to another worker by now.
var errLeaseLost = errors.New("the lease was lost")

// visit is one claimed URL while this worker holds it.
type visit struct {
	w           *Worker
	claim       store.Claim
	ctx         context.Context // ends with the lease, or with the time to drain
	cancel      context.CancelCauseFunc
	totals      totals
	held        string // the reserved host
	reservation store.Reservation
	heldUntil   time.Time         // the reservation lasts at least until then, by this machine's clock
	addresses   map[string]string // of the hosts of this visit, as the store has them
	leftHost    bool              // the claim's own host was left
	unused      bool              // no request was sent to the reserved host yet
	started     bool              // a fetch was sent, so requests may have been made
	body        Body              // of the last part; nil if bodies are not stored
	reserved    Body              // the body of the next part, which has room; nil if it needs none
	spool       *spool            // of the last part; nil if it is not read for links
	anySize     bool              // the next part has no maximum size, because a policy of the service forbids its own
	leftOut     bool              // a budget has left out links
	behind      func()            // gives the claims behind this one back; may be nil

	mu       sync.Mutex
	until    time.Time // the lease lasts at least until then, by this machine's clock
	progress bool      // the fetch has reported something since the last extension
	waiting  bool      // for a host, or for the place of bodies
	overdue  time.Time // when the fetch should have ended; zero before its first report
	queued   time.Time // until when the fetch may wait for its start; zero once it has started
}

// maxQueued limits how long a service may keep a fetch waiting, for its turn or for a quota of the caller, without
// another worker fetching the URL.
const maxQueued = 10 * time.Minute

// wait runs f, which may take longer than the lease lasts.
func (v *visit) wait(f func() error) error {
	set := func(waiting bool) {
		v.mu.Lock()
		v.waiting = waiting
		v.mu.Unlock()
	}
	set(true)
	defer set(false)
	return f()
}

// startBefore returns the latest time to send a fetch that is to end within the lease and the
// reservation.
func (v *visit) startBefore() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	until := v.until
	if v.held != "" && v.heldUntil.Before(until) {
		until = v.heldUntil
	}
	return until.Add(-v.w.config.TotalTimeout - leaseReserve/2)
}

// checkLease extends the lease if it is too short for another fetch. It returns the visit's ending
// if no fetch may start.
func (v *visit) checkLease() *ending {
	if v.w.draining.Err() != nil {
		return v.back()
	}
	need := v.w.config.TotalTimeout + leaseReserve
	v.mu.Lock()
	left := time.Until(v.until)
	v.mu.Unlock()
	if left >= need {
		return nil
	}
	if left <= 0 {
		return &ending{how: forget} // the URL may belong to another worker by now
	}
	asked := time.Now()
	held, err := v.w.store.Extend(v.ctx, []store.Lease{v.claim.Lease}, v.w.config.Lease)
	switch {
	case err != nil:
		return v.storeFailed("extend a lease", err)
	case len(held) == 0:
		return &ending{how: forget}
	}
	v.extended(asked)
	return nil
}

// noteProgress records that the fetch has reported something.
func (v *visit) noteProgress() {
	v.mu.Lock()
	v.progress, v.queued = true, time.Time{}
	if v.overdue.IsZero() {
		v.overdue = time.Now().Add(v.w.config.TotalTimeout + leaseReserve)
	}
	v.mu.Unlock()
}

func (v *visit) extended(asked time.Time) {
	v.mu.Lock()
	v.until, v.progress = asked.Add(v.w.config.Lease), false
	v.mu.Unlock()
}

// back gives the URL back: at once if its host received no request.
func (v *visit) back() *ending {
	if v.started {
		return &ending{how: giveBackDelayed}
	}
	return &ending{how: giveBack}
}

// storeFailed returns the ending of a visit after an error of the store, which the end of its context may have caused.
func (v *visit) storeFailed(doing string, err error) *ending {
	if e := v.stopped(); e != nil {
		return e
	}
	v.w.reportError(v.ctx, doing, err)
	return v.back()
}

// stopped returns the ending of a visit whose context has ended, or nil if it has not.
func (v *visit) stopped() *ending {
	if v.ctx.Err() == nil {
		return nil
	}
	return v.broken(context.Cause(v.ctx))
}

// impatient returns the ending of a visit that waits no longer. It returns nil if the visit may
// continue without the host.
func (v *visit) impatient() *ending {
	if v.w.draining.Err() != nil && v.ctx.Err() == nil {
		return v.back()
	}
	return v.stopped()
}

// broken returns the ending of a visit whose fetch has no outcome.
func (v *visit) broken(err error) *ending {
	switch {
	case errors.Is(err, client.ErrLost):
		return &ending{how: abandon}
	case errors.Is(context.Cause(v.ctx), errLeaseLost):
		return &ending{how: forget}
	}
	return v.back()
}

// failed returns the ending of a URL that may not be fetched, with the requests made so far.
func (v *visit) failed(class, text string, retryable bool, asked time.Duration) ending {
	e := v.w.config.Policy.failed(v.claim, class, text, retryable, asked)
	e.fetch.Attempts, e.fetch.Duration, e.fetch.Wait = v.totals.attempts, v.totals.duration, v.totals.wait
	return e
}

// notKept reports that a body could not be stored.
func (v *visit) notKept(err error) {
	v.w.cannotStore(v.ctx, &v.w.backoff, "keep a body", err)
}
