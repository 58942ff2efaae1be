package conns

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"fetchd/fetch/fault"
	"fetchd/internal/list"
)

const (
	// The memory of an idle connection, without TLS, with it, and over HTTP/2 (measured, with that
	// of the kernel left out).
	idlePlainBytes, idleTLSBytes, idleHTTP2Bytes = 4 << 10, 16 << 10, 48 << 10
	// idleLimit is how long a connection may be idle, unless the origin says less.
	idleLimit = 60 * time.Second
	// The last permitted attempt takes only a connection that was used within recentUse.
	// Servers that close idle connections rarely do so within the first second.
	recentUse = 800 * time.Millisecond
)

// conn is a connection to an origin. Over HTTP/1.1 it belongs to one exchange, or is idle. The fields
// from users on are guarded by the lock of the pool.
type conn struct {
	socket  *socket
	nc      net.Conn         // of HTTP/1.1: the socket, or TLS above it
	h2      *http.ClientConn // of HTTP/2; otherwise nil
	frames  *frames          // below h2
	through *httpProxy       // which forwards requests for http URLs; nil: none
	key     key
	address string // host:port, as it was dialled
	alone   bool   // for one request only
	tls     string // the version of TLS with the origin, such as "TLS 1.3"; empty: none
	// encrypted is set if there is TLS on the socket, with the origin or with a proxy.
	encrypted bool

	open   atomic.Int32 // requests in flight over HTTP/2
	payers headPayers   // of HTTP/2

	users   int           // requests that have a slot, in flight or not
	shared  bool          // over HTTP/2: other requests may use it
	retired bool          // it takes no further request
	large   bool          // a large head came over it
	began   time.Time     // of the last request
	last    time.Time     // when it became idle
	limit   time.Duration // how long it may be idle
	listed  list.Place[*conn]
}

// key identifies the connections that a request may use.
type key struct {
	scheme string
	host   string     // with the port, as in the URL; empty for http through an HTTP proxy
	proxy  *url.URL   // nil: none
	origin *OriginTLS // nil: the origin has no settings
	tapped bool       // for exchanges with a Tap
	route  *Route     // nil: that of the settings
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

// tlsDetails describes the handshake of a connection. It returns nil if there was none with the origin.
func (c *conn) tlsDetails() *TLSDetails {
	secure, ok := c.nc.(*tls.Conn)
	if !ok || c.tls == "" { // otherwise TLS is that of a proxy
		return nil
	}
	state := secure.ConnectionState()
	return &TLSDetails{tls.CipherSuiteName(state.CipherSuite), fault.Printable(state.NegotiatedProtocol, MaxNameBytes), describe(state.PeerCertificates)}
}

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

// permit sets over HTTP/2 how much the origin may send from now on. Requests begin and end at
// any time, so it looks again whether their number has changed.
func (c *conn) permit() {
	for c.h2 != nil {
		open := c.open.Load()
		c.socket.permit(max(idleBytes, StreamBytes*int64(open)))
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

// newHTTP2 returns the transport whose connections speak HTTP/2. It makes no connection itself: the
// context of NewClientConn has one that TLS has negotiated HTTP/2 on.
//
// The HTTP/2 is that of golang.org/x/net. The one inside net/http locks itself before Go 1.26.9 if an
// origin makes the window of a stream too large: the fetch and all that ask the connection for a
// stream would wait forever (decision 25).
func newHTTP2() *http.Transport {
	t := &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			below, _ := ctx.Value(readyKey{}).(*frames)
			return below, nil
		},
		DisableCompression:     true, // bodies are decoded above a counter
		MaxResponseHeaderBytes: MaxHeadBytes,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: WindowBytes,
			// There are no PINGs: the timer for them would hold the memory of a closed
			// connection until it fires. A dead connection is noticed when a request on it
			// times out (see Exchange.wentSilent).
			WriteByteTimeout: 5 * time.Second, // how long a peer that does not read can block a write, even that of a fetch that has ended
		},
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true) // of a connection that is no tls.Conn it sees no TLS
	_ = http2.ConfigureTransport(t)       //nolint:staticcheck // deprecated in favor of net/http's, see above; it fails only if t has HTTP/2 already
	return t
}

// readyKey is the context key of a connection for newHTTP2.
type readyKey struct{}
