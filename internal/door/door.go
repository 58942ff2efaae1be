// Package door accepts the connections of a port. It limits them in total and for each address, and
// divides the slots of those that have not authenticated fairly between addresses, so that clients
// without credentials cannot lock out callers and health checks.
//
// A program wraps each of its listeners with [Listen], and calls [Conn.Authenticated] when a call on
// a connection is authenticated. Until then the connection is a stranger. If a slot for a stranger is
// needed and there is none,
//
//   - the address with most strangers loses its oldest one that has sent nothing, or else its idlest;
//   - an address with no more strangers than its share loses none. The share is the number of slots
//     divided by the number of addresses that have strangers;
//   - if no address has more than one, there are more addresses than slots. Then the new connection
//     waits until the oldest one has had a second to speak.
//
// A connection that has sent nothing costs the program a small goroutine: the program gets it with its
// first byte.
//
// The package decides neither what a call does nor who may make it. The limits are in these files: connections
// and who loses one in door.go and rank.go, bytes and calls of a stranger in conn.go, handshakes in turn.go,
// health calls in probes.go, HTTP requests of strangers in web.go, calls that are cancelled or refused in frames.go.
package door

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// StrangerBytes is more than a TLS handshake and the headers of a gRPC call, including what is
	// read ahead. A probe sends less than 200 bytes.
	StrangerBytes = 128 << 10
	// strangerRate is how many bytes more a stranger may send for each second that it is open.
	strangerRate = 1 << 10
	// silentTime is how long a connection may be silent while there are slots.
	silentTime = 10 * time.Second
	// speakTime is how long a connection may be silent if its address has no other.
	speakTime = time.Second
)

// Limits are the limits of a listener. Total, PerAddress and Strangers must be positive.
type Limits struct {
	// Total is the maximum number of open connections. If all of them are authenticated, the next
	// one waits.
	Total int
	// PerAddress is the maximum number of connections of one address, and of one caller that has a name. Over
	// it, the idlest stranger of the address is closed, or else the new connection.
	PerAddress int
	// Strangers is the maximum number of connections that have not authenticated.
	Strangers int
	// StrangerBytes is how much a stranger may send. It may send 1 KiB more for each second that it is
	// open. Zero means no limit.
	StrangerBytes int64
}

// Cause is why a connection is closed.
type Cause string

// Values of [Cause].
const (
	CancelledCalls Cause = "cancelled_calls" // Its client cancels most of its calls; see [Credentials].
	StrangersCalls Cause = "strangers_calls" // It has made too many calls, and none of them is authenticated.
	ConnsOfCaller  Cause = "conns_of_caller" // Its caller has as many as one may, from several addresses.
	TooManyConns   Cause = "too_many_conns"  // It has lost its place to a newer one, or its address may not have more.
)

// Text returns the cause in words.
func (c Cause) Text() string {
	switch c {
	case CancelledCalls:
		return "its client cancels most of its calls at once"
	case ConnsOfCaller:
		return "its caller has as many connections as one may"
	case TooManyConns:
		return "its address, or all clients together, have as many connections as they may"
	default:
		return "its client makes too many calls without credentials"
	}
}

// Listener accepts connections within its limits. Its methods are safe for concurrent use. It must be
// closed.
type Listener struct {
	net.Listener
	limits Limits
	closed context.Context
	end    context.CancelFunc // ends closed
	freed  chan struct{}      // receives after a connection has left
	start  sync.Once          // starts run
	spoke  chan *Conn         // receives connections when they have sent something
	failed chan error         // receives errors of the inner Accept
	answer func() string      // see AnswerHTTP

	debts, refusals debts // of cancelled and of refused calls
	drops           debts // of connections that were closed for what they did, by address

	// Dropped is called when a connection is closed for what it did, or for want of a place. payer is its caller, or
	// else its address. It must not wait, and must be set before Accept. Nil means that it is not called.
	Dropped func(payer string, cause Cause)

	mu        sync.Mutex
	conns     map[*Conn]struct{} // all that are open
	addresses map[string]*address
	callers   map[string]int // connections of callers with a name
	strangers int
	ranks     []*rank // addresses by their number of strangers
	most      int     // the highest of these numbers
	turns     turns
}

// Listen returns a listener that accepts the connections of l within limits.
func Listen(l net.Listener, limits Limits) *Listener {
	closed, end := context.WithCancel(context.Background())
	return &Listener{Listener: l, limits: limits, closed: closed, end: end, freed: make(chan struct{}, 1), spoke: make(chan *Conn), failed: make(chan error),
		conns: make(map[*Conn]struct{}), addresses: make(map[string]*address), callers: make(map[string]int), turns: newTurns(),
		debts: debts{rate: debtRate, of: make(map[string]debt)}, refusals: debts{rate: refusalRate, of: make(map[string]debt)}, drops: debts{rate: dropRate, of: make(map[string]debt)}}
}

// Accept implements net.Listener. The connection is a [*Conn] that has sent something.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err != nil {
		return nil, err // without this, a nil *Conn would not be nil
	}
	return c, nil
}

// AcceptConn is Accept for a caller that needs the type.
func (l *Listener) AcceptConn() (*Conn, error) {
	l.start.Do(func() { go l.run() })
	select {
	case c := <-l.spoke:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

// run admits connections until the listener is closed.
func (l *Listener) run() {
	for l.closed.Err() == nil {
		raw, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.failed <- err: // the program decides when to call Accept again
			case <-l.closed.Done():
			}
			continue
		}
		if c := l.admit(raw); c != nil {
			go c.awaitFirst() // ends with its first byte, or when it is closed
		} else {
			abort(raw) // nothing was served on it
		}
	}
}

// Close implements net.Listener. It closes the connections that have sent nothing, and no others.
func (l *Listener) Close() error {
	l.end()
	l.drop(func(c *Conn) bool { return c.class == silent })
	return l.Listener.Close()
}

// DropAll closes all open connections. A nil listener has none.
func (l *Listener) DropAll() {
	if l == nil {
		return
	}
	l.drop(func(*Conn) bool { return true })
}

func (l *Listener) drop(which func(*Conn) bool) {
	l.mu.Lock()
	var all []*Conn
	for c := range l.conns {
		if which(c) {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // it is no longer served
	}
}

// An address may have dropRate connections a second closed for what they did. Beyond that its new ones are
// not accepted: to set up a connection costs more than most attacks on it.
const dropRate, freeDrops = 10, 50

func (l *Listener) dropped(c *Conn, why Cause) {
	c.lost.Store(&why)
	l.drops.add(c.address.name, 1, time.Now())
	l.tell(c.Payer(), why)
}

func (l *Listener) tell(payer string, why Cause) {
	if l.Dropped != nil {
		l.Dropped(payer, why)
	}
}

// admit waits until raw may be served. It returns nil if its address has too many connections, because
// one address must not use all slots, if too many of them were closed for what they did, or if the listener is closed. While it waits, later connections
// wait in the queue of the kernel.
func (l *Listener) admit(raw net.Conn) *Conn {
	name := Address(raw.RemoteAddr())
	if l.drops.add(name, 0, time.Now()) > freeDrops {
		l.tell(name, TooManyConns)
		return nil
	}
	for {
		c, old, patience := l.try(raw, name)
		if old != nil {
			l.tell(old.address.name, TooManyConns)
			old.hangUp()
		}
		if c != nil {
			return c
		}
		if patience == 0 {
			l.tell(name, TooManyConns)
			return nil
		}
		timer := time.NewTimer(patience)
		select {
		case <-l.freed:
		case <-timer.C:
		case <-l.closed.Done():
			return nil
		}
		timer.Stop()
	}
}

// forever is how long a connection waits for a slot if all others are authenticated.
const forever = time.Hour

// try admits raw if there is a slot. It may return a stranger that has lost its slot for it. If it
// returns no connection, patience is when to try again, and zero means never.
func (l *Listener) try(raw net.Conn, name string) (c, old *Conn, patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Err() != nil { // Close would miss it
		return nil, nil, 0
	}
	a := l.addresses[name]
	switch {
	case a != nil && a.open >= l.limits.PerAddress:
		if old = a.first(); old == nil {
			return nil, nil, 0
		}
	case len(l.conns) >= l.limits.Total || l.strangers >= l.limits.Strangers:
		if old, patience = l.loser(a, time.Now()); old == nil {
			return nil, nil, patience
		}
	}
	if old != nil {
		l.leaveLocked(old)
		a = l.addresses[name]
	}
	if a == nil {
		a = &address{name: name}
		l.addresses[name] = a
	}
	return l.enterLocked(raw, a), old, 0
}

func (l *Listener) enterLocked(raw net.Conn, a *address) *Conn {
	c := &Conn{Conn: raw, listener: l, address: a, opened: time.Now(), closed: make(chan struct{})}
	c.remote = remote{raw.RemoteAddr(), c}
	c.stranger.Store(true)
	l.conns[c] = struct{}{}
	a.open++
	l.strangers++
	a.add(c)
	l.place(a)
	return c
}

// leaveLocked removes a connection, unless it has left before.
func (l *Listener) leaveLocked(c *Conn) {
	if _, open := l.conns[c]; !open {
		return
	}
	delete(l.conns, c)
	l.proveLocked(c)
	l.nameLocked(c, "")
	l.turns.leave(c)
	a := c.address
	if a.open--; a.open == 0 {
		delete(l.addresses, a.name)
	}
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// proveLocked removes a connection from the strangers, if it is one.
func (l *Listener) proveLocked(c *Conn) {
	if !c.stranger.Swap(false) {
		return
	}
	l.strangers--
	c.address.remove(c)
	l.place(c.address)
}

// nameLocked records whose connection it is; an empty name means nobody's. It returns false if the caller has more
// than one may.
func (l *Listener) nameLocked(c *Conn, caller string) bool {
	if was := c.caller.Swap(nil); was != nil {
		if l.callers[*was]--; l.callers[*was] == 0 {
			delete(l.callers, *was)
		}
	}
	if _, open := l.conns[c]; !open || caller == "" {
		return true
	}
	c.caller.Store(&caller)
	l.callers[caller]++
	return l.callers[caller] <= l.limits.PerAddress
}

// http1 are the first bytes of requests of HTTP/1. The preface of HTTP/2 begins with PRI.
var http1 = []string{"GET", "HEA", "POS", "PUT", "PAT", "DEL", "OPT"}

// drainBytes is how much of a request of HTTP/1 is read, so that its client can read the answer before the
// connection is reset.
const drainBytes = 16 << 10

// AnswerHTTP makes a listener for gRPC answer requests of HTTP/1 with status 400 and a text, which says what to
// use instead. Without it gRPC closes their connections without an answer. It must be called before Accept.
func (l *Listener) AnswerHTTP(text func() string) { l.answer = text }

// refuse answers a connection that begins with a request of HTTP/1 and closes it within [speakTime]. It
// returns false for others. The program does not get the connection, which has its slot for that time.
func (c *Conn) refuse() bool {
	if c.listener.answer == nil || !slices.Contains(http1, string(c.first[:c.ahead])) {
		return false
	}
	_ = c.Conn.SetDeadline(time.Now().Add(speakTime)) // if it fails, so does the write
	text := c.listener.answer() + "\n"
	_, err := fmt.Fprintf(c.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	if err == nil && c.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, drainBytes)
	}
	_ = c.Close() // nothing was served on it
	return true
}

// Port returns the port of an address, or "" if it has none.
func Port(addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String())
	return port
}
