package rejections

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// interval is the time from the first event to the lines.
	interval = time.Second
	// maxLines limits the lines that have a key of their own, and the memory for them. The events with
	// further keys share those of other.
	maxLines = 100
)

// Sums counts events by a key, and writes a line a second for each key that had events. It is safe for concurrent
// use. It has a timer only while there is something to write.
type Sums[K comparable, V any] struct {
	other   func(K) K
	compare func(a, b K) int
	write   func(k K, count int, last V)

	mu    sync.Mutex
	sums  map[K]*sum[V]
	named int
	timer *time.Timer
}

// sum is what a line says.
type sum[V any] struct {
	count int
	last  V
}

// NewSums returns sums of nothing. other returns the key that an event has if there are too many, of which there must
// be few. compare orders the lines. write writes one, with the value of its last event.
func NewSums[K comparable, V any](other func(K) K, compare func(a, b K) int, write func(k K, count int, last V)) *Sums[K, V] {
	return &Sums[K, V]{other: other, compare: compare, write: write, sums: make(map[K]*sum[V])}
}

// Add counts an event. Its line follows within a second.
func (l *Sums[K, V]) Add(k K, v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sums[k]
	if s == nil && l.named >= maxLines {
		k = l.other(k)
		s = l.sums[k]
	}
	if s == nil {
		s = new(sum[V])
		l.sums[k] = s
		if k != l.other(k) {
			l.named++
		}
	}
	s.count++
	s.last = v
	if l.timer == nil {
		l.timer = time.AfterFunc(interval, l.Flush)
	}
}

// Flush writes the lines that are due later. Call it before the program ends.
func (l *Sums[K, V]) Flush() {
	l.mu.Lock()
	sums := l.sums
	if l.timer != nil {
		l.timer.Stop()
	}
	l.sums, l.named, l.timer = make(map[K]*sum[V]), 0, nil
	l.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(sums), l.compare) {
		l.write(k, sums[k].count, sums[k].last)
	}
}
