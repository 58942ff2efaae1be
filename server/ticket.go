package server

import (
	"context"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
)

// The charges of calls, in bytes.
const (
	// fetchBytes is the charge of each fetch in flight, in addition to its call: stacks, a
	// connection to an origin or a chunk of the body (decision 17).
	fetchBytes = 40 << 10
	// outcomeBytes of fetchBytes are kept for the outcome.
	outcomeBytes = 16 << 10
	// headerBytes is the memory of a request header without its text.
	headerBytes = 96
	// defaultMemoryBudget applies if [Config] sets none.
	defaultMemoryBudget = 512 << 20
)

// reasonMemory is the reason of refusals for want of memory.
const reasonMemory = "MEMORY"

// ticket is a fetch's slot among the fetches in flight, and its memory. It is released
// when the fetch's outcome is no longer unread; see [answer].
type ticket struct {
	admission *admission
	caller    string
	memory    *budget.Lease
	released  func() // called once at the end; may be nil
	done      bool   // guarded by the lock of admission
}

// release releases the slot and the memory. It may be called again.
func (t *ticket) release() {
	if t.finish() {
		t.memory.Close()
		if t.released != nil {
			t.released()
		}
	}
}

// finish releases the slot, and reports whether it was still held.
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

// becomeAnswer changes the charge to that of an answer of size bytes, and reports whether
// it was granted. The charge stays at least fetchBytes, because the slot is kept as well:
// a caller that does not read must run out of memory before it has all slots.
func (t *ticket) becomeAnswer(size int) bool {
	return t.memory.Become(budget.Answer, max(answerBytes(size), min(t.memory.Total(), fetchBytes)))
}

// pay prepares resp to be sent, and charges the copies of it that are held while it is
// unread. An outcome is charged to the ticket, which passes to the returned message. Any
// other message gets its own lease. If there is no memory for it, it loses its headers and
// hops, and is then charged to the fetch's initial memory. If that is not enough either, the
// error is [fetch.ErrOutOfMemory], and for an outcome the status of the call.
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
		o.owns(t)
		return o, nil
	}
	l, granted := t.memory.AnotherWith(budget.Answer, copies*answerBytes(o.size))
	if !granted {
		l = t.memory.Another()
		if !t.payShort(l, o, resp, copies) {
			l.Close()
			return nil, fetch.ErrOutOfMemory
		}
	}
	o.charge(l)
	return o, nil
}

// shortenOutcome removes the optional parts of an outcome. It is needed for heads that use
// more memory as a message than before.
func shortenOutcome(o *pb.FetchOutcome) {
	o.Response, o.Hops, o.ErrorBody = shortResponse(o.Response), nil, nil
}

// payShort removes the headers and hops of a message that there is no memory for, and
// tries again.
func (t *ticket) payShort(l *budget.Lease, o *outgoing, resp *pb.FetchResponse, copies int64) bool {
	switch e := resp.Event.(type) {
	case *pb.FetchResponse_BodyChunk, *pb.FetchResponse_Heartbeat:
		return false
	case *pb.FetchResponse_ResponseStarted:
		e.ResponseStarted.Response = shortResponse(e.ResponseStarted.Response)
	case *pb.FetchResponse_RedirectFollowed:
		e.RedirectFollowed.Hop.Headers = nil // no other message shares it
	case *pb.FetchResponse_AttemptFinished:
		e.AttemptFinished = shorten(e.AttemptFinished)
	}
	o.size = sizeOf(resp)
	n := copies * answerBytes(o.size)
	return l.Grow(budget.Answer, n) ||
		t.memory.Held(budget.Fetch)-n >= outcomeBytes && t.memory.Pay(l, budget.Fetch, budget.Answer, n)
}

// handOver keeps the ticket of a call until its answer takes it.
func handOver(ctx context.Context, t *ticket) {
	if c := callOf(ctx); c != nil {
		c.ticket = t
		return
	}
	t.release() // the handler was called without gRPC
}
