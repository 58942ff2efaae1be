package conns

import (
	"sync"

	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// headPayers are the fetches that await a head on an HTTP/2 connection. Only one head
// at a time can be arriving there, so only one of the fetches is charged for it.
type headPayers struct {
	mu      sync.Mutex
	waiting map[*Exchange]struct{}
	payer   *Exchange // one of the waiting fetches; nil: there is none
	paid    int64     // bytes of its charge that another lease has
}

func (p *headPayers) add(x *Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting = make(map[*Exchange]struct{})
	}
	p.waiting[x] = struct{}{}
	if p.payer == nil {
		p.chargeLocked()
	}
}

// remove releases the charge of x, and charges another fetch.
func (p *headPayers) remove(x *Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, x)
	if p.payer == x {
		x.settings.Memory.Shrink(budget.Receiving, http2HeadBytes-p.paid)
		p.payer, p.paid = nil, 0
		p.chargeLocked()
	}
}

// pay moves up to n bytes of what x is charged to another lease, and returns how many.
func (p *headPayers) pay(x *Exchange, to *budget.Lease, n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, http2HeadBytes)
	if p.payer != x || !x.settings.Memory.Pay(to, budget.Receiving, budget.Receiving, n) {
		return 0
	}
	p.paid = n
	return n
}

// chargeLocked charges any fetch that has the memory. Those without it end.
func (p *headPayers) chargeLocked() {
	for x := range p.waiting {
		if x.settings.Memory.Grow(budget.Receiving, http2HeadBytes) {
			p.payer = x
			return
		}
		delete(p.waiting, x)
		x.Cancel(fault.OutOfMemory)
	}
}
