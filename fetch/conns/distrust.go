package conns

import "time"

// An origin that sends bytes behind a response, over HTTP/1, may send them at any later time too. Then
// the next request on the connection gets them as its answer. So the connections of such an origin
// are not used again for a while.
const (
	// distrustTime is for how long.
	distrustTime = time.Minute
	// maxDistrusted is how many origins are remembered. Each takes less than half a kilobyte.
	maxDistrusted = 4096
)

// distrust records that bytes came on a connection that no request asked for.
func (p *Pool) distrust(c *conn) {
	now := time.Now()
	p.mu.Lock()
	known := p.isDistrustedLocked(c.key, now)
	if p.distrusted == nil {
		p.distrusted = make(map[key]time.Time)
	}
	if len(p.distrusted) >= maxDistrusted {
		p.forgetLocked(now)
	}
	p.distrusted[c.key] = now.Add(distrustTime)
	p.mu.Unlock()
	p.surpluses.Add(1)
	if known || p.onDistrust == nil {
		return
	}
	address := c.address
	if c.key.host == "" {
		address = "" // the connection is to a proxy, and its first request was for that address
	}
	p.onDistrust(c.key.scheme, address)
}

// forgetLocked makes room: it forgets the origins whose time is over, or else the first one to be.
func (p *Pool) forgetLocked(now time.Time) {
	var first key
	for k, until := range p.distrusted {
		if !now.Before(until) {
			delete(p.distrusted, k)
		} else if before, ok := p.distrusted[first]; !ok || until.Before(before) {
			first = k
		}
	}
	if len(p.distrusted) >= maxDistrusted {
		delete(p.distrusted, first)
	}
}

func (p *Pool) isDistrustedLocked(k key, now time.Time) bool {
	until, ok := p.distrusted[k]
	if ok && !now.Before(until) {
		delete(p.distrusted, k)
		return false
	}
	return ok
}
