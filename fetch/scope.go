package fetch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// runKey is the key under which the loop's context holds its run.
type runKey struct{}

func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// loopContext is the context that go-retryablehttp waits in: the caller's, which
// ends with the fetch too. Nearly every fetch ends without a wait, so what can be
// waited for is made when it is asked for.
type loopContext struct{ *run }

// Deadline implements context.Context.
func (c loopContext) Deadline() (time.Time, bool) { return c.caller.Deadline() }

// Done implements context.Context.
func (c loopContext) Done() <-chan struct{} { return c.waitContext().Done() }

// Err implements context.Context.
func (c loopContext) Err() error {
	if c.why() != nil {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (c loopContext) Value(key any) any {
	if key == (runKey{}) {
		return c.run
	}
	return c.caller.Value(key)
}

// waitContext ends with the fetch.
func (r *run) waitContext() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits == nil {
		r.waits, r.endWaits = context.WithCancelCause(r.caller)
		if r.cause != nil {
			r.endWaits(r.cause)
		}
	}
	return r.waits
}

// why returns what has ended the fetch from outside, or nil: what came first.
func (r *run) why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		return r.cause
	}
	return context.Cause(r.caller)
}

// cancel ends the fetch: what is under way, and what it waits for.
func (r *run) cancel(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil || r.caller.Err() != nil {
		return
	}
	r.cause = cause
	if r.exchange != nil {
		r.exchange.cancel(cause)
	}
	if r.endWaits != nil {
		r.endWaits(cause)
	}
}

// begun makes x the exchange under way, unless there is to be none any more.
func (a *attempt) begun(x *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.releaseExchange()
	a.run.exchange = x
	switch {
	case a.run.cause != nil:
		x.cancel(a.run.cause)
	case a.over != nil:
		x.cancel(a.over)
	}
}

// giveUp ends the attempt: its exchange under way, and those that would follow.
func (a *attempt) giveUp(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = cause
	if x := a.run.exchange; x != nil && x.attempt == a.number {
		x.cancel(cause)
	}
}

// stopped returns what has ended the attempt or the fetch, or nil. The limit of an
// exchange alone is none of it: that one may be over, and well.
func (a *attempt) stopped() error {
	a.mu.Lock()
	over := a.over
	a.mu.Unlock()
	return cmp.Or(over, a.why())
}

// letGo drops what no wait needs: the exchange is over, and a fetch that ends while
// it waits fails by the end of its wait.
func (r *run) letGo() {
	r.failure = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseExchange()
	r.exchange = nil
}

// releaseExchange releases the connection of the last exchange.
func (r *run) releaseExchange() {
	if r.exchange != nil {
		r.exchange.trace.release()
	}
}

// setWaiting begins or ends a wait between two attempts, which a shutdown ends; an
// attempt under way goes on.
func (r *run) setWaiting(w bool) {
	r.mu.Lock()
	same := r.waiting == w
	r.waiting = w
	r.mu.Unlock()
	switch {
	case same:
	case !w:
		r.client.waits.remove(r)
	default:
		r.client.waits.add(r)
		if r.client.shutdown.Err() != nil { // what it ends may have been listed before
			r.cancel(errShutdown)
		}
	}
}

func (r *run) shutDown() {
	if r.isWaiting() {
		r.cancel(errShutdown)
	}
}

func (r *run) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// waits are the fetches that wait for their next attempt. A context of its own for
// each would cost a fetch a quarter of a kilobyte.
type waits struct {
	mu   sync.Mutex
	runs map[*run]struct{}
	stop func() bool // stops the waiting for a shutdown; nil while no fetch waits
}

func (w *waits) add(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs = make(map[*run]struct{})
	}
	w.runs[r] = struct{}{}
	if w.stop == nil {
		w.stop = context.AfterFunc(r.client.shutdown, w.shutDown)
	}
}

func (w *waits) remove(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.runs, r); len(w.runs) == 0 {
		w.stop()
		w.stop, w.runs = nil, nil // a map that has held ten thousand stays as large
	}
}

// shutDown ends those that wait now. Who begins to wait later sees it himself.
func (w *waits) shutDown() {
	w.mu.Lock()
	all := slices.Collect(maps.Keys(w.runs))
	w.mu.Unlock()
	for _, r := range all {
		r.shutDown()
	}
}
