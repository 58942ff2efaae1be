package origin

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// tracker knows what must be closed and waited for when the origin closes.
type tracker struct {
	wait sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]struct{}
	counts map[string]int
	lastID uint64
}

func newTracker() *tracker {
	return &tracker{open: make(map[io.Closer]struct{}), counts: make(map[string]int)}
}

// add takes c into care; it reports false, and closes c, once closed.
// The caller ends with remove.
func (t *tracker) add(c io.Closer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = c.Close()
		return false
	}
	t.open[c] = struct{}{}
	t.wait.Add(1)
	return true
}

func (t *tracker) remove(c io.Closer) {
	_ = c.Close() // already closed or no longer wanted
	t.mu.Lock()
	delete(t.open, c)
	t.mu.Unlock()
	t.wait.Done()
}

// closeAll closes everything in care and waits until all of it is removed.
func (t *tracker) closeAll() {
	t.mu.Lock()
	t.closed = true
	for c := range t.open {
		_ = c.Close() // only to wake its goroutine
	}
	t.mu.Unlock()
	t.wait.Wait()
}

func (t *tracker) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// connect counts a connection on the named listener.
func (t *tracker) connect(name string, c net.Conn) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[name]++
	t.lastID++
	return &connection{Conn: c, id: t.lastID, listener: name}
}

func (t *tracker) count(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[name]
}

func (t *tracker) allCounts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make(map[string]int, len(t.counts))
	for name, n := range t.counts {
		counts[name] = n
	}
	return counts
}

func (t *tracker) resetCounts() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.counts)
}

// connection is one accepted connection. Its embedded Conn is what HTTP is
// spoken on: the TLS layer where there is one.
type connection struct {
	net.Conn
	id       uint64
	listener string
	requests atomic.Int64
	// closeNext makes the next request on this connection end it, unanswered.
	closeNext atomic.Bool
}

// nextPlace numbers a request on this connection.
func (c *connection) nextPlace() int { return int(c.requests.Add(1)) }

// raw returns the connection below TLS.
func (c *connection) raw() net.Conn {
	conn := c.Conn
	for {
		layer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = layer.NetConn()
	}
}

// closeWrite ends the writing side, and the whole connection where there is no
// such half.
func (c *connection) closeWrite() {
	type half interface{ CloseWrite() error }
	if t, ok := c.Conn.(half); ok {
		_ = t.CloseWrite() // close_notify, or FIN already
	}
	if t, ok := c.raw().(half); ok {
		_ = t.CloseWrite()
		return
	}
	_ = c.Close()
}

// The ways to end a connection.
const (
	howFin = "fin" // orderly; over TLS with close_notify
	howRaw = "raw" // FIN, but no close_notify before it
	howRst = "rst" // TCP reset; an orderly close where there is no TCP
)

// sever ends the connection in the given way.
func (c *connection) sever(how string) {
	switch how {
	case howRst:
		if t, ok := c.raw().(interface{ SetLinger(int) error }); ok {
			_ = t.SetLinger(0) // on a dead connection there is nothing to reset
		}
		_ = c.raw().Close()
	case howRaw:
		_ = c.raw().Close()
	default:
		_ = c.Close()
	}
}
