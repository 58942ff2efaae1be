package wire

import (
	"sync"
	"time"
)

// Delays calls a function for each item that stays in its list for a fixed time. A timer for each item would cost as much
// as the request of a call.
type Delays[T any] struct {
	delay time.Duration
	fire  func(T)

	mu             sync.Mutex
	oldest, newest *Delayed[T]
	running        bool // the timer
}

// Delayed is the place of an item in a list, and guarded by its lock. It is part of the item.
type Delayed[T any] struct {
	item       T
	in         *Delays[T] // nil: none
	since      time.Time
	prev, next *Delayed[T]
}

// NewDelays returns a list that calls fire, which must not wait.
func NewDelays[T any](delay time.Duration, fire func(T)) *Delays[T] {
	return &Delays[T]{delay: delay, fire: fire}
}

// Delay returns the time.
func (d *Delays[T]) Delay() time.Duration { return d.delay }

// Add adds an item, which is in no list.
func (d *Delays[T]) Add(at *Delayed[T], item T) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	*at = Delayed[T]{item: item, in: d, since: now, prev: d.newest}
	if d.newest != nil {
		d.newest.next = at
	} else {
		d.oldest = at
	}
	d.newest = at
	if !d.running {
		d.running = true
		time.AfterFunc(d.delay, d.run)
	}
}

// Remove removes an item, and reports whether it was in the list.
func (d *Delays[T]) Remove(at *Delayed[T]) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at.in != d {
		return false
	}
	d.removeLocked(at)
	return true
}

func (d *Delays[T]) removeLocked(at *Delayed[T]) {
	if at.prev != nil {
		at.prev.next = at.next
	} else {
		d.oldest = at.next
	}
	if at.next != nil {
		at.next.prev = at.prev
	} else {
		d.newest = at.prev
	}
	*at = Delayed[T]{}
}

// run calls fire for the items that are due.
func (d *Delays[T]) run() {
	var due []T
	now := time.Now()
	d.mu.Lock()
	for d.oldest != nil && now.Sub(d.oldest.since) >= d.delay {
		due = append(due, d.oldest.item)
		d.removeLocked(d.oldest)
	}
	if d.running = d.oldest != nil; d.running {
		time.AfterFunc(d.delay-now.Sub(d.oldest.since), d.run)
	}
	d.mu.Unlock()
	for _, item := range due {
		d.fire(item)
	}
}
