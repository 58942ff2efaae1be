package server

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
)

const (
	// slowAfter is how long a handler may wait for its request before the request takes
	// a slot of [receiving]. Most are there at once.
	slowAfter = 50 * time.Millisecond
	// receivingShare is the part of the budget that these slots may take.
	receivingShare = 4
)

// callKey is the key under which a call's context holds itself, a [call].
type callKey struct{}

// call is the context of a gRPC call, and what is known of it besides.
type call struct {
	context.Context
	cancel  context.CancelCauseFunc
	clock   *time.Timer // ends the call while its request is on its way; nil once it is there
	caller  string
	reading atomic.Bool  // a handler waits for the request
	stream  statusWriter // set before that

	// Under the lock of receiving.
	arrived bool
	slot    *slot // nil: it holds none

	charged bool    // from its head on
	ticket  *ticket // of FetchUnary, between the handler and the answer
}

// statusWriter ends a stream of gRPC: to a call that is only cancelled while it waits
// for a message gRPC answers CANCELLED.
type statusWriter interface {
	WriteStatus(st *status.Status) error
}

// slot is what a call holds whose request takes long to arrive.
type slot struct {
	at     *list.Element // in receiving
	limit  *time.Timer   // ends the call
	memory *budget.Lease
}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// callOf returns the call of a context, or nil where gRPC did not make it.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// receiving are the requests that take long to arrive. gRPC keeps what has come of
// each, up to the longest message, and tells nobody: so each takes a slot of that size
// from the budget. Where there is none, the oldest request of the caller that has the
// most of them ends.
type receiving struct {
	budget  *budget.Budget
	refused func(reason string) // counts

	mu      sync.Mutex
	calls   list.List // of *call, the oldest first
	callers map[string]int
}

// expect begins the clock of a call whose request is to come.
func (r *receiving) expect(c *call) {
	c.clock = time.AfterFunc(firstMessageTime, func() {
		if c.reading.Load() {
			r.late(c)
		} else {
			c.cancel(context.Canceled)
		}
	})
}

// read notes that a handler waits for its request from now on. Before that gRPC keeps
// no more of it than the window of the stream.
func (r *receiving) read(ctx context.Context) {
	c := callOf(ctx)
	if c == nil || c.clock == nil {
		return
	}
	c.stream, _ = grpc.ServerTransportStreamFromContext(ctx).(statusWriter)
	c.reading.Store(true)
	c.clock.Reset(slowAfter)
}

// came notes that the request is there. It is called by the one goroutine that reads
// requests.
func (r *receiving) came(c *call) {
	if c == nil || c.clock == nil {
		return
	}
	if !c.clock.Stop() {
		r.arrived(c)
	}
	c.clock = nil // it is not to be kept by ten thousand that wait
}

// arrived gives back the slot of a call, or keeps it from taking one.
func (r *receiving) arrived(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.arrived = true
	r.leaveLocked(c)
}

// late has a call take a slot, and ends it where none is to be had.
func (r *receiving) late(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.arrived || c.Err() != nil {
		return
	}
	memory := r.budget.Lease(c.caller)
	for !r.fits(memory) {
		if !r.evict() {
			memory.Close()
			r.end(c)
			return
		}
	}
	c.slot = &slot{at: r.calls.PushBack(c), memory: memory,
		limit: time.AfterFunc(firstMessageTime-slowAfter, func() { c.cancel(context.Canceled) })}
	r.callers[c.caller]++
	context.AfterFunc(c, func() { r.leave(c) })
}

// fits takes the memory of a slot.
func (r *receiving) fits(memory *budget.Lease) bool {
	return int64(r.calls.Len()+1)*maxRequestBytes <= max(r.budget.Limit()/receivingShare, maxRequestBytes) &&
		memory.Grow(budget.Receiving, maxRequestBytes)
}

// evict ends the oldest call of the caller that has the most, and reports whether
// there was one.
func (r *receiving) evict() bool {
	most := 0
	for _, n := range r.callers {
		most = max(most, n)
	}
	for e := r.calls.Front(); e != nil; e = e.Next() {
		if c, ok := e.Value.(*call); ok && r.callers[c.caller] == most {
			r.leaveLocked(c)
			r.end(c)
			return true
		}
	}
	return false
}

// end has a call answer that there was no memory for its request.
func (r *receiving) end(c *call) {
	r.refused(reasonMemory)
	err := refusal(reasonMemory, "the request took long to arrive, and the memory for such requests is used up", pushback())
	if c.stream != nil {
		_ = c.stream.WriteStatus(status.Convert(err)) // it may be over
	}
	c.cancel(err)
}

func (r *receiving) leave(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(c)
}

func (r *receiving) leaveLocked(c *call) {
	held := c.slot
	if held == nil {
		return
	}
	c.slot = nil
	r.calls.Remove(held.at)
	held.limit.Stop()
	held.memory.Close()
	decrement(r.callers, c.caller)
}
