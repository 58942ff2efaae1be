package conns

import (
	"bytes"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// Limits on what an origin sends in one head, and the memory it takes.
const (
	// MaxHeadBytes is the maximum length of a response head.
	MaxHeadBytes = 64 << 10
	// MaxHeaderFields limits the fields of a response head, a 1xx head or a trailer.
	// net/http limits only the bytes of a head, and a field of five bytes uses a hundred
	// in memory.
	MaxHeaderFields = 512
	// HeaderLineBytes is the memory of a header line without its text: a slice of one
	// string, and an entry in a map that may have twice as many slots as lines.
	HeaderLineBytes = 128
	// WindowBytes is the flow-control window of a response body over HTTP/2. With
	// net/http's default a stalled reader would hold 4 MiB.
	WindowBytes = 128 << 10
	// http2HeadBytes is the memory of the largest response head over HTTP/2 while it is
	// decoded. A connection decodes one at a time.
	http2HeadBytes = 192 << 10
	// keptHeadBytes is the length of a head over HTTP/2 up to which an idle connection is kept:
	// net/http keeps buffers of the length of the longest head.
	keptHeadBytes = 16 << 10
)

// ErrFields is the error for more than MaxHeaderFields.
var ErrFields = fault.New(classify.Protocol, classify.PhaseProcessing, "too_many_header_fields")

var errHeadBytes = fault.New(classify.Protocol, classify.PhaseProcessing, "response_head_too_large")

// headBytes is the length of a head.
func headBytes(h http.Header) (n int) {
	for name, values := range h {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// Fields counts the lines of a head.
func Fields[H ~map[string][]string](h H) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// headReader is an HTTP/1 connection, above TLS, that inspects response heads as they are
// read. net/http keeps a head in memory from its first line, and waits for its end as long
// as the fetch lasts. So headReader counts the lines, and charges the fetch for an
// incomplete head.
type headReader struct {
	net.Conn
	head  atomic.Pointer[partialHead] // of the exchange that uses the connection, or nil
	turns turns

	tapped atomic.Pointer[Exchange] // the exchange that uses the connection, if it has a tap; otherwise nil
}

// Read implements net.Conn.
func (r *headReader) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	if n <= 0 {
		return n, err
	}
	r.turns.read()
	if x := r.tapped.Load(); x != nil {
		if err := x.settings.Tap.Received(p[:n]); err != nil {
			x.cancel(err)
			return 0, err
		}
	}
	if head := r.head.Load(); head != nil {
		complete, fault := head.read(p[:n])
		if complete {
			r.head.CompareAndSwap(head, nil)
		}
		if fault != nil {
			head.end(fault) // net/http would wrap it in an error without its type
			return 0, fault
		}
	}
	return n, err
}

// Write implements net.Conn.
func (r *headReader) Write(p []byte) (int, error) {
	r.turns.write()
	if x := r.tapped.Load(); x != nil { // before the write, because the exchange may be over when Write returns
		if err := x.settings.Tap.Sent(p); err != nil {
			x.cancel(err)
			return 0, err
		}
	}
	return r.Conn.Write(p)
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
		case h.readLineLocked(line, ended):
			h.releaseLocked()
			n = 0
		case ended:
			n += HeaderLineBytes
		}
		if h.lines > MaxHeaderFields+1 {
			return false, ErrFields
		}
		if h.bytes >= MaxHeadBytes { // net/http reads no more of a head that has not ended by then
			return false, errHeadBytes
		}
	}
	if !h.memory.Grow(budget.Receiving, n) {
		return false, fault.OutOfMemory
	}
	h.held += n
	return h.complete, nil
}

var newline, carriageReturn = []byte{'\n'}, []byte{'\r'}

// readLineLocked processes a line, or part of one, and reports whether it ends a head.
func (h *partialHead) readLineLocked(piece []byte, ended bool) bool {
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
	h.mu.Lock()
	defer h.mu.Unlock()
	h.complete = true
	h.releaseLocked()
}

func (h *partialHead) releaseLocked() {
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
