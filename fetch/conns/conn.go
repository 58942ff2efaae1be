package conns

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// conn is a connection to an origin. Over HTTP/1.1 it belongs to one exchange, or is idle. The fields
// from users on are guarded by the lock of the pool.
type conn struct {
	socket  *socket
	nc      net.Conn         // of HTTP/1.1: the socket, or TLS above it
	h2      *http.ClientConn // of HTTP/2; otherwise nil
	through *httpProxy       // which forwards requests for http URLs; nil: none
	key     key
	address string // host:port, as it was dialled
	alone   bool   // for one request only
	tls     string // the version of TLS with the origin, such as "TLS 1.3"; empty: none
	// encrypted is set if there is TLS on the socket, with the origin or with a proxy.
	encrypted bool

	open   atomic.Int32 // requests in flight over HTTP/2
	payers headPayers   // of HTTP/2

	users        int           // requests that have a slot, in flight or not
	shared       bool          // over HTTP/2: other requests may use it
	retired      bool          // it takes no further request
	large        bool          // a large head came over it
	began        time.Time     // of the last request
	last         time.Time     // when it became idle
	limit        time.Duration // how long it may be idle
	listed       bool          // in the list of idle connections
	older, newer *conn
}

// isOld reports whether an idle connection has been idle too long. It is recent as long as its
// last request is: the idle time of the origin may have begun long before that of this side.
func (c *conn) isOld(now time.Time, recent bool) bool {
	return now.Sub(c.last) >= c.limit || recent && now.Sub(c.began) >= recentUse
}

// idleBytes is the memory of the connection while it is idle.
func (c *conn) idleBytes() int64 {
	switch {
	case c.h2 != nil:
		return idleHTTP2Bytes
	case c.encrypted:
		return idleTLSBytes
	}
	return idlePlainBytes
}

// hasRoom reports whether the connection can take another request, now or later.
func (c *conn) hasRoom() bool { return c.h2 == nil || c.h2.Err() == nil && c.h2.Available() > 0 } // after a GOAWAY there is no error

// idleState is what an idle connection of HTTP/1.1 does.
type idleState uint8

const (
	quiet      idleState = iota // The peer has said nothing.
	spoke                       // It has sent bytes that no request asked for.
	gone                        // It has closed the connection.
	cannotTell                  // The kernel cannot be asked.
)

// state asks what a connection does that was idle until now.
func (c *conn) state() idleState {
	switch {
	case c.h2 != nil && (c.h2.Err() != nil || c.socket.hungUp()):
		return gone
	case c.h2 != nil:
		return quiet
	}
	s := c.socket.peek()
	if !c.encrypted && s != cannotTell {
		return s
	}
	// TLS may hold bytes that it has read already, and records without data say nothing.
	until := time.Unix(1, 0) // in the past: nothing is read from the socket
	if s != quiet && c.socket.raw != nil {
		until = time.Now().Add(time.Millisecond)
	}
	state := c.tryRead(until)
	if state == quiet && (s == spoke || s == gone) && c.socket.peek() != quiet {
		return gone // the time has passed before it was read, on a busy machine
	}
	return state
}

// tryRead reads a byte, if one comes before a deadline.
func (c *conn) tryRead(deadline time.Time) idleState {
	if c.nc.SetReadDeadline(deadline) != nil {
		return gone
	}
	var b [1]byte
	n, err := c.nc.Read(b[:])
	switch {
	case n > 0:
		return spoke
	case !timedOut(err) || c.nc.SetReadDeadline(time.Time{}) != nil:
		return gone
	}
	return quiet
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// permit sets over HTTP/2 how much the origin may send from now on. Requests begin and end at
// any time, so it looks again whether their number has changed.
func (c *conn) permit() {
	for c.h2 != nil {
		open := c.open.Load()
		c.socket.permit(max(idleBytes, streamBytes*int64(open)))
		if c.open.Load() == open {
			return
		}
	}
}

// close closes the connection. With TLS it may block for five seconds, if the peer does not read.
func (c *conn) close() {
	if c.h2 != nil {
		_ = c.h2.Close()
	} else {
		_ = c.nc.Close()
	}
	_ = c.socket.Close()
}
