package frontier

import (
	"context"
	"errors"
	"fmt"
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
			p.logger.WarnContext(ctx, "service lost", slog.String("server", s.Name), slog.Any("error", err), slog.Float64("retry_in_seconds", wait.Seconds()))
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
