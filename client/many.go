package client

import (
	"context"
	"iter"
	"strconv"
	"sync"

	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

const (
	defaultOpen = 64
	mostOpen    = 256 // a stream carries no more at once
	// mostSends bounds how often a task is sent that services going away give back.
	mostSends = 3
)

// ManyOptions say how [Client.Many] works. The zero value is usable.
type ManyOptions struct {
	// Open is how many fetches may be without a result that was taken, 1 to 256; a
	// larger one is taken as 256. 0 or less means 64. It bounds memory too: as
	// many bodies of up to 1 MiB may wait.
	Open int
	// OnEvent is told of the events of requests whose event_level asks for any; an
	// unset one asks for none here. It is called from several goroutines and holds
	// up the stream while it runs. Nil means that nobody is told.
	OnEvent func(*pb.FetchRequest, *pb.FetchResponse)
}

// Result is how one fetch of many ended.
type Result struct {
	// Request is the value that was given.
	Request *pb.FetchRequest
	// Outcome holds the body in inline_body. It is nil where the stream was lost
	// before it came; then requests may have been made.
	Outcome *pb.FetchOutcome
}

// Many carries out requests over FetchMany and yields each when it ends, with an
// [*Error] where the fetch failed. The order is that of their ends.
//
// Where a stream is lost, what was under way on it is yielded with the status and
// without an outcome: requests may have been made, and whether they may be made
// again is the caller's to say. The rest goes on another stream, if the service
// was there before. A service that goes away says so: then the rest goes on
// another stream at once, and fetches that it ends with SHUTDOWN before any request
// was made are sent again there, up to twice.
//
// Where no other stream is to be had, and where the service refuses the stream,
// the last thing yielded is a nil result with the status: what is left of requests
// was not asked for.
//
// requests is read on a goroutine of its own, never further ahead than Open, and
// requests must not be changed afterwards. When the loop is left early everything
// is cancelled; a sequence that waits just then is not waited for.
func (c *Client) Many(ctx context.Context, requests iter.Seq[*pb.FetchRequest], o ManyOptions) iter.Seq2[*Result, error] {
	if o.Open <= 0 {
		o.Open = defaultOpen
	}
	o.Open = min(o.Open, mostOpen)
	return func(yield func(*Result, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		m := &many{rpc: c.rpc, ctx: ctx, event: o.OnEvent, places: make(chan struct{}, o.Open),
			results: make(chan ended, o.Open), over: make(chan struct{}), failed: make(chan struct{})}
		defer m.running.Wait()
		defer m.endFeed(nil) // before the wait, so that no stream begins after it
		defer cancel()
		giveUp := func() { m.endFeed(statusError(ctx, status.FromContextError(ctx.Err()).Err())) }
		defer context.AfterFunc(ctx, giveUp)()
		go m.feed(requests)
		m.yieldAll(yield)
	}
}

// ended is a result on its way to the caller.
type ended struct {
	result *Result
	err    error
}

// task is a fetch that has no result yet.
type task struct {
	request  *pb.FetchRequest
	sends    int
	returned *pb.FetchOutcome // by a service that did nothing of it; nil: by none
}

// many is one run of [Client.Many]. A task holds a place until its result is
// taken, so that results never block and no stream waits for the caller.
type many struct {
	rpc     pb.FetchServiceClient
	ctx     context.Context
	event   func(*pb.FetchRequest, *pb.FetchResponse)
	places  chan struct{}
	results chan ended
	over    chan struct{} // closed when no result will follow
	failed  chan struct{} // closed when no more is sent
	running sync.WaitGroup
	opening sync.Mutex // a stream

	mu      sync.Mutex
	current *manyStream // that tasks are sent on; nil: none
	tags    uint64
	open    int   // tasks without a result
	fed     bool  // no new task will come
	err     error // why no more is sent
}

// yieldAll is what the caller's loop runs in.
func (m *many) yieldAll(yield func(*Result, error) bool) {
	for {
		select {
		case e := <-m.results:
			if <-m.places; !yield(e.result, e.err) {
				return
			}
			continue
		case <-m.over:
		}
		for len(m.results) > 0 {
			if e := <-m.results; !yield(e.result, e.err) {
				return
			}
		}
		m.running.Wait() // the streams end in order
		if err := m.failure(); err != nil {
			yield(nil, err)
		}
		return
	}
}

func (m *many) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// feed sends the requests as places become free.
func (m *many) feed(requests iter.Seq[*pb.FetchRequest]) {
	defer m.endFeed(nil)
	for request := range requests {
		select {
		case m.places <- struct{}{}:
		case <-m.failed:
			return
		}
		if !m.take() {
			return
		}
		m.send(&task{request: request})
		m.running.Done()
	}
}

// take counts a task and its sending, or tells that no more are sent.
func (m *many) take() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fed {
		return false
	}
	m.open++
	m.running.Add(1)
	return true
}

// endFeed has no more tasks come: err says why, unless it was their end.
func (m *many) endFeed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fed {
		return
	}
	m.fed, m.err = true, err
	close(m.failed)
	if m.current != nil {
		m.current.leave()
		m.current = nil
	}
	if m.open == 0 {
		close(m.over)
	}
}

// settle hands a result to the caller.
func (m *many) settle(t *task, o *pb.FetchOutcome, err error) {
	m.results <- ended{&Result{t.request, o}, err} // there is room for every task
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open--; m.open == 0 && m.fed {
		close(m.over)
	}
}

// send gives t to the stream in use, and opens one where there is none.
func (m *many) send(t *task) {
	t.sends++
	s, tag, err := m.register(t)
	switch {
	case err == nil:
		s.send(&pb.Task{Tag: tag, Request: t.request})
		return
	case t.returned != nil:
		m.settle(t, t.returned, &Error{t.returned})
	default:
		m.settle(t, nil, err)
	}
	m.endFeed(err)
}

// register finds a stream for t. Only one is opened at a time, and without the
// lock: that can take as long as a connection does.
func (m *many) register(t *task) (*manyStream, string, error) {
	m.opening.Lock()
	defer m.opening.Unlock()
	if s, tag := m.join(t); s != nil {
		return s, tag, nil
	}
	rpc, err := m.rpc.FetchMany(m.ctx)
	if err != nil {
		return nil, "", statusError(m.ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &manyStream{many: m, rpc: rpc, tasks: make(map[string]*task)}
	tag := m.tag()
	s.register(tag, t)
	m.current = s
	if m.fed { // t is one that came back
		m.current = nil
		s.leave()
	}
	m.running.Go(s.receive) // until the stream ends
	return s, tag, nil
}

// join notes t on the stream in use, if there is one.
func (m *many) join(t *task) (*manyStream, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tag := m.tag()
	if m.current == nil || !m.current.register(tag, t) {
		return nil, ""
	}
	return m.current, tag
}

// tag makes a tag. The lock is held.
func (m *many) tag() string {
	m.tags++
	return strconv.FormatUint(m.tags, 36)
}

// forget has no more sent on s.
func (m *many) forget(s *manyStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == s {
		m.current = nil
		s.leave()
	}
}
