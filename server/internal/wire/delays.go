package wire

import (
	"sync"
	"time"
)

// delays calls fire for each call that stays in its list for a fixed time. A timer for each call would cost
// as much as its whole request.
type delays struct {
	delay time.Duration
	fire  func(*Call)

	mu             sync.Mutex
	oldest, newest *Call
	running        bool // the timer
}

// listed is the place of a call in the list of a delays, and guarded by its lock.
type listed struct {
	in         *delays // nil: none
	since      time.Time
	prev, next *Call
}

func (d *delays) add(c *Call) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	c.listed = listed{in: d, since: now, prev: d.newest}
	if d.newest != nil {
		d.newest.next = c
	} else {
		d.oldest = c
	}
	d.newest = c
	if !d.running {
		d.running = true
		time.AfterFunc(d.delay, d.run)
	}
}

// remove removes c, and reports whether it was in the list.
func (d *delays) remove(c *Call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.in != d {
		return false
	}
	d.removeLocked(c)
	return true
}

func (d *delays) removeLocked(c *Call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		d.oldest = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		d.newest = c.prev
	}
	c.listed = listed{}
}

// run calls fire for the calls that are due.
func (d *delays) run() {
	var due []*Call
	now := time.Now()
	d.mu.Lock()
	for d.oldest != nil && now.Sub(d.oldest.since) >= d.delay {
		due = append(due, d.oldest)
		d.removeLocked(d.oldest)
	}
	if d.running = d.oldest != nil; d.running {
		time.AfterFunc(d.delay-now.Sub(d.oldest.since), d.run)
	}
	d.mu.Unlock()
	for _, c := range due {
		d.fire(c)
	}
}
