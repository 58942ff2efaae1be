package fetch

import (
	"cmp"
	"context"
	"sync"
	"time"

	"fetchd/fetch/conns"
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
		r.exchange.Cancel(cause)
	}
	if r.endWaits != nil {
		r.endWaits(cause)
	}
}

// begun makes x the current exchange. It is over at once if the fetch or the attempt is.
func (a *attempt) begun(x *conns.Exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.exchange, a.run.exchange = x, x
	switch {
	case a.run.cause != nil:
		x.Cancel(a.run.cause)
	case a.over != nil:
		x.Cancel(a.over)
	}
}

// giveUp ends the attempt: its exchange under way, and those that would follow.
func (a *attempt) giveUp(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = cause
	if a.exchange != nil {
		a.exchange.Cancel(cause)
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
	r.failure, r.failed = nil, hopError{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchange = nil
}

// setWaiting starts or ends a wait that a shutdown ends: between two attempts, or for
// a credential. An attempt in flight goes on.
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

// remove takes r off the list, if it is on it.
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
