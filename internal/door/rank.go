package door

import (
	"container/list"
	"time"
)

// class is how a stranger has used its connection. A connection of the first class is closed before
// one of the next.
type class int

const (
	silent class = iota // it has sent nothing
	spoken              // it has sent something
	busy                // it has calls in flight
	classes
)

// address has the connections of one address.
type address struct {
	name      string
	open      int                // connections, authenticated ones too
	strangers [classes]list.List // of *Conn: silent ones by age, the others by the time since they last sent something
	at        *list.List         // of the rank; nil: there are no strangers
	inRank    *list.Element
	waiting   []*Conn // for a turn
}

// count returns the number of strangers.
func (a *address) count() (n int) {
	for i := range a.strangers {
		n += a.strangers[i].Len()
	}
	return n
}

// add adds a stranger as the youngest of its class.
func (a *address) add(c *Conn) { c.inClass = a.strangers[c.class].PushBack(c) }

// remove removes a stranger.
func (a *address) remove(c *Conn) { a.strangers[c.class].Remove(c.inClass) }

// first returns the stranger that the address loses first, or nil.
func (a *address) first() *Conn {
	for i := range a.strangers {
		if c := front[*Conn](&a.strangers[i]); c != nil {
			return c
		}
	}
	return nil
}

// front returns the first value of a list, or zero.
func front[T any](l *list.List) (value T) {
	if e := l.Front(); e != nil {
		value, _ = e.Value.(T)
	}
	return value
}

// rank has the addresses with the same number of strangers, by the class of the stranger that they
// lose first. Each list starts with the address that has been in it longest without sending anything.
type rank [classes]list.List

// place moves an address to the end of its list, after a change of its strangers.
func (l *Listener) place(a *address) {
	if a.at != nil {
		a.at.Remove(a.inRank)
		a.at = nil
	}
	n := a.count()
	for len(l.ranks) <= n {
		l.ranks = append(l.ranks, new(rank)) // a list must not move
	}
	if c := a.first(); c != nil {
		a.at = &l.ranks[n][c.class]
		a.inRank = a.at.PushBack(a)
	}
	for l.most = max(l.most, n); l.most > 0 && l.ranks[l.most].empty(); l.most-- { // at most two steps
	}
}

func (r *rank) empty() bool {
	for i := range r {
		if r[i].Len() > 0 {
			return false
		}
	}
	return true
}

// loser returns the stranger that loses its slot to a new connection of an address, which is nil if it
// has no connection yet. If it returns nil, patience is how long the new connection must wait.
func (l *Listener) loser(of *address, now time.Time) (old *Conn, patience time.Duration) {
	if of != nil {
		if n := of.count(); n > 0 && n+1 >= l.most {
			return of.first(), 0 // it has at least as many as any other
		}
	}
	if l.most == 0 {
		return nil, forever
	}
	top := l.ranks[l.most]
	if l.most > 1 {
		for i := range top {
			if a := front[*address](&top[i]); a != nil {
				return a.first(), 0
			}
		}
	}
	patience = forever
	for i := range top {
		a := front[*address](&top[i])
		if a == nil || class(i) == busy && patience < forever { // a client that watches health is not idle
			continue
		}
		c := a.first()
		left := speakTime - now.Sub(c.opened)
		if left <= 0 {
			return c, 0
		}
		patience = min(patience, left)
	}
	return nil, patience
}
