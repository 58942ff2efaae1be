package fetch

import (
	"net/http"
	"unicode/utf8"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// The charges of a fetch in bytes, in addition to the lengths of its data.
const (
	// headerLineBytes is the memory of a header line without its text: a slice of one
	// string, and an entry in a map that may have twice as many slots as lines.
	headerLineBytes = 128
	// hopBytes is the memory of each hop after the first without its URLs: its timings
	// and its request with the header, which the loop check needs.
	hopBytes = 4 << 10
	// http2HeadBytes is the memory of the largest response head over HTTP/2 while it is
	// decoded. A connection decodes one at a time.
	http2HeadBytes = 192 << 10
	// http2WindowBytes is the flow-control window of a response body over HTTP/2. With
	// net/http's default a stalled reader would hold 4 MiB.
	http2WindowBytes = 128 << 10
)

// maxHeaderFields limits the fields of a response head, a 1xx head or a trailer.
// net/http limits only the bytes of a head, and a field of five bytes uses a hundred
// in memory.
const maxHeaderFields = 512

// ErrOutOfMemory is the error that a [Sink] returns if it has no memory for an event. The
// fetch then ends as OUT_OF_MEMORY, and the sink still receives the final events.
var ErrOutOfMemory error = fault.OutOfMemory

var (
	errOutOfMemory = fault.OutOfMemory
	errHeadBytes   = fault.New(classify.Protocol, classify.PhaseProcessing, "response_head_too_large")
	errFields      = fault.New(classify.Protocol, classify.PhaseProcessing, "too_many_header_fields")
)

// fields counts the lines of a head.
func fields[H ~map[string][]string](h H) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// headBytes is an upper bound for the memory of a head and for its size as a message. A
// value that is not UTF-8 is sent twice: as its bytes, and as text with up to three
// bytes for each invalid one.
func headBytes(h http.Header) (n int64) {
	for name, values := range h {
		for _, value := range values {
			n += int64(len(name)+len(value)) + headerLineBytes
			if !utf8.ValidString(value) {
				n += 3 * int64(len(value))
			}
		}
	}
	return n
}

// holdHead charges the fetch for the head of a response, and records what is wrong
// with it, if anything.
func (a *attempt) holdHead(resp *http.Response) bool {
	if fields(resp.Header) > maxHeaderFields {
		a.fail(errFields.Class, errFields.Phase, errFields.Reason)
		return false
	}
	n := headBytes(resp.Header)
	if !a.req.Memory.Grow(budget.Head, n) {
		a.outOfMemory(classify.PhaseProcessing)
		return false
	}
	a.headHeld = n
	return true
}

// dropHead releases what holdHead has charged.
func (a *attempt) dropHead() {
	a.req.Memory.Shrink(budget.Head, a.headHeld)
	a.headHeld = 0
}

// holdHop charges the fetch for a hop after the first.
func (a *attempt) holdHop(next *hopRequest) bool {
	n := hopBytes + 4*int64(len(next.told())) // parsed, as text, as Location, and as it is reported
	if !a.req.Memory.Grow(budget.Head, n) {
		a.outOfMemory(classify.PhasePolicy)
		return false
	}
	a.hopsHeld += n
	return true
}

func (a *attempt) outOfMemory(phase classify.Phase) {
	a.fail(errOutOfMemory.Class, phase, errOutOfMemory.Reason)
}

// held is what a run is charged for what the last attempt has left: body for the head
// of the body that is delivered, head for the last response if it is another.
type held struct{ head, body, hops, errorBody int64 }

// keepHeld moves the attempt's charges to the run, and releases those that they replace.
func (r *run) keepHeld(a *attempt) {
	m := r.req.Memory
	if a.response != nil {
		m.Shrink(budget.Head, r.held.head)
		m.Shrink(budget.Body, r.held.errorBody)
		r.held.head, r.held.errorBody = 0, int64(len(a.errorBody))
	}
	switch {
	case a.response == nil || a.head.response != a.response: // the run has the one that is kept
		a.dropHead()
	case r.delivered != nil && r.delivered.head.response == a.response:
		m.Shrink(budget.Head, r.held.body)
		r.held.body = a.headHeld
	default:
		r.held.head = a.headHeld
	}
	m.Shrink(budget.Head, r.held.hops)
	r.held.hops = a.hopsHeld
}

// holdWindow charges the fetch for the body that HTTP/2 receives ahead of its reader.
// It returns a function that releases the charge, and reports whether it was granted.
func (a *attempt) holdWindow() (release func(), ok bool) {
	n := int64(0)
	if a.resp.ProtoMajor >= 2 {
		n = http2WindowBytes
		if known := a.resp.ContentLength; known >= 0 {
			n = min(n, known)
		}
	}
	if !a.req.Memory.Grow(budget.Receiving, n) {
		a.outOfMemory(classify.PhaseTransfer)
		return func() {}, false
	}
	return func() { a.req.Memory.Shrink(budget.Receiving, n) }, true
}
