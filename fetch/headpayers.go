package fetch

import (
	"sync"

	"fetchd/internal/budget"
)

// headPayers are the fetches that await a head over an HTTP/2 connection, on which one
// head at a time may be on its way. One of them is charged with it.
type headPayers struct {
	mu      sync.Mutex
	waiting map[*trace]struct{}
	payer   *trace // one of those that wait; nil: none does
}

func (p *headPayers) add(t *trace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting = make(map[*trace]struct{})
	}
	p.waiting[t] = struct{}{}
	if p.payer == nil {
		p.chargeLocked()
	}
}

// remove gives back what t was charged, and charges another.
func (p *headPayers) remove(t *trace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, t)
	if p.payer == t {
		t.limits.Memory.Shrink(budget.Receiving, http2HeadBytes)
		p.payer = nil
		p.chargeLocked()
	}
}

// chargeLocked charges any that has the memory. Those that have not end.
func (p *headPayers) chargeLocked() {
	for t := range p.waiting {
		if t.limits.Memory.Grow(budget.Receiving, http2HeadBytes) {
			p.payer = t
			return
		}
		delete(p.waiting, t)
		t.end(errOutOfMemory)
	}
}
