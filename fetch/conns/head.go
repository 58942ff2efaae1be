package conns

import (
	"bytes"
	"net/http"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// Limits on what an origin sends in one head, and the memory it takes.
const (
	// MaxHeadBytes is the maximum length of a response head.
	MaxHeadBytes = 64 << 10
	// readBytes is the size of the buffer that a response is read through.
	readBytes = 4 << 10
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

// partialHead limits one response head over HTTP/1 and the 1xx heads before it, and charges the fetch
// while they are not complete: a head is kept in memory from its first line, as long as the origin
// takes to send the rest.
type partialHead struct {
	memory   *budget.Lease
	complete bool // nothing that follows is inspected
	inLine   bool // part of the current line has been read
	lines    int  // complete lines, including the status line
	status   statusLine
	bytes    int // of the head that is read
	held     int64
}

// read processes the bytes of a read. An error means that no more of the head may be read.
func (h *partialHead) read(p []byte) error {
	n := int64(0)
	for len(p) > 0 && !h.complete {
		line, rest, ended := bytes.Cut(p, newline)
		n += int64(len(p) - len(rest))
		h.bytes += len(p) - len(rest)
		p = rest
		if h.bytes > MaxHeadBytes {
			return errHeadBytes
		}
		switch {
		case h.readLine(line, ended):
			h.release()
			n = 0
		case ended:
			n += HeaderLineBytes
		}
		if h.lines > MaxHeaderFields+1 {
			return ErrFields
		}
		if h.bytes >= MaxHeadBytes { // net/http reads no more of a head that has not ended by then
			return errHeadBytes
		}
	}
	if !h.memory.Grow(budget.Receiving, n) {
		return fault.OutOfMemory
	}
	h.held += n
	return nil
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
