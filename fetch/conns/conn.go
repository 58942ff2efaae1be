package conns

import (
	"net/http"
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
	alone   bool // for one request only
	tls     string
	open    atomic.Int32 // requests
	payers  headPayers   // of HTTP/2

	users        int
	shared       bool // over HTTP/2: other requests may use it
	retired      bool // it takes no further request
	large        bool // a large head came over it
	last         time.Time
	limit        time.Duration // how long it may be idle
	listed       bool          // in the list of idle connections
	older, newer *conn
}

// isOld reports whether an idle connection has been idle too long.
func (c *conn) isOld(now time.Time, recent bool) bool {
	limit := c.limit
	if recent {
		limit = min(limit, recentUse)
	}
	return now.Sub(c.last) >= limit
}

// alive reports whether the origin has not closed the connection, as far as this machine knows.
// The origin may close it at the next moment.
func (c *conn) alive() bool { return c.cc.Err() == nil && !c.socket.hungUp(!c.http2) }

// close closes the connection. It may block for seconds.
func (c *conn) close() {
	_ = c.cc.Close()
	_ = c.socket.Close()
}
