package server

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/internal/budget"
	"fetchd/internal/door"
)

// strangerShare is the divisor of MaxConnections that gives the maximum of connections that have not
// authenticated.
const strangerShare = 4

// listener accepts the connections of callers.
type listener struct{ *door.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return newConn(c), nil
}

// conn is a connection that lists its unread answers; see [answer].
type conn struct {
	*door.Conn

	tls     atomic.Pointer[tls.ConnectionState]
	refused atomic.Int64 // calls refused for want of memory during the current write
	free    atomic.Int32 // uncharged requests in flight on the HTTP port
	writing atomic.Int64 // start of the current write, in Unix nanoseconds; 0: none

	mu             sync.Mutex
	over           []*budget.Lease // of ended calls whose ends are not written yet
	oldest, newest *answer
	unreadTimer    *time.Timer // for the oldest answer; nil: not running
	closed         bool
}

func newConn(accepted *door.Conn) *conn {
	c := &conn{Conn: accepted}
	accepted.State = c
	return c
}

// connOf returns the connection of a call, or nil.
func connOf(ctx context.Context) *conn {
	if at := door.FromContext(ctx); at != nil {
		c, _ := at.State.(*conn)
		return c
	}
	return nil
}

// drop closes the connection; c may be nil.
func (c *conn) drop() {
	if c != nil {
		_ = c.Close() // it is no longer served
	}
}

// hangUp closes the connection of a call.
func hangUp(ctx context.Context) { connOf(ctx).drop() }

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.dropAnswers()
	return c.Conn.Close()
}

// dropAnswers releases the answers that can no longer be read.
func (c *conn) dropAnswers() {
	c.mu.Lock()
	c.closed = true
	all, over := c.oldest, c.over
	c.over = nil
	if c.unreadTimer != nil {
		c.unreadTimer.Stop()
	}
	c.mu.Unlock()
	closeAll(over)
	for a := all; a != nil; a = all {
		a.release()
		c.mu.Lock()
		all = c.oldest
		c.mu.Unlock()
	}
}

// add lists an answer. If the connection is closed, the answer is released at once.
func (c *conn) add(a *answer) {
	if c == nil {
		return
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		a.release()
		return
	}
	defer c.mu.Unlock()
	a.listed, a.prev = true, c.newest
	if c.newest != nil {
		c.newest.next = a
	} else {
		c.oldest = a
	}
	c.newest = a
	if c.unreadTimer == nil {
		c.unreadTimer = time.AfterFunc(unreadTime, c.checkOldest)
	}
}

// remove removes an answer from the list.
func (c *conn) remove(a *answer) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.listed {
		return
	}
	a.listed = false
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		c.oldest = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		c.newest = a.prev
	}
	a.prev, a.next = nil, nil
}

// checkOldest closes the connection if its oldest answer has been unread for unreadTime,
// and otherwise runs again when it will have been.
func (c *conn) checkOldest() {
	c.mu.Lock()
	c.unreadTimer = nil
	if c.closed || c.oldest == nil {
		c.mu.Unlock()
		return
	}
	left := unreadTime - time.Since(c.oldest.since)
	if left > 0 {
		c.unreadTimer = time.AfterFunc(left, c.checkOldest)
	}
	c.mu.Unlock()
	if left <= 0 {
		_ = c.Close()
	}
}
