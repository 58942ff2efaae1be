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

// distrusted are the origins whose HTTP/1.1 connections are not used again, until then.
type distrusted map[key]time.Time

// has reports whether an origin is distrusted now.
func (d distrusted) has(k key, now time.Time) bool {
	until, ok := d[k]
	if ok && !now.Before(until) {
		delete(d, k)
		return false
	}
	return ok
}

func (d distrusted) add(k key, now time.Time) {
	if len(d) >= maxDistrusted {
		d.forget(now)
	}
	d[k] = now.Add(distrustTime)
}

// forget makes room: it forgets the origins whose time is over, or else the first one to be.
func (d distrusted) forget(now time.Time) {
	var first key
	for k, until := range d {
		if !now.Before(until) {
			delete(d, k)
		} else if before, ok := d[first]; !ok || until.Before(before) {
			first = k
		}
	}
	if len(d) >= maxDistrusted {
		delete(d, first)
	}
}
