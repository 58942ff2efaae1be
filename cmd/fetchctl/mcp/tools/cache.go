package tools

import (
	"container/list"
	"sync"
	"time"
)

// entryBytes is charged for an entry in addition to its size.
const entryBytes = 512

// cache keeps values for [KeepFor], within a number of bytes. The value that was used last stays
// longest. It is safe for concurrent use.
type cache[V any] struct {
	maxBytes int64

	mu      sync.Mutex
	bytes   int64
	entries map[string]*list.Element
	order   *list.List // of *entry[V]; the one that was used last is first
}

type entry[V any] struct {
	key   string
	value V
	bytes int64
	since time.Time
}

func newCache[V any](maxBytes int64) *cache[V] {
	return &cache[V]{maxBytes: maxBytes, entries: make(map[string]*list.Element), order: list.New()}
}

// get returns the value of a key, and reports whether there is one.
func (c *cache[V]) get(key string) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked()
	element, ok := c.entries[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(element)
	return c.entryLocked(element).value, true
}

// put keeps a value of a size. A value that exceeds the limit is not kept.
func (c *cache[V]) put(key string, value V, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked()
	if element, ok := c.entries[key]; ok {
		c.removeLocked(element)
	}
	size += int64(len(key)) + entryBytes
	if size > c.maxBytes {
		return
	}
	for c.bytes+size > c.maxBytes {
		c.removeLocked(c.order.Back())
	}
	c.bytes += size
	c.entries[key] = c.order.PushFront(&entry[V]{key, value, size, time.Now()})
}

func (c *cache[V]) expireLocked() {
	for element := c.order.Front(); element != nil; {
		next := element.Next()
		if time.Since(c.entryLocked(element).since) >= KeepFor {
			c.removeLocked(element)
		}
		element = next
	}
}

func (c *cache[V]) removeLocked(element *list.Element) {
	e := c.entryLocked(element)
	c.order.Remove(element)
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}

func (*cache[V]) entryLocked(element *list.Element) *entry[V] {
	e, _ := element.Value.(*entry[V]) // put adds no other type
	return e
}
