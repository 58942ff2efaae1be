package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
)

const (
	// slowAfter is how long a handler may wait for its request before the request needs a
	// slot of [receiving]. Most requests arrive sooner.
	slowAfter = 50 * time.Millisecond
	// receivingShare is the divisor of the budget that gives the maximum of these slots.
	receivingShare = 4
)

// callKey is the context key of the [call].
type callKey struct{}

// call is the context of a gRPC call, with its state.
type call struct {
	context.Context
	cancel  context.CancelCauseFunc
	clock   *time.Timer // ends the call while its request is arriving; nil once it has arrived
	caller  string
	reading atomic.Bool     // a handler waits for the request
	stream  transportStream // set before reading
	early   *budget.Lease   // until it has a slot; set before reading; nil: the request is short
	due     time.Time       // when the request must have arrived

	// Guarded by receiving.mu.
	arrived bool  // or ended
	slot    *slot // nil: none

	charged  bool          // since its headers arrived
	ticket   *ticket       // of FetchUnary, between the handler and the answer
	head     [5]byte       // of the message that is read
	reserved *budget.Lease // of a long stream: reservedBytes, and the rest of its last message
}

// transportStream is gRPC's stream below its messages. If a message is too long,
// [grpc.ServerStream] ends the call with RESOURCE_EXHAUSTED before it returns the error.
// If a call is only cancelled while it waits for a message, gRPC answers CANCELLED.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	WriteStatus(st *status.Status) error
}

// slot is held by a call whose request takes long to arrive.
type slot struct {
	limit  *time.Timer // ends the call
	memory *budget.Lease
}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// callOf returns the call of a context, or nil if gRPC did not make it.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// receiving holds the requests that take long to arrive. gRPC buffers each without
// reporting it. So each gets a slot of reservedBytes from the budget. If there is none,
// the oldest request of the caller with the most of them ends.
type receiving struct {
	budget  *budget.Budget
	refused refusals

	mu      sync.Mutex
	calls   []*call // oldest first
	callers map[string]int
}

// expect starts the timer of a call whose request has not arrived.
func (r *receiving) expect(c *call) {
	c.due = time.Now().Add(firstMessageTime)
	c.clock = time.AfterFunc(firstMessageTime, func() {
		if c.reading.Load() {
			r.late(c)
		} else {
			c.cancel(context.Canceled)
		}
	})
}

// read records that a handler now waits for its request of n bytes. Before that gRPC
// buffers no more of it than the stream's window. A longer request is charged until it
// has a slot or c.early is closed.
func (r *receiving) read(ctx context.Context, c *call, s transportStream, n int) error {
	if c.clock == nil || !c.clock.Stop() {
		return nil
	}
	c.stream = s
	c.reading.Store(true)
	if n > streamWindow {
		c.early = r.budget.Lease(c.caller)
		if !c.early.Grow(budget.Receiving, int64(n)) {
			return r.noMemory(ctx, n)
		}
	}
	c.clock.Reset(slowAfter)
	return nil
}

// noMemory refuses a message of n bytes.
func (r *receiving) noMemory(ctx context.Context, n int) error {
	return r.refused.refuse(ctx, reasonMemory, fmt.Sprintf("there is no memory for a message of %d bytes", n))
}

// received records that the request has arrived. Only the goroutine that reads requests calls
// it.
func (r *receiving) received(c *call) {
	if c == nil || c.clock == nil {
		return
	}
	if !c.clock.Stop() {
		r.arrived(c)
	}
	c.clock = nil // so that it can be collected while the call waits
}

// arrived releases the slot of a call that has its request or has ended, or prevents it from getting
// one.
func (r *receiving) arrived(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.arrived = true
	r.leaveLocked(c)
}

// late gives the call a slot, or ends it if there is none.
func (r *receiving) late(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.arrived || c.Err() != nil {
		return
	}
	c.early.Close()
	memory := r.budget.Lease(c.caller)
	for limit := max(r.budget.Limit()/receivingShare, maxRequestBytes) / reservedBytes; int64(len(r.calls)) >= limit; {
		if !r.evictLocked("") {
			r.endLocked(c)
			return
		}
	}
	for !memory.Grow(budget.Receiving, reservedBytes) { // a caller without memory ends no call of another
		if !r.evictLocked(c.caller) {
			memory.Close()
			r.endLocked(c)
			return
		}
	}
	c.slot = &slot{memory: memory, limit: time.AfterFunc(time.Until(c.due), func() { c.cancel(context.Canceled) })}
	r.calls = append(r.calls, c)
	r.callers[c.caller]++
	context.AfterFunc(c, func() { r.arrived(c) })
}

// evictLocked ends the oldest call of a caller, and reports whether there was one. Without a
// caller it takes the one with the most.
func (r *receiving) evictLocked(caller string) bool {
	most := 0
	for _, n := range r.callers {
		most = max(most, n)
	}
	for _, c := range r.calls {
		if c.caller == caller || caller == "" && r.callers[c.caller] == most {
			r.leaveLocked(c)
			r.endLocked(c)
			return true
		}
	}
	return false
}

// endLocked ends a call with the error that there was no memory for its request.
func (r *receiving) endLocked(c *call) {
	r.refused(c.caller, reasonMemory)
	err := refusal(reasonMemory, "the request took long to arrive, and the memory for such requests is used up", pushback())
	if c.stream != nil {
		_ = c.stream.WriteStatus(status.Convert(err)) // the call may have ended
	}
	c.cancel(err)
}

func (r *receiving) leaveLocked(c *call) {
	held := c.slot
	if held == nil {
		return
	}
	c.slot = nil
	at := slices.Index(r.calls, c)
	r.calls = slices.Delete(r.calls, at, at+1)
	held.limit.Stop()
	held.memory.Close()
	decrement(r.callers, c.caller)
}
