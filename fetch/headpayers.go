package fetch

import (
	"sync"

	"fetchd/internal/budget"
)

// headPayers are the fetches that await a head on an HTTP/2 connection. Only one head
// at a time can be arriving there, so only one of the fetches is charged for it.
type headPayers struct {
	mu      sync.Mutex
	waiting map[*trace]struct{}
	payer   *trace // one of the waiting fetches; nil: there is none
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

// remove releases the charge of t, and charges another fetch.
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

// chargeLocked charges any fetch that has the memory. Those without it end.
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
