package fetch

import (
	"sync"
	"time"

	"fetchd/classify"
	"fetchd/internal/budget"
)

// chunkBytes is the longest chunk: with its envelope it fits the 32 KiB tier of
// grpc-go's buffers, past which the next is 1 MiB.
const chunkBytes = 31 << 10

type chunk = [chunkBytes]byte

var chunks sync.Pool // of *chunk

func newChunk() *chunk {
	if c, ok := chunks.Get().(*chunk); ok {
		return c
	}
	return new(chunk)
}

// output is where a body goes: nowhere, into memory, or to the sink after a
// hold-back (spec B1, B4). The body is read straight into its chunks.
type output struct {
	a       *attempt
	stream  bool
	inline  bool     // all of it is kept, for the outcome
	kept    []byte   // for the outcome
	charged int64    // bytes charged for kept
	granted int64    // hold-back
	unused  int64    // of it; given back by close
	held    []*chunk // full ones
	last    *chunk   // the one that is filled
	n       int      // bytes in it
	offset  int64    // of the next chunk
	body    *progress
}

// newOutput delivers behind what was delivered. What continues a body is not held
// back: it cannot be taken back.
func newOutput(a *attempt, delivered *progress) output {
	o := output{a: a, body: delivered, offset: delivered.size}
	if bodyless(a.hop.method, a.resp.StatusCode) {
		return o
	}
	switch a.req.Delivery {
	case Stream:
		o.stream = true
		if delivered == a.continued {
			return o
		}
		o.granted = a.req.Memory.GrowUpTo(budget.HoldBack, holdBackWanted(a))
		o.unused = o.granted
	case Inline:
		o.inline = true
	}
	return o
}

// holdBackShare: a body known to be so many times as long as the hold-back is
// not held back at all. It would come later, and hardly safer: a cut would come
// after the hold-back almost always.
const holdBackShare = 8

// holdBackWanted is no more than the body can need, where its size is known.
func holdBackWanted(a *attempt) int64 {
	want := a.req.HoldBackBytes
	if known := a.resp.ContentLength; known >= 0 && a.coding() == "" {
		if known/holdBackShare >= want {
			return 0
		}
		want = min(want, known)
	}
	return want
}

func (o *output) close() {
	o.a.req.Memory.Shrink(budget.HoldBack, o.unused)
	o.a.req.Memory.Shrink(budget.Body, o.charged)
	o.unused, o.charged = 0, 0
	for _, c := range o.held {
		chunks.Put(c)
	}
	if o.last != nil {
		chunks.Put(o.last)
	}
	o.held, o.last = nil, nil
}

// space is where the next piece of the body is to be read into. It is never
// empty.
func (o *output) space() []byte {
	if o.last == nil {
		o.last = newChunk()
	}
	return o.last[o.n:]
}

// keptAhead is how many times what has come memory is taken for, where an origin says
// that more will come: it may say what it likes.
const keptAhead = 4

// keptStep is the least memory that is allocated at a time.
const keptStep = 64 << 10

// keep appends n bytes, which are in the output's buffer, to what is kept. It charges
// each byte as many times as it is copied on its way to the caller.
func (o *output) keep(n int) error {
	if need := len(o.kept) + n; need > cap(o.kept) {
		room := max(need, min(2*need, keptStep))
		if known := o.a.resp.ContentLength; known >= int64(need) {
			room = int(min(known, int64(max(keptAhead*need, keptStep))))
		} else if need > keptStep {
			room = need + need/2
		}
		more := int64(1+max(o.a.req.InlineCopies, 1)) * int64(room-cap(o.kept))
		if !o.a.req.Memory.Grow(budget.Body, more) {
			return errOutOfMemory
		}
		o.charged += more
		o.kept = append(make([]byte, 0, room), o.kept...)
	}
	o.kept = append(o.kept, o.last[:n]...)
	return nil
}

// take returns what is kept. The outcome then owns it and its charge.
func (o *output) take() []byte {
	o.charged = 0
	return o.kept
}

// wrote takes the n bytes that were read into the space. Once the hold-back is
// full, all of it goes out, and what comes after it as it comes.
func (o *output) wrote(n int) error {
	switch {
	case o.inline:
		return o.keep(n)
	case !o.stream:
		return nil
	}
	o.n += n
	if o.a.committed || int64(len(o.held)*chunkBytes+o.n) > o.granted {
		return o.release()
	}
	if o.n == chunkBytes {
		o.held = append(o.held, o.last)
		o.last, o.n = nil, 0
	}
	return nil
}

// finish lets go what is still held, for the attempt has ended well.
func (o *output) finish() error {
	if !o.stream {
		return nil
	}
	return o.release()
}

// release sends what is held, and lets go of each chunk as it is sent. From the
// first byte on the attempt can no longer be taken back.
func (o *output) release() error {
	o.a.announce(o)
	for i, c := range o.held {
		if err := o.send(c[:]); err != nil {
			o.held = nil // the sink may still be at it
			return err
		}
		o.held[i] = nil
		chunks.Put(c)
	}
	o.held = nil
	if o.n == 0 {
		return nil
	}
	n := o.n
	o.n = 0
	if err := o.send(o.last[:n]); err != nil {
		o.last = nil
		return err
	}
	return nil
}

// send passes a chunk to the sink.
func (o *output) send(p []byte) error {
	o.a.committed, o.a.delivered, o.body.sent = true, o.body, true
	if err := o.a.push(BodyChunk{Attempt: o.a.number, Offset: o.offset, Data: p}); err != nil {
		return err
	}
	o.offset += int64(len(p))
	back := min(o.unused, int64(len(p)))
	o.a.req.Memory.Shrink(budget.HoldBack, back)
	o.unused -= back
	return nil
}

// tell gives an event to the sink. The time this takes is the caller's: the
// attempt's clock does not run (spec B7); the hop's is at rest between its reads.
func (a *attempt) tell(e Event) {
	began := time.Now()
	left := a.limit.pause(began)
	a.emit(e)
	ended := time.Now()
	if n := len(a.hops); n > 0 {
		a.hops[n-1].Exchange.Backpressure += ended.Sub(began)
	}
	a.limit.resume(ended, left)
}

// push gives a chunk to the sink.
func (a *attempt) push(chunk BodyChunk) error {
	a.tell(chunk)
	if err := a.stopped(); err != nil {
		class, reason, _ := a.classOf(classify.PhaseTransfer, err)
		return &fault{class, classify.PhaseTransfer, reason}
	}
	return nil
}

// tellResponse tells of the head as it is read; r reads its body, where that is to
// be delivered. At the lower levels, only a body that is delivered is announced.
func (a *attempt) tellResponse(r *bodyReader) {
	switch {
	case !a.tells():
	case r == nil && a.delivered != nil: // no body follows, and what was delivered stands
		a.started(a.delivered.size, 0)
	case r == nil:
		a.started(0, 0)
	default:
		a.started(r.out.offset, r.out.granted)
	}
}

// announce tells of the head before a body, where tellResponse did not.
func (a *attempt) announce(o *output) {
	if !a.tells() && !a.committed {
		a.started(o.offset, o.granted)
	}
}

func (a *attempt) started(offset, holdBack int64) {
	a.tell(ResponseStarted{Attempt: a.number, Response: a.head.response, BodyOffset: offset, HoldBack: holdBack})
}
