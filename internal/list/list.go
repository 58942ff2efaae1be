// Package list has a linked list whose places are parts of the items, so that adding one allocates nothing.
package list

import "iter"

// List is a list of items. The zero value is empty. Its user has the lock.
type List[T any] struct {
	first, last *Place[T]
	n           int
}

// Place is the place of an item in a list. It is part of the item.
type Place[T any] struct {
	item       T
	in         *List[T] // nil: none
	prev, next *Place[T]
}

// Add adds an item, which is in no list, at the end.
func (l *List[T]) Add(at *Place[T], item T) {
	*at = Place[T]{item: item, in: l, prev: l.last}
	if l.last != nil {
		l.last.next = at
	} else {
		l.first = at
	}
	l.last = at
	l.n++
}

// Remove removes an item, and reports whether it was in the list.
func (l *List[T]) Remove(at *Place[T]) bool {
	if at.in != l {
		return false
	}
	if at.prev != nil {
		at.prev.next = at.next
	} else {
		l.first = at.next
	}
	if at.next != nil {
		at.next.prev = at.prev
	} else {
		l.last = at.prev
	}
	*at = Place[T]{}
	l.n--
	return true
}

// Len returns the number of items.
func (l *List[T]) Len() int { return l.n }

// First returns the item that was added first, or the zero value.
func (l *List[T]) First() (item T) {
	if l.first != nil {
		item = l.first.item
	}
	return item
}

// All returns the items in their order. Do not remove one meanwhile.
func (l *List[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for at := l.first; at != nil && yield(at.item); at = at.next {
		}
	}
}
