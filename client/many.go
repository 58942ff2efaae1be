package client

import (
	"context"
	"iter"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

const (
	defaultOpen = 64
	// maxSends is how often Many sends a fetch that services return when they shut down.
	maxSends = 3
)

// ManyOptions change how [Client.Many] works. The zero value is usable.
type ManyOptions struct {
	// Open is the maximum number of fetches whose results the caller has not received yet,
	// up to 256. Zero or less means 64. It also bounds memory: that many bodies may wait, of
	// up to 1 MiB or, with delivery auto or stream, max_size_bytes; see [Task].Request.
	Open int
	// OnEvent is called for the events of each request that sets event_level, except body
	// chunks; others send none, except the head of a streamed body. It is called from several goroutines and blocks the stream while it runs.
	// May be nil.
	OnEvent func(*pb.FetchRequest, *pb.FetchEvent)
}

// Result is the result of one fetch of [Client.Many].
type Result struct {
	// Request is the pointer that the sequence yielded.
	Request *pb.FetchRequest
	// Outcome holds the body of a success in inline_body; see [Task].Request. It is nil if no outcome arrived. The error then
	// matches [ErrLost] if requests may have been made; with any other error none was sent.
	Outcome *pb.FetchOutcome
}

// Many runs requests over FetchMany and yields each result when its fetch ends, with an
// [*Error] if the fetch failed. Results arrive in the order in which fetches end.
//
// If a stream breaks, each of its fetches is yielded without an outcome and with an error that
// matches [ErrLost] and has the gRPC status. Requests may have been made for it, and only the
// caller knows whether they may be made again. The other fetches continue on another stream if
// the service had answered before.
//
// If a service shuts down, the remaining fetches continue on another stream. Many sends a
// fetch again, up to twice, if the service returned it with SHUTDOWN before any request was
// made.
//
// If the service refuses the stream and asks for a wait, as it does while it is full, Many waits
// and opens another one. If it refuses the stream for good, or no further stream can be opened,
// the last pair is a nil result and the gRPC status. The remaining requests were not sent.
//
// Many reads requests on a separate goroutine, the next one when there is capacity for it, and
// does not change them; the caller must not change them either. Leaving the loop cancels all
// fetches. It does not wait for a sequence that blocks.
func (c *Client) Many(ctx context.Context, requests iter.Seq[*pb.FetchRequest], o ManyOptions) iter.Seq2[*Result, error] {
	open := min(o.Open, StreamTasks)
	if open <= 0 {
		open = defaultOpen
	}
	return func(yield func(*Result, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		m := &many{pool: NewPool(), event: o.OnEvent, places: make(chan struct{}, open),
			results: make(chan *call, open), stopped: make(chan struct{})}
		m.pool.onEnd = m.check
		defer m.pool.Close()
		defer m.stop(nil)
		defer cancel()
		defer context.AfterFunc(ctx, func() { m.stop(statusError(ctx, status.FromContextError(ctx.Err()).Err())) })()
		m.pool.running.Go(func() { m.keep(ctx, c) })
		go m.feed(requests)
		for call := range m.results {
			if <-m.places; !yield(&Result{call.Request, call.outcome}, call.err) {
				return
			}
		}
		m.pool.Close()
		if m.err != nil {
			yield(nil, m.err)
		}
	}
}

// many is one run of [Client.Many]. Each request holds a place until the caller receives its
// result, so sending to results never blocks.
type many struct {
	pool    *Pool
	event   func(*pb.FetchRequest, *pb.FetchEvent)
	places  chan struct{}
	results chan *call    // closed after the last one
	stopped chan struct{} // closed when no further request is read

	mu   sync.Mutex
	open int   // requests without a result
	over bool  // no further request is read
	err  error // why, unless the sequence has ended
}

// keep opens a stream when there are fetches to send and no stream to send them on.
func (m *many) keep(ctx context.Context, c *Client) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(m.pool.closing, stop)()
	for m.pool.awaitWork() {
		answered, err := m.pool.run(ctx, c)
		m.check(answered, err)
		if wait, _ := refusal(err); wait > 0 && !answered {
			pause(waiting, wait)
		}
	}
}

// check ends the loop after an error that another stream would not fix.
func (m *many) check(answered bool, err error) {
	if wait, _ := refusal(err); wait > 0 && !answered {
		return
	}
	if err != nil && (!answered || status.Code(err) != codes.Unavailable) {
		m.stop(err)
		m.pool.fail(err)
	}
}

// feed starts the requests as places become free.
func (m *many) feed(requests iter.Seq[*pb.FetchRequest]) {
	defer m.stop(nil)
	if !m.place() {
		return
	}
	for request := range requests {
		if !m.start(request) || !m.place() {
			return
		}
	}
}

func (m *many) place() bool {
	select {
	case m.places <- struct{}{}:
		return true
	case <-m.stopped:
		return false
	}
}

func (m *many) start(request *pb.FetchRequest) bool {
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		return false
	}
	m.open++
	m.mu.Unlock()
	c := &call{Task: Task{Request: request}, done: m.settle}
	if m.event != nil {
		c.OnEvent = func(r *pb.FetchEvent) { m.event(request, r) }
	}
	if err := m.pool.start(c); err != nil {
		c.err = err
		m.settle(c)
	}
	return true
}

// settle yields the result of a call, or sends the call again.
func (m *many) settle(c *call) {
	e := c.outcome.GetError()
	if e.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_SHUTDOWN && c.outcome.GetExchangeCount() == 0 && c.sends < maxSends {
		c.stream.leave() // it may not have said so yet
		if m.pool.start(c) == nil {
			return
		}
	}
	m.results <- c
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
	m.closeLocked()
}

// stop reads no further request. err says why, unless the sequence has ended.
func (m *many) stop(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		return
	}
	m.over, m.err = true, err
	close(m.stopped)
	m.closeLocked()
}

func (m *many) closeLocked() {
	if m.over && m.open == 0 {
		close(m.results)
	}
}
