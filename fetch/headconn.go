package fetch

import (
	"bytes"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"fetchd/internal/budget"
)

// headConn is an HTTP/1 connection that inspects response heads as they are read.
// net/http keeps a head in memory from its first line, and waits for its end as long
// as the fetch lasts. So headConn counts the lines, and charges the fetch for an
// incomplete head.
type headConn struct {
	net.Conn
	head atomic.Pointer[partialHead] // of the exchange that uses the connection, or nil
}

// NetConn returns the underlying connection.
func (c *headConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if head := c.head.Load(); head != nil && n > 0 {
		complete, fault := head.read(p[:n])
		if complete {
			c.head.CompareAndSwap(head, nil)
		}
		if fault != nil {
			head.end(fault) // first, or net/http would send the request again
			return 0, fault
		}
	}
	return n, err
}

// partialHead tracks one response head and the 1xx heads before it.
type partialHead struct {
	memory *budget.Lease
	end    func(error) // ends the exchange

	mu       sync.Mutex // the exchange may end while its connection is read
	complete bool       // nothing that follows is inspected
	inLine   bool       // part of the current line has been read
	lines    int        // complete lines, including the status line
	status   statusLine
	bytes    int // of the head that is read
	held     int64
}

// read processes the bytes of a read, and reports whether the head is complete. A
// non-nil error means that no more of the head may be read.
func (h *partialHead) read(p []byte) (complete bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := int64(0)
	for len(p) > 0 && !h.complete {
		line, rest, ended := bytes.Cut(p, newline)
		n += int64(len(p) - len(rest))
		h.bytes += len(p) - len(rest)
		p = rest
		switch {
		case h.readLine(line, ended):
			h.release()
			n = 0
		case ended:
			n += headerLineBytes
		}
		if h.lines > maxHeaderFields+1 {
			return false, errFields
		}
		if h.bytes >= maxResponseHeadBytes { // net/http reads no more of a head that has not ended by then
			return false, errHeadBytes
		}
	}
	if !h.memory.Grow(budget.Receiving, n) {
		return false, errOutOfMemory
	}
	h.held += n
	return h.complete, nil
}

var newline, carriageReturn = []byte{'\n'}, []byte{'\r'}

// readLine processes a line, or part of one, and reports whether it ends a head.
func (h *partialHead) readLine(piece []byte, ended bool) bool {
	if h.lines == 0 {
		h.status.read(piece)
	}
	h.inLine = h.inLine || len(bytes.TrimSuffix(piece, carriageReturn)) > 0
	switch {
	case !ended:
		return false
	case h.inLine:
		h.lines, h.inLine = h.lines+1, false
		return false
	}
	h.complete = !h.status.informational() // another head follows a 1xx head
	h.lines, h.bytes, h.status = 0, 0, statusLine{}
	return true
}

// drop releases the charge. Nothing is charged afterwards.
func (h *partialHead) drop() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.complete = true
	h.release()
}

func (h *partialHead) release() {
	h.memory.Shrink(budget.Receiving, h.held)
	h.held = 0
}

// statusLine reads the status code of a head as net/http does, which accepts any
// number of blanks before it.
type statusLine struct{ column, digits, code int }

func (s *statusLine) read(piece []byte) {
	for _, b := range piece {
		switch {
		case s.column < len("HTTP/1.1"):
			s.column++
		case s.digits == 0 && b == ' ':
		case s.digits < len("200"):
			s.digits, s.code = s.digits+1, 10*s.code+int(b-'0')
		default:
			return
		}
	}
}

// informational reports whether another head follows. None follows a 101.
func (s *statusLine) informational() bool {
	return s.code/100 == 1 && s.code != http.StatusSwitchingProtocols
}

// watchHead assigns the heads on an HTTP/1 connection to x.
func watchHead(conn net.Conn, x *trace) {
	x.head.drop() // of a connection on which the request was sent before
	x.head = nil
	if c, ok := conn.(*headConn); ok {
		x.head = &partialHead{memory: x.limits.Memory, end: x.end}
		c.head.Store(x.head)
	}
}
