package door

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxProbes is the number of health calls that may be in flight, if the memory allows it.
	// There must be one for each client that watches health: a client does not call a server that
	// refuses its watch.
	maxProbes = 1024
	// maxProbesOfConn of them may be on one connection. A probe has one, and a client that
	// watches health has one watch.
	maxProbesOfConn = 16
	// ownProbes are those that each address may have, whatever others have.
	ownProbes = 4
)

// Probes are the health calls in flight. They need no credentials, so their number is small. They are
// not charged to a budget: a probe must be answered when the budget is used up. A call counts until
// its handler has returned, also if its connection is closed before. Its methods are safe for concurrent
// use, and do not wait.
type Probes struct {
	most  int
	names bool // callers authenticate

	mu    sync.Mutex
	live  int
	calls []*Probe // without those that were ended; oldest first
	conns map[*Conn]int
	of    map[string]int // by address
}

// Probe is a health call.
type Probe struct {
	probes *Probes
	conn   *Conn
	from   string
	ctx    context.Context // done when the call must end for a newer one
	cancel context.CancelFunc
}

// NewProbes returns the health calls of a server that may hold that many bytes for them, and bytesOfCall
// for each. names reports whether callers authenticate.
func NewProbes(bytes, bytesOfCall int64, names bool) *Probes {
	return &Probes{most: int(min(max(bytes/bytesOfCall, maxProbesOfConn), maxProbes)), names: names, conns: make(map[*Conn]int), of: make(map[string]int)}
}

// Crowd is why a health call is refused.
type Crowd int

// Values of [Crowd].
const (
	NoCrowd   Crowd = iota
	OfConn          // Its connection has as many as it may.
	OfAddress       // The server has as many as it may, and its address its part of them.
	OfAll           // The server has half as many again, of more addresses than it can serve.
)

// Enter admits a call of an address, or says why not. If there are too many, a call of an address that has few
// ends the oldest one of the address with most, but none of an address that has as few. A watch ends one only if
// that address has more than its own: clients reopen a watch that has ended, and would otherwise end each
// other's for ever. Calls that were ended count until their handlers return, which may take long on a busy machine: the
// last places are for addresses without a call. [Probe.Leave] must be called when the handler has returned.
func (p *Probes) Enter(c *Conn, from string, watch bool) (*Probe, Crowd) {
	call := &Probe{probes: p, conn: c, from: from}
	call.ctx, call.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c] >= maxProbesOfConn && (watch || p.mayEnd(call)) {
		return nil, OfConn
	}
	if p.live >= p.most+p.most/2 {
		return nil, OfAll
	}
	if p.live >= p.most {
		busiest, more := p.busiestLocked(from)
		own := ownProbes
		if p.live >= p.most+p.most/4 {
			own = 1
		}
		if p.of[from] >= own && (watch && more <= 1 || p.live > p.most) {
			return nil, OfAddress
		}
		if more > 1 || busiest == from {
			p.endOldestLocked(busiest)
		}
	}
	p.live++
	p.of[from]++
	p.conns[c]++
	c.Enter()
	p.calls = append(p.calls, call)
	return call, NoCrowd
}

// mayEnd reports whether the call may be ended for another one. Callers that have
// authenticated must not be disturbed.
func (p *Probes) mayEnd(c *Probe) bool { return !p.names || c.conn == nil || c.conn.IsStranger() }

// busiestLocked returns the address with the most calls that may be ended, other if no address has more, and how
// many more it has than other.
func (p *Probes) busiestLocked(other string) (from string, more int) {
	from = other
	counts := make(map[string]int)
	for _, c := range p.calls {
		if p.mayEnd(c) {
			counts[c.from]++
		}
	}
	for address, n := range counts {
		if n > counts[from] {
			from = address
		}
	}
	return from, counts[from] - counts[other]
}

// endOldestLocked ends the oldest call of an address that may be ended.
func (p *Probes) endOldestLocked(from string) {
	for i, c := range p.calls {
		if c.from == from && p.mayEnd(c) {
			p.calls = slices.Delete(p.calls, i, i+1)
			c.cancel()
			return
		}
	}
}

// Ended is done when the call must end for a newer one.
func (c *Probe) Ended() context.Context { return c.ctx }

// Conn returns the connection of the call. It may be nil.
func (c *Probe) Conn() *Conn { return c.conn }

// Leave records that the handler of the call has returned. It must be called once.
func (c *Probe) Leave() {
	c.cancel()
	p := c.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live--
	if at := slices.Index(p.calls, c); at >= 0 {
		p.calls = slices.Delete(p.calls, at, at+1)
	}
	if p.of[c.from]--; p.of[c.from] == 0 {
		delete(p.of, c.from)
	}
	if p.conns[c.conn]--; p.conns[c.conn] == 0 {
		delete(p.conns, c.conn)
	}
	c.conn.Leave()
}
