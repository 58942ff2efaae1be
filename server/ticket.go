package server

import (
	"context"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
)

// What calls are charged with, in bytes.
const (
	// fetchBytes is what each fetch takes while it is in flight besides its call: stacks,
	// a connection to an origin or a piece of the body (decision 17).
	fetchBytes = 40 << 10
	// outcomeBytes of it are kept for the outcome.
	outcomeBytes = 16 << 10
	// headerBytes is what a header line of a request takes besides its text.
	headerBytes = 96
	// defaultMemoryBudget is that of a server that is given none.
	defaultMemoryBudget = 512 << 20
)

// reasonMemory is the reason of what is refused for want of memory.
const reasonMemory = "MEMORY"

// ticket is what a fetch has of the server: a slot among the fetches in flight, and
// memory. It lasts until the fetch's answer has been read.
type ticket struct {
	admission *admission
	caller    string
	memory    *budget.Lease
	released  func() // called once at the end; nil: nothing is
	done      bool   // under the lock of admission
}

// release gives the slot and the memory back. It may be called again.
func (t *ticket) release() {
	if t.finish() {
		t.memory.Close()
		if t.released != nil {
			t.released()
		}
	}
}

// finish gives the slot back, and reports whether it had not been.
func (t *ticket) finish() bool {
	t.admission.mu.Lock()
	defer t.admission.mu.Unlock()
	if t.done {
		return false
	}
	t.done = true
	t.admission.freeLocked(t.caller)
	return true
}

// becomeAnswer has the ticket hold an answer of so many bytes, and nothing else. It
// keeps what a fetch takes at least, for the slot is kept as well: a caller that does
// not read must use up its memory before it has all slots.
func (t *ticket) becomeAnswer(size int) bool {
	return t.memory.Become(budget.Answer, max(answerBytes(size), min(t.memory.Total(), fetchBytes)))
}

// pay makes resp a message to be sent, of which so many copies are held until it has
// been read. The outcome takes the ticket along. What else there is no memory for
// loses its headers and hops, and is then paid out of what the fetch has from its
// begin. If that does not do, the error is [fetch.ErrOutOfMemory]; of an outcome it is
// the status of the call.
func (t *ticket) pay(ctx context.Context, resp *pb.FetchResponse, copies int64) (*outgoing, error) {
	o := &outgoing{message: resp, size: sizeOf(resp)}
	if resp.GetOutcome() != nil {
		if !t.becomeAnswer(o.size * int(copies)) {
			shortenOutcome(resp.GetOutcome())
			o.size = sizeOf(resp)
			if !t.becomeAnswer(o.size * int(copies)) {
				return nil, t.admission.noMemory(ctx, "answers")
			}
		}
		o.tickets = []*ticket{t}
		return o, nil
	}
	l := t.admission.budget.Lease(t.caller)
	if !l.Grow(budget.Answer, copies*answerBytes(o.size)) && !t.payShort(l, o, resp, copies) {
		l.Close()
		return nil, fetch.ErrOutOfMemory
	}
	o.memory = []*budget.Lease{l}
	return o, nil
}

// shortenOutcome leaves out what an outcome can do without. It is for heads that take
// more as a message than they did before.
func shortenOutcome(o *pb.FetchOutcome) {
	o.Response, o.Hops, o.ErrorBody = shortResponse(o.Response), nil, nil
}

// payShort pays for a message that there is no memory for, without its headers and
// hops.
func (t *ticket) payShort(l *budget.Lease, o *outgoing, resp *pb.FetchResponse, copies int64) bool {
	switch e := resp.Event.(type) {
	case *pb.FetchResponse_BodyChunk, *pb.FetchResponse_Heartbeat:
		return false
	case *pb.FetchResponse_ResponseStarted:
		e.ResponseStarted.Response = shortResponse(e.ResponseStarted.Response)
	case *pb.FetchResponse_RedirectFollowed:
		e.RedirectFollowed.Hop.Headers = nil // it is in no other message
	case *pb.FetchResponse_AttemptFinished:
		e.AttemptFinished = shorten(e.AttemptFinished)
	}
	o.size = sizeOf(resp)
	n := copies * answerBytes(o.size)
	return l.Grow(budget.Answer, n) ||
		t.memory.Held(budget.Fetch)-n >= outcomeBytes && t.memory.Pay(l, budget.Fetch, budget.Answer, n)
}

// handOver is where a call keeps its ticket between the handler and the message that
// takes it along.
func handOver(ctx context.Context, t *ticket) {
	if c := callOf(ctx); c != nil {
		c.ticket = t
		return
	}
	t.release() // there is no gRPC around the handler
}
