package wire

import (
	"sync"
	"time"

	"fetchd/internal/list"
)

// Delays calls a function for each item that stays in its list for a fixed time. A timer for each item would cost as much
// as the request of a call.
type Delays[T any] struct {
	delay time.Duration
	fire  func(T)

	mu      sync.Mutex
	items   list.List[*Delayed[T]]
	running bool // the timer
}

// Delayed is the place of an item in a list, and guarded by its lock. It is part of the item.
type Delayed[T any] struct {
	place list.Place[*Delayed[T]]
	item  T
	since time.Time
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
	at.item, at.since = item, now
	d.items.Add(&at.place, at)
	if !d.running {
		d.running = true
		time.AfterFunc(d.delay, d.run)
	}
}

// Remove removes an item, and reports whether it was in the list.
func (d *Delays[T]) Remove(at *Delayed[T]) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.items.Remove(&at.place)
}

// run calls fire for the items that are due.
func (d *Delays[T]) run() {
	var due []T
	now := time.Now()
	d.mu.Lock()
	for d.items.Len() > 0 && now.Sub(d.items.First().since) >= d.delay {
		at := d.items.First()
		due = append(due, at.item)
		d.items.Remove(&at.place)
	}
	if d.running = d.items.Len() > 0; d.running {
		time.AfterFunc(d.delay-now.Sub(d.items.First().since), d.run)
	}
	d.mu.Unlock()
	for _, item := range due {
		d.fire(item)
	}
}
