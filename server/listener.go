package server

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"fetchd/internal/budget"
)

// listener limits connections. Over the total, the next one waits to be accepted; over
// the limit of its address, it is closed. A stranger is a connection that has made no
// authenticated call. If callers must authenticate, strangers are limited too, and the
// idlest one is closed to accept another connection.
type listener struct {
	net.Listener
	bounds
	slots  chan struct{}
	closed context.Context
	end    context.CancelFunc // ends closed

	mu       sync.Mutex
	callers  map[string]int
	conns    map[*conn]struct{} // all that are open
	unproven []*conn            // connections of strangers
}

// bounds are the limits of a listener.
type bounds struct {
	total, perCaller int
	// strangers is the maximum number of strangers; zero means that callers need not
	// authenticate.
	strangers int
	// strangerBytes is how much a stranger may send. It may send strangerRate more for each
	// second that it is open. Zero means no limit.
	strangerBytes int64
}

const (
	// strangerShare is the divisor of the total that gives the maximum of strangers.
	strangerShare = 4
	// strangerBytes is more than a TLS handshake and the headers of a call, including what
	// is read ahead. A probe sends less than 200 bytes.
	strangerBytes = 128 << 10
	strangerRate  = 1 << 10
)

func newListener(l net.Listener, b bounds) *listener {
	closed, end := context.WithCancel(context.Background())
	return &listener{Listener: l, bounds: b, slots: make(chan struct{}, b.total), closed: closed, end: end, callers: make(map[string]int), conns: make(map[*conn]struct{})}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !l.takeSlot() {
			_ = raw.Close() // nothing was served on it
			return nil, net.ErrClosed
		}
		if c := l.admit(raw); c != nil {
			return c, nil
		}
		<-l.slots
		_ = raw.Close() // one address must not use all slots
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.end()
	return l.Listener.Close()
}

// takeSlot waits for a free slot. It returns false if the listener is closed first.
func (l *listener) takeSlot() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	l.mu.Lock()
	idle := l.takeIdlestLocked("")
	l.mu.Unlock()
	idle.drop()
	select {
	case l.slots <- struct{}{}:
		return true
	case <-l.closed.Done():
		return false
	}
}

func (l *listener) admit(raw net.Conn) *conn {
	caller := callerAt(raw.RemoteAddr())
	l.mu.Lock()
	var idle *conn
	if l.callers[caller] >= l.perCaller {
		if idle = l.takeIdlestLocked(caller); idle == nil {
			l.mu.Unlock()
			return nil
		}
	} else if l.strangers > 0 && len(l.unproven) >= l.strangers {
		idle = l.takeIdlestLocked("")
	}
	l.callers[caller]++
	c := &conn{Conn: raw, listener: l, opened: time.Now()}
	c.remote, c.release = remote{raw.RemoteAddr(), caller, c}, sync.OnceFunc(func() { l.leave(c) })
	l.conns[c] = struct{}{}
	if l.strangers > 0 {
		c.stranger.Store(true)
		c.active.Store(c.opened.UnixNano())
		c.index = len(l.unproven)
		l.unproven = append(l.unproven, c)
	}
	l.mu.Unlock()
	idle.drop()
	return c
}

// takeIdlestLocked removes and returns the idlest stranger, of one address or of all, or nil. A
// connection with a call in flight is less idle than one without.
func (l *listener) takeIdlestLocked(caller string) *conn {
	var idlest *conn
	for _, c := range l.unproven {
		if (caller == "" || c.remote.caller == caller) && (idlest == nil || c.idlerThan(idlest)) {
			idlest = c
		}
	}
	if idlest != nil {
		l.proveLocked(idlest)
	}
	return idlest
}

// proveLocked removes a connection from the strangers, if it is one.
func (l *listener) proveLocked(c *conn) {
	if !c.stranger.Swap(false) {
		return
	}
	last := len(l.unproven) - 1
	l.unproven[c.index] = l.unproven[last]
	l.unproven[c.index].index = c.index
	l.unproven[last] = nil
	l.unproven = l.unproven[:last]
}

// dropAll closes the open connections. A nil listener has none.
func (l *listener) dropAll() {
	if l == nil {
		return
	}
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range all {
		c.drop()
	}
}

func (l *listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proveLocked(c)
	delete(l.conns, c)
	decrement(l.callers, c.remote.caller)
	<-l.slots
}

// conn is a connection that releases its slot when it is closed, and lists its unread
// answers; see [answer]. It is a stranger until a call on it is authenticated.
type conn struct {
	net.Conn
	listener *listener
	remote   remote
	release  func()
	opened   time.Time
	read     int64 // bytes while it is a stranger; used only by the reading goroutine

	stranger atomic.Bool
	tls      atomic.Pointer[tls.ConnectionState]
	active   atomic.Int64 // time of the last read, in Unix nanoseconds
	calls    atomic.Int32 // public calls in flight
	index    int          // in listener.unproven

	made    atomic.Int64 // calls made while it is a stranger
	refused atomic.Int64 // calls refused for want of memory during the current write
	free    atomic.Int32 // uncharged requests in flight on the HTTP port
	writing atomic.Int64 // start of the current write, in Unix nanoseconds; 0: none

	mu             sync.Mutex
	over           []*budget.Lease // of ended calls whose ends are not written yet
	oldest, newest *answer
	unreadTimer    *time.Timer // for the oldest answer; nil: not running
	closed         bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.stranger.Load() {
		now := time.Now()
		c.active.Store(now.UnixNano())
		c.read += int64(n)
		if most := c.listener.strangerBytes; most > 0 && c.read > most+int64(now.Sub(c.opened).Seconds())*strangerRate {
			return 0, net.ErrClosed // the reader closes it
		}
	}
	return n, err
}

// authenticated records that a call on the connection is authenticated.
func (c *conn) authenticated() {
	if c != nil && c.stranger.Load() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.proveLocked(c)
	}
}

func (c *conn) idlerThan(other *conn) bool {
	if a, b := c.calls.Load() == 0, other.calls.Load() == 0; a != b {
		return a
	}
	return c.active.Load() < other.active.Load()
}

// drop closes the connection; c may be nil.
func (c *conn) drop() {
	if c != nil {
		_ = c.Close() // it is no longer served
	}
}

// remote is the address of a connection's client. It refers to the connection, because
// gRPC and net/http pass on only the address.
type remote struct {
	net.Addr
	caller string
	conn   *conn
}

// connOf returns the connection of a call, or nil.
func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.Addr.(*remote); ok {
			return at.conn
		}
	}
	return nil
}

// hangUp closes the connection of a call.
func hangUp(ctx context.Context) { connOf(ctx).drop() }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return &c.remote }

// CloseWrite ends the writing direction of a TCP connection. net/http calls it before it closes a
// connection whose request it did not read to its end: a client that still sends can then read the
// answer, such as 413 or 431, before its connection is reset.
func (c *conn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.release()
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
