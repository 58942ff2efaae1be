package fetch

import (
	"net/http"
	"unicode/utf8"

	"fetchd/classify"
	"fetchd/internal/budget"
)

// What a fetch is charged with, in bytes, besides what is simply as long as it is.
const (
	// headerLineBytes is what a header line takes besides its text: its place in a
	// map, which may have twice as many places as lines, and a slice of one string.
	headerLineBytes = 128
	// hopBytes is what each hop after the first takes besides its URLs: its request
	// with its header, which the loop check needs, and its timings.
	hopBytes = 4 << 10
	// http2HeadBytes is the largest response head over HTTP/2 while it is decoded. A
	// connection has one at a time.
	http2HeadBytes = 192 << 10
	// http2WindowBytes of a response body may lie unread for each HTTP/2 stream: the
	// default lets a stalled reader hold 4 MiB.
	http2WindowBytes = 128 << 10
)

// maxHeaderFields is how many fields a response head, a 1xx head or a trailer may
// have. net/http bounds the bytes of a head alone, and a field of five bytes takes a
// hundred in memory.
const maxHeaderFields = 512

// ErrOutOfMemory says that a [Sink] cannot take an event for want of memory. The
// fetch ends as OUT_OF_MEMORY, and the sink is called for the events of that end.
var ErrOutOfMemory error = &fault{classify.OutOfMemory, classify.NoPhase, "memory"}

var (
	errOutOfMemory = &fault{classify.OutOfMemory, classify.NoPhase, "memory"}
	errFields      = &fault{classify.Protocol, classify.PhaseProcessing, "too_many_header_fields"}
)

// fields counts the lines of a head.
func fields[H ~map[string][]string](h H) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// headBytes is what a head takes in memory, and as a message at most. A value that is
// no text goes out twice: as its bytes, and with up to three bytes for each that is
// none.
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

// holdHead charges the fetch with the head of a response, and notes what is wrong
// with it, if anything is.
func (a *attempt) holdHead(resp *http.Response) bool {
	if fields(resp.Header) > maxHeaderFields {
		a.fail(errFields.class, errFields.phase, errFields.reason)
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

// dropHead gives back what holdHead has charged.
func (a *attempt) dropHead() {
	a.req.Memory.Shrink(budget.Head, a.headHeld)
	a.headHeld = 0
}

// holdHop charges the fetch with a hop that follows another.
func (a *attempt) holdHop(next *hopRequest) bool {
	n := hopBytes + 4*int64(len(next.told())) // parsed, as text, as Location, and as it is told
	if !a.req.Memory.Grow(budget.Head, n) {
		a.outOfMemory(classify.PhasePolicy)
		return false
	}
	a.hopsHeld += n
	return true
}

func (a *attempt) outOfMemory(phase classify.Phase) {
	a.fail(errOutOfMemory.class, phase, errOutOfMemory.reason)
}

// held is what a run is charged with for what the last attempt has left.
type held struct{ head, hops, errorBody int64 }

// keepHeld has the run take over what the attempt holds, in place of what it replaces.
func (r *run) keepHeld(a *attempt) {
	m := r.req.Memory
	if a.response != nil {
		m.Shrink(budget.Head, r.held.head)
		m.Shrink(budget.Body, r.held.errorBody)
		r.held.head, r.held.errorBody = a.headHeld, int64(len(a.errorBody))
	} else {
		a.dropHead()
	}
	m.Shrink(budget.Head, r.held.hops)
	r.held.hops = a.hopsHeld
}

// holdWindow charges the fetch with what HTTP/2 takes of a body ahead of its reader,
// and returns what gives it back. It reports whether that was granted.
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
