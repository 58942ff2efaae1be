package server

import (
	"container/list"
	"context"
	"sync"
)

const (
	// maxPublic is the number of public calls that may be in flight, if the memory budget
	// allows it. Each holds at most its stream's window of unread data, and all of them an
	// eighth of the budget. They are not charged, because a probe must be answered when
	// the budget is used up. There must be one for each client that watches health: a
	// client does not call a server that refuses its watch.
	maxPublic      = 1024
	publicOfBudget = 8
	// maxPublicOfConn of them may be on one connection. A probe has one, and a client that
	// watches health has one watch.
	maxPublicOfConn = 16
)

// publicCalls holds the calls in flight that need no credentials. Their number is small, because
// anyone can make them. A new Check is always admitted, because an orchestrator must be
// able to make it; if there are too many, the oldest unauthenticated call ends.
type publicCalls struct {
	most    int
	refused func(reason string) // counts refusals

	mu    sync.Mutex
	calls list.List // of *publicCall, oldest first
	conns map[*conn]int
}

// publicCall is a call without credentials.
type publicCall struct {
	conn   *conn
	caller string
	ctx    context.Context // done when the call must end for a newer one
	cancel context.CancelFunc
	at     *list.Element // nil once it has ended
}

// maxPublicWith returns how many public calls may be in flight with a memory budget.
func maxPublicWith(budget int64) int {
	return int(min(max(budget/publicOfBudget/streamWindow, maxPublicOfConn), maxPublic))
}

func newPublicCalls(most int, refused func(reason string)) *publicCalls {
	return &publicCalls{most: most, refused: refused, conns: make(map[*conn]int)}
}

// enter admits a call, or refuses it with RESOURCE_EXHAUSTED. A watch may end only a call
// of an address that has more than its own. Clients reopen a watch that has ended, and
// would otherwise end each other's forever.
func (p *publicCalls) enter(ctx context.Context, watch bool) (*publicCall, error) {
	call := &publicCall{conn: connOf(ctx), caller: callerOf(ctx)}
	call.ctx, call.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[call.conn] >= maxPublicOfConn && (watch || call.mayEnd()) {
		return nil, p.refuse(ctx, "_OF_CALLER", "this connection has as many health calls in flight as it may")
	}
	if p.calls.Len() >= p.most {
		busiest, more := p.busiestLocked(call.caller)
		if watch && more <= 1 {
			return nil, p.refuse(ctx, "", "the server has as many health calls in flight as it may")
		}
		p.endOldestLocked(busiest)
	}
	p.conns[call.conn]++
	if call.conn != nil {
		call.conn.calls.Add(1)
	}
	call.at = p.calls.PushBack(call)
	return call, nil
}

func (p *publicCalls) refuse(ctx context.Context, suffix, text string) error {
	reason := "TOO_MANY_STREAMS" + suffix
	p.refused(reason)
	return refuse(ctx, reason, text)
}

// mayEnd reports whether the call may be ended for another one. Callers that have
// authenticated must not be disturbed.
func (c *publicCall) mayEnd() bool {
	return c.conn == nil || c.conn.listener.strangers == 0 || c.conn.stranger.Load()
}

// busiestLocked returns the caller with the most calls that may be ended, and how many more it
// has than other.
func (p *publicCalls) busiestLocked(other string) (caller string, more int) {
	counts := make(map[string]int)
	for at := p.calls.Front(); at != nil; at = at.Next() {
		if c, ok := at.Value.(*publicCall); ok && c.mayEnd() {
			if counts[c.caller]++; counts[c.caller] > counts[caller] {
				caller = c.caller
			}
		}
	}
	return caller, counts[caller] - counts[other]
}

// endOldestLocked ends the caller's oldest call that may be ended.
func (p *publicCalls) endOldestLocked(caller string) {
	for at := p.calls.Front(); at != nil; at = at.Next() {
		if c, ok := at.Value.(*publicCall); ok && c.caller == caller && c.mayEnd() {
			c.cancel()
			p.removeLocked(c)
			return
		}
	}
}

// leave records that a call has ended.
func (p *publicCalls) leave(c *publicCall) {
	c.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.at != nil {
		p.removeLocked(c)
	}
}

func (p *publicCalls) removeLocked(c *publicCall) {
	p.calls.Remove(c.at)
	c.at = nil
	decrement(p.conns, c.conn)
	if c.conn != nil {
		c.conn.calls.Add(-1)
	}
}

// decrement decrements a count, and deletes it at zero.
func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
