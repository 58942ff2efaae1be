package fetch

import (
	"cmp"
	"context"
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

// letGo drops what only the attempt itself had a use for.
func (a *attempt) letGo() {
	a.resp, a.exchange, a.made, a.hop = nil, nil, nil, nil
	a.mu.Lock()
	defer a.mu.Unlock()
	a.run.exchange = nil
}

// setWaiting begins or ends a wait between two attempts, which a shutdown ends; an
// attempt under way goes on.
func (r *run) setWaiting(w bool) {
	r.mu.Lock()
	stop := r.waiting
	r.waiting = nil
	if w {
		r.waiting = context.AfterFunc(r.client.shutdown, r.shutDown)
	}
	r.mu.Unlock()
	if stop != nil {
		stop()
	}
	if w && r.client.shutdown.Err() != nil { // AfterFunc would say so a moment too late
		r.cancel(errShutdown)
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
	return r.waiting != nil
}
