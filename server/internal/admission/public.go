package admission

import (
	"context"
	"slices"
	"sync"

	"fetchd/internal/door"
)

const (
	// maxPublic is the number of public calls that may be in flight, if the memory budget
	// allows it: all of them hold at most an eighth of it. They are not charged, because a probe
	// must be answered when the budget is used up. There must be one for each client that watches
	// health: a client does not call a server that refuses its watch.
	maxPublic      = 1024
	publicOfBudget = 8
	// maxPublicOfConn of them may be on one connection. A probe has one, and a client that
	// watches health has one watch.
	maxPublicOfConn = 16
)

// PublicCalls holds the calls in flight that need no credentials. Their number is small, because
// anyone can make them. A new Check is always admitted, because an orchestrator must be
// able to make it; if there are too many, the oldest unauthenticated call ends.
type PublicCalls struct {
	most    int
	names   bool // callers authenticate
	refused Refusals

	mu    sync.Mutex
	calls []*PublicCall // oldest first
	conns map[*door.Conn]int
}

// PublicCall is a call without credentials.
type PublicCall struct {
	conn    *door.Conn
	caller  string
	Context context.Context // done when the call must end for a newer one
	cancel  context.CancelFunc
}

// NewPublicCalls returns the calls of a server. Each holds at most bytesOfCall of the memory budget.
// names reports whether callers authenticate.
func NewPublicCalls(budget, bytesOfCall int64, names bool, refused Refusals) *PublicCalls {
	most := int(min(max(budget/publicOfBudget/bytesOfCall, maxPublicOfConn), maxPublic))
	return &PublicCalls{most: most, names: names, refused: refused, conns: make(map[*door.Conn]int)}
}

// Enter admits a call, or refuses it with RESOURCE_EXHAUSTED. A watch may end only a call
// of an address that has more than its own. Clients reopen a watch that has ended, and
// would otherwise end each other's forever.
func (p *PublicCalls) Enter(ctx context.Context, watch bool) (*PublicCall, error) {
	call := &PublicCall{conn: door.FromContext(ctx), caller: Caller(ctx)}
	call.Context, call.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[call.conn] >= maxPublicOfConn && (watch || p.mayEnd(call)) {
		return nil, p.refused.Refuse(ctx, "TOO_MANY_STREAMS_OF_CALLER", "this connection has as many health calls in flight as it may")
	}
	if len(p.calls) >= p.most {
		busiest, more := p.busiestLocked(call.caller)
		if watch && more <= 1 {
			return nil, p.refused.Refuse(ctx, "TOO_MANY_STREAMS", "the server has as many health calls in flight as it may")
		}
		p.endOldestLocked(busiest)
	}
	p.conns[call.conn]++
	call.conn.Enter()
	p.calls = append(p.calls, call)
	return call, nil
}

// mayEnd reports whether the call may be ended for another one. Callers that have
// authenticated must not be disturbed.
func (p *PublicCalls) mayEnd(c *PublicCall) bool {
	return !p.names || c.conn == nil || c.conn.IsStranger()
}

// busiestLocked returns the caller with the most calls that may be ended, and how many more it
// has than other.
func (p *PublicCalls) busiestLocked(other string) (caller string, more int) {
	counts := make(map[string]int)
	for _, c := range p.calls {
		if p.mayEnd(c) {
			if counts[c.caller]++; counts[c.caller] > counts[caller] {
				caller = c.caller
			}
		}
	}
	return caller, counts[caller] - counts[other]
}

// endOldestLocked ends the caller's oldest call that may be ended.
func (p *PublicCalls) endOldestLocked(caller string) {
	for _, c := range p.calls {
		if c.caller == caller && p.mayEnd(c) {
			c.cancel()
			p.removeLocked(c)
			return
		}
	}
}

// Leave records that a call has ended.
func (p *PublicCalls) Leave(c *PublicCall) {
	c.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(c)
}

// removeLocked removes a call, unless it was removed before.
func (p *PublicCalls) removeLocked(c *PublicCall) {
	at := slices.Index(p.calls, c)
	if at < 0 {
		return
	}
	p.calls = slices.Delete(p.calls, at, at+1)
	decrement(p.conns, c.conn)
	c.conn.Leave()
}
