package fetch

import (
	"cmp"
	"context"
	"sync"

	"fetchd/fetch/conns"
)

// waitContext returns a context that ends with the fetch.
func (r *run) waitContext() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waitCtx == nil {
		r.waitCtx, r.cancelWaitCtx = context.WithCancelCause(r.caller)
		if r.cause != nil {
			r.cancelWaitCtx(r.cause)
		}
	}
	return r.waitCtx
}

// cancelCause returns the first reason why the fetch was cancelled, or nil.
func (r *run) cancelCause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		return r.cause
	}
	return context.Cause(r.caller)
}

// cancel ends the fetch: its exchange and its wait.
func (r *run) cancel(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil || r.caller.Err() != nil {
		return
	}
	r.cause = cause
	if r.inFlight != nil {
		r.inFlight.Cancel(cause)
	}
	if r.cancelWaitCtx != nil {
		r.cancelWaitCtx(cause)
	}
}

// setExchange records x as the current exchange. It cancels x if the fetch or the attempt has
// already ended.
func (a *attempt) setExchange(x *conns.Exchange) {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	a.exchange, a.run.inFlight = x, x
	switch {
	case a.run.cause != nil:
		x.Cancel(a.run.cause)
	case a.canceled != nil:
		x.Cancel(a.canceled)
	}
}

// cancel ends the attempt: its exchange, and those that would follow.
func (a *attempt) cancel(cause error) {
	a.run.mu.Lock()
	defer a.run.mu.Unlock()
	a.canceled = cause
	if a.exchange != nil {
		a.exchange.Cancel(cause)
	}
}

// stopped returns why the attempt or the fetch was cancelled, or nil. It ignores the limit of the
// exchange, which may have passed after the exchange ended well.
func (a *attempt) stopped() error {
	a.run.mu.Lock()
	cause := a.canceled
	a.run.mu.Unlock()
	return cmp.Or(cause, a.run.cancelCause())
}

// releaseForWait releases what a wait does not need. The exchange is over, and a fetch that ends
// during the wait has another failure.
func (r *run) releaseForWait() {
	r.failure, r.failed = nil, hopError{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight = nil
}

// setWaiting starts or ends a wait that a shutdown ends: between two attempts, or for a
// credential. A shutdown does not end an attempt in flight.
func (r *run) setWaiting(w bool) {
	r.mu.Lock()
	r.waiting = w
	r.mu.Unlock()
	if w && r.client.shutdown.Err() != nil { // the shutdown may have passed this run before
		r.cancel(errShutdown)
	}
}

func (r *run) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// runs lists the fetches in flight. A context for each would cost a fetch a quarter of
// a kilobyte.
type runs struct {
	mu    sync.Mutex
	first *run
	ended bool // a fetch that starts now ends at once
}

func (l *runs) add(r *run) {
	l.mu.Lock()
	ended := l.ended
	r.listed, r.next = true, l.first
	if l.first != nil {
		l.first.prev = r
	}
	l.first = r
	l.mu.Unlock()
	if ended {
		r.cancel(errShutdown)
	}
}

// remove removes r from the list, if it is there.
func (l *runs) remove(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.listed {
		return
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.listed, r.prev, r.next = false, nil, nil
}

// endWaits ends the fetches that wait. One that starts to wait later ends itself.
func (l *runs) endWaits() {
	for _, r := range l.all() {
		if r.isWaiting() {
			r.cancel(errShutdown)
		}
	}
}

func (l *runs) all() (all []*run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := l.first; r != nil; r = r.next {
		all = append(all, r)
	}
	return all
}

// End ends every fetch in flight as SHUTDOWN, and every later one as soon as it starts. It
// returns how many were in flight, and does not wait for them to end.
func (c *Client) End() int {
	c.runs.mu.Lock()
	c.runs.ended = true
	c.runs.mu.Unlock()
	all := c.runs.all()
	for _, r := range all {
		r.cancel(errShutdown)
	}
	return len(all)
}
