package origin

import (
	"io"
	"maps"
	"net"
	"sync"
	"sync/atomic"
)

// tracker holds what the origin must close, and wait for, when it is closed.
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

// add registers c, which the caller later passes to remove. If the tracker is
// closed already, add closes c and returns false.
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
	_ = c.Close() // it may be closed already
	t.mu.Lock()
	delete(t.open, c)
	t.mu.Unlock()
	t.wait.Done()
}

// closeAll closes everything registered and waits until all of it is removed.
func (t *tracker) closeAll() {
	t.mu.Lock()
	t.closed = true
	for c := range t.open {
		_ = c.Close() // wakes its goroutine
	}
	t.mu.Unlock()
	t.wait.Wait()
}

// connect counts and numbers a connection of the named listener.
func (t *tracker) connect(name string, c net.Conn) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[name]++
	t.lastID++
	return &connection{Conn: c, id: t.lastID, listener: name}
}

func (t *tracker) allCounts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

func (t *tracker) resetCounts() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.counts)
}

// connection is one accepted connection. The embedded Conn carries HTTP: it is the
// TLS layer if there is one.
type connection struct {
	net.Conn
	id       uint64
	listener string
	requests atomic.Int64
	// closeNext makes the next request close the connection without an answer.
	closeNext atomic.Bool
}

// nextPlace returns the number of the next request on this connection.
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

// closeWrite closes the writing side, or the whole connection if it has no separate
// writing side.
func (c *connection) closeWrite() {
	type half interface{ CloseWrite() error }
	if t, ok := c.Conn.(half); ok {
		_ = t.CloseWrite() // sends close_notify over TLS, otherwise FIN
	}
	if t, ok := c.raw().(half); ok {
		_ = t.CloseWrite()
		return
	}
	_ = c.Close()
}

// The ways to end a connection: the values of how.
const (
	howFin = "fin" // in order; over TLS with close_notify
	howRaw = "raw" // FIN without close_notify
	howRst = "rst" // TCP reset; a plain close without TCP
)

// sever ends the connection in the given way.
func (c *connection) sever(how string) {
	switch how {
	case howRst:
		if t, ok := c.raw().(interface{ SetLinger(int) error }); ok {
			_ = t.SetLinger(0) // fails only if the connection is dead already
		}
		_ = c.raw().Close()
	case howRaw:
		_ = c.raw().Close()
	default:
		_ = c.Close()
	}
}
