package fetch

import (
	"time"

	"fetchd/classify"
)

// output is where a body goes: nowhere, into memory, or to the sink after a
// hold-back (spec B1, B4).
type output struct {
	a        *attempt
	stream   bool
	keep     bool  // all of it, for the outcome
	holdBack int64 // granted; given back by close
	held     []byte
	offset   int64 // of the next chunk
}

func newOutput(a *attempt) output {
	o := output{a: a}
	if bodyless(a.hop.method, a.resp.StatusCode) {
		return o
	}
	switch a.req.Delivery {
	case Stream:
		o.stream = true
		o.holdBack = a.client.holdBack.take(holdBackWanted(a))
	case Inline:
		o.keep = true
	}
	return o
}

// holdBackWanted is no more than the body can need, where its size is known.
func holdBackWanted(a *attempt) int64 {
	want := a.req.HoldBackBytes
	if known := a.resp.ContentLength; known >= 0 && a.coding() == "" {
		want = min(want, known)
	}
	return want
}

func (o *output) close() {
	o.a.client.holdBack.give(o.holdBack)
	o.holdBack = 0
}

// write takes a piece. Once the hold-back is full, all of it goes out, and what
// comes after it as it comes.
func (o *output) write(p []byte) error {
	switch {
	case o.keep:
		o.held = append(o.held, p...)
		return nil
	case !o.stream:
		return nil
	case o.a.committed:
		return o.send(p)
	case int64(len(o.held)+len(p)) <= o.holdBack:
		o.held = append(o.held, p...)
		return nil
	}
	if err := o.release(); err != nil {
		return err
	}
	return o.send(p)
}

// finish lets go what is still held, for the attempt has ended well.
func (o *output) finish() error {
	if !o.stream {
		return nil
	}
	return o.release()
}

// release sends what was held. From the first byte on the attempt can no longer
// be taken back.
func (o *output) release() error {
	o.a.announce(o.holdBack)
	held := o.held
	o.held = nil
	return o.send(held)
}

// send passes bytes to the sink in chunks.
func (o *output) send(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), chunkBytes)
		o.a.committed = true
		if err := o.a.push(BodyChunk{Attempt: o.a.number, Offset: o.offset, Data: p[:n]}); err != nil {
			return err
		}
		o.offset += int64(n)
		p = p[n:]
	}
	return nil
}

// tell gives an event to the sink. The time this takes is the caller's: the
// attempt's clock does not run (spec B7); the hop's is at rest between its reads.
func (a *attempt) tell(e Event) {
	resume := a.clock.pause()
	began := time.Now()
	a.emit(e)
	if n := len(a.hops); n > 0 {
		a.hops[n-1].Exchange.Backpressure += time.Since(began)
	}
	resume()
}

// push gives a chunk to the sink.
func (a *attempt) push(chunk BodyChunk) error {
	a.tell(chunk)
	if a.ctx.Err() != nil {
		class, reason := a.classOf(classify.PhaseTransfer, a.ctx.Err())
		return &fault{class, classify.PhaseTransfer, reason}
	}
	return nil
}

// tellResponse tells of the head as it is read. At level OUTCOME only a body
// that is let go is announced.
func (a *attempt) tellResponse(holdBack int64) {
	if a.req.Events != OutcomeOnly {
		a.started(holdBack)
	}
}

// announce tells of the head before a body, where tellResponse did not.
func (a *attempt) announce(holdBack int64) {
	if a.req.Events == OutcomeOnly && !a.committed {
		a.started(holdBack)
	}
}

func (a *attempt) started(holdBack int64) {
	a.tell(ResponseStarted{Attempt: a.number, Response: a.response, HoldBack: holdBack})
}
