package conns

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"
)

// conn is a connection to an origin. The fields from users on are guarded by the
// lock of the pool.
type conn struct {
	cc      *http.ClientConn
	socket  *socket
	reader  *headReader // of HTTP/1 without a proxy; otherwise nil
	key     key
	address string // host:port, as it was dialled
	http2   bool
	alone   bool         // for one request only
	tls     string       // the version, such as "TLS 1.3"; empty: no TLS
	open    atomic.Int32 // requests in flight
	payers  headPayers   // of HTTP/2
	// hooks and current are of HTTP/1. A hook may run late, when current is nil.
	hooks   *httptrace.ClientTrace
	current atomic.Pointer[Exchange]

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

// trace returns hooks for HTTP/1, which serve all exchanges of the connection: it carries
// one at a time.
func (c *conn) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		WroteHeaders: func() {
			if x := c.current.Load(); x != nil {
				x.wroteHeaders()
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if x := c.current.Load(); x != nil {
				x.wroteRequest(info)
			}
		},
		GotFirstResponseByte: func() {
			if x := c.current.Load(); x != nil {
				x.gotFirstByte()
			}
		},
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if x := c.current.Load(); x != nil {
				return x.gotInformational(code, h)
			}
			return context.Canceled
		},
	}
}

// permit sets over HTTP/2 how much the origin may send from now on. Requests begin and end at
// any time, so it looks again whether their number has changed.
func (c *conn) permit() {
	for c.http2 {
		open := c.open.Load()
		c.socket.permit(max(idleBytes, streamBytes*int64(open)))
		if c.open.Load() == open {
			return
		}
	}
}

// close closes the connection. It may block for seconds.
func (c *conn) close() {
	_ = c.cc.Close()
	_ = c.socket.Close()
}
