package frontier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// Service is a fetchd, and how it is called in logs and errors.
type Service struct {
	Name   string
	Client pb.FetchServiceClient
}

// errLost says that a fetch was sent to a service and that its outcome will
// never come. Requests may have been made for it.
var errLost = errors.New("the service was lost before it told the outcome")

// errLate says that a fetch was not sent in time.
var errLate = errors.New("the fetch could not be sent in time")

// streamTasks is how many fetches a stream carries: as many as fetchd carries out at once.
const streamTasks = 256

const (
	firstReopen = 100 * time.Millisecond
	lastReopen  = 5 * time.Second
	// helloTime bounds the question whether a service is there.
	helloTime = 10 * time.Second
	// cancelTime is how long a service may take to answer for a fetch that it was
	// asked to give up, and endTime how long to end a stream that has nothing to do.
	cancelTime = 30 * time.Second
	endTime    = 10 * time.Second
)

// pool keeps streams of FetchMany open to all services, and gives each fetch to
// the stream with the fewest. It is safe for concurrent use.
type pool struct {
	logger *slog.Logger
	run    sync.WaitGroup

	closing context.Context // done when no stream is opened any more
	close   context.CancelFunc

	mu      sync.Mutex
	streams []*stream // that take fetches
	changed chan struct{}
	tags    uint64
}

func newPool(logger *slog.Logger) *pool {
	p := &pool{logger: logger, changed: make(chan struct{})}
	p.closing, p.close = context.WithCancel(context.Background())
	return p
}

// hello asks every service something harmless, and returns when one has answered.
// The error says of each why, if none does.
func hello(ctx context.Context, services []Service) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(services))
	var wait sync.WaitGroup
	for i, s := range services {
		wait.Go(func() {
			if errs[i] = s.hello(ctx); errs[i] == nil {
				stop() // one is enough to begin with
			}
		})
	}
	wait.Wait()
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

func (s Service) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	_, err := s.Client.Explain(ctx, &pb.ExplainRequest{Response: &pb.HttpResponse{StatusCode: 200}})
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// open begins to keep n streams to each service, until close is called. Then they
// end in order; with ctx they end at once. wait waits for that.
func (p *pool) open(ctx context.Context, services []Service, n int) {
	for _, s := range services {
		for range n {
			p.run.Go(func() { p.keep(ctx, s) })
		}
	}
}

// keep opens a stream again whenever it ends.
func (p *pool) keep(ctx context.Context, s Service) {
	wait := firstReopen
	for p.closing.Err() == nil {
		begun := time.Now()
		err := p.one(ctx, s)
		if p.closing.Err() != nil {
			return
		}
		if err == nil || time.Since(begun) > lastReopen {
			wait = firstReopen // it worked, and ended in order or after a while
		}
		if err != nil {
			p.logger.WarnContext(ctx, "service lost", slog.String("server", s.Name), slog.Any("error", err), slog.Duration("retry_in", wait))
		}
		sleep(p.closing, wait)
		wait = min(2*wait, lastReopen)
	}
}

// one opens a stream and returns when it takes no more fetches: nil if the
// service said so itself.
func (p *pool) one(ctx context.Context, s Service) error {
	if err := p.hello(ctx, s); err != nil {
		return err
	}
	// Ended by ctx, which is done when nobody waits for an answer any more.
	ctx, stop := context.WithCancel(ctx)
	conn, err := s.Client.FetchMany(ctx)
	if err != nil {
		stop()
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	st := &stream{conn: conn, stop: stop, queue: make(chan func(*pb.FetchManyRequest), 2*streamTasks),
		calls: make(map[string]*call), ended: make(chan struct{}), left: make(chan struct{}), drained: make(chan struct{})}
	p.run.Go(st.send)
	p.run.Go(st.receive)
	p.run.Go(st.finish)
	p.add(st)
	select {
	case <-st.left:
	case <-p.closing.Done():
		st.leave(nil)
	}
	p.remove(st)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.err
}

// hello is the service's, given up where no stream is wanted any more.
func (p *pool) hello(ctx context.Context, s Service) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.closing, stop)()
	return s.hello(ctx)
}

func (p *pool) add(st *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = append(p.streams, st)
	p.tell()
}

func (p *pool) remove(st *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = slices.DeleteFunc(p.streams, func(other *stream) bool { return other == st })
	p.tell()
}

// tell wakes who waits for a change of streams.
func (p *pool) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// capacity is how many fetches the open streams carry, and what is closed when
// that may have changed.
func (p *pool) capacity() (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams) * streamTasks, p.changed
}

// fetch has a service carry out a request, and tells event of what happens before
// the outcome. When ctx ends, the service is asked to give up; the outcome then
// is CANCELLED unless the fetch ended first. The error is errLost, also where the
// service does not answer that, or that of ctx where nothing had been sent, or
// errLate where that could not be done before the time in before.
func (p *pool) fetch(ctx context.Context, before time.Time, request *pb.FetchRequest, event func(*pb.FetchResponse)) (*pb.FetchOutcome, error) {
	for {
		c := &call{request: request, before: before, event: event, done: make(chan *pb.FetchOutcome, 1)}
		st, err := p.begin(ctx, c)
		if err != nil {
			return nil, err
		}
		outcome := st.await(ctx, c)
		switch {
		case outcome != nil:
			return outcome, nil
		case c.sent:
			return nil, errLost
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !time.Now().Before(before):
			return nil, errLate
		}
	}
}

// begin gives c to the stream with the fewest calls, and waits for one to be open.
func (p *pool) begin(ctx context.Context, c *call) (*stream, error) {
	for {
		if !time.Now().Before(c.before) {
			return nil, errLate
		}
		p.mu.Lock()
		changed := p.changed
		p.tags++
		c.tag = strconv.FormatUint(p.tags, 36)
		var best *stream
		for _, st := range p.streams {
			if st.takes() && (best == nil || st.load() < best.load()) {
				best = st
			}
		}
		p.mu.Unlock()
		if best != nil && best.begin(c) {
			return best, nil
		}
		select {
		case <-changed:
		case <-time.After(firstReopen): // a stream that is full says nothing
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// wait waits for every goroutine of the pool.
func (p *pool) wait() { p.run.Wait() }

// call is one fetch on a stream.
type call struct {
	tag     string
	request *pb.FetchRequest
	before  time.Time             // not sent later
	done    chan *pb.FetchOutcome // nil if there will be none
	sent    bool                  // guarded by the stream's lock; settled before done

	mu    sync.Mutex
	event func(*pb.FetchResponse) // nil when nobody waits any more
}

func (c *call) tell(r *pb.FetchResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.event != nil {
		c.event(r)
	}
}

// deafen returns when event is not running and will not be called again.
func (c *call) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.event = nil
}

// stream is one call of FetchMany. Three goroutines belong to it.
type stream struct {
	conn    pb.FetchService_FetchManyClient
	stop    context.CancelFunc // ends it at once
	queue   chan func(*pb.FetchManyRequest)
	ended   chan struct{} // closed when no answer will come any more
	left    chan struct{} // closed when it takes no more fetches
	drained chan struct{} // closed when it has no more of them either

	mu    sync.Mutex
	calls map[string]*call
	over  bool // takes no more
	err   error
}

func (st *stream) load() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.calls)
}

func (st *stream) takes() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return !st.over && len(st.calls) < streamTasks
}

// begin queues c, unless the stream has just ended or filled up.
func (st *stream) begin(c *call) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over || len(st.calls) >= streamTasks {
		return false
	}
	put := func(m *pb.FetchManyRequest) {
		st.mu.Lock()
		defer st.mu.Unlock()
		switch {
		case st.calls[c.tag] != c: // given up
		case !time.Now().Before(c.before): // the process was stopped, or the service did not read
			st.drop(c.tag)
			c.done <- nil
		default:
			c.sent = true
			m.Tasks = append(m.Tasks, &pb.Task{Tag: c.tag, Request: c.request})
		}
	}
	select {
	case st.queue <- put:
		st.calls[c.tag] = c
		return true
	default: // the service does not read, and calls were given up meanwhile
		return false
	}
}

// await returns the outcome of c, or nil if there will be none.
func (st *stream) await(ctx context.Context, c *call) *pb.FetchOutcome {
	late := time.NewTimer(time.Until(c.before))
	defer late.Stop()
	for waiting := true; waiting; {
		select {
		case outcome := <-c.done:
			return outcome
		case <-late.C:
			if st.takeBack(c) {
				return nil
			}
		case <-ctx.Done():
			waiting = false
		}
	}
	if st.takeBack(c) {
		return nil
	}
	select {
	case st.queue <- func(m *pb.FetchManyRequest) { m.CancelledTags = append(m.CancelledTags, c.tag) }:
	default: // so much is queued that the service does not read
	}
	patience := time.NewTimer(cancelTime)
	defer patience.Stop()
	select {
	case outcome := <-c.done:
		return outcome
	case <-patience.C:
		return st.giveUp(c)
	}
}

// takeBack forgets c if it was not sent, and says so.
func (st *stream) takeBack(c *call) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.calls[c.tag] != c || c.sent {
		return false
	}
	st.drop(c.tag)
	return true
}

// giveUp forgets c, which the service does not answer, and wants no more of the
// stream. It returns an outcome that came after all.
func (st *stream) giveUp(c *call) *pb.FetchOutcome {
	st.leave(fmt.Errorf("the service did not answer for a cancelled fetch in %v", cancelTime))
	c.deafen()
	st.mu.Lock()
	open := st.calls[c.tag] == c
	if open {
		st.drop(c.tag)
	}
	st.mu.Unlock()
	if open {
		return nil
	}
	return <-c.done
}

// messageTasks go in one message at most.
const messageTasks = 16

// send writes what is queued, as much in one message as there is.
func (st *stream) send() {
	for {
		select {
		case <-st.ended:
			return
		case <-st.drained:
			_ = st.conn.CloseSend() // always nil
			return
		case put := <-st.queue:
			m := new(pb.FetchManyRequest)
			put(m)
		more:
			for len(m.GetTasks())+len(m.GetCancelledTags()) < messageTasks {
				select {
				case put := <-st.queue:
					put(m)
				default:
					break more
				}
			}
			if len(m.GetTasks())+len(m.GetCancelledTags()) == 0 {
				continue // all given up
			}
			if err := st.conn.Send(m); err != nil {
				return // receive hears why
			}
		}
	}
}

// finish ends a stream that has nothing to do and that the service does not end.
func (st *stream) finish() {
	select {
	case <-st.drained:
	case <-st.ended:
		return
	}
	patience := time.NewTimer(endTime)
	defer patience.Stop()
	select {
	case <-patience.C:
		st.stop()
	case <-st.ended:
	}
}

// receive hands answers to their calls until the stream ends.
func (st *stream) receive() {
	defer st.stop()
	for {
		m, err := st.conn.Recv()
		if err != nil {
			st.end(err)
			return
		}
		if m.GetDraining() {
			st.leave(nil)
		}
		for _, r := range m.GetResponses() {
			st.answer(r)
		}
	}
}

func (st *stream) answer(r *pb.TaskResponse) {
	outcome := r.GetResponse().GetOutcome()
	st.mu.Lock()
	c := st.calls[r.GetTag()]
	if c != nil && outcome != nil {
		st.drop(c.tag)
	}
	st.mu.Unlock()
	switch {
	case c == nil: // given up, or never asked for
	case outcome != nil:
		c.done <- outcome
	default:
		c.tell(r.GetResponse())
	}
}

// leave has the stream take no more fetches.
func (st *stream) leave(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.over {
		st.over, st.err = true, err
		close(st.left)
		st.drop("")
	}
}

// drop forgets a call. The lock is held.
func (st *stream) drop(tag string) {
	before := len(st.calls)
	delete(st.calls, tag)
	if st.over && len(st.calls) == 0 && (before > 0 || tag == "") {
		close(st.drained)
	}
}

// end tells every call that its outcome will not come.
func (st *stream) end(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the service ended the stream")
	}
	st.leave(err)
	close(st.ended)
	st.mu.Lock()
	defer st.mu.Unlock()
	for tag, c := range st.calls {
		st.drop(tag)
		c.done <- nil
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
