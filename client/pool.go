package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
)

// StreamTasks is how many fetches one stream of FetchMany carries at a time. A service reads
// no further tasks while it runs this many.
const StreamTasks = 256

const (
	// maxTaskBytes limits a request. The service accepts a body of 1 MiB.
	maxTaskBytes = 2 << 20

	firstReopen  = 100 * time.Millisecond
	lastReopen   = 5 * time.Second
	helloTimeout = 10 * time.Second
	// cancelTimeout is how long a service may take to answer for a fetch that was cancelled.
	cancelTimeout = 30 * time.Second
	// idleTimeout is how long a service may take to end a stream that was half-closed.
	idleTimeout = 10 * time.Second
)

var (
	// ErrLost is matched by the error of a fetch that was sent and whose outcome will never
	// come: the stream broke, or the service did not answer. Requests may have been made. The
	// error of a POST or PATCH matches [ErrNotIdempotent] too, unless it may be repeated.
	ErrLost = errors.New("the service was lost before it reported the outcome")
	// ErrNotSent is the error of a fetch that could not be sent before [Task.SendBefore].
	// No request was made.
	ErrNotSent = errors.New("the fetch could not be sent in time")
)

var errPoolClosed = fmt.Errorf("fetch on a pool: %w", fs.ErrClosed)

// Task is one fetch of a [Pool].
type Task struct {
	// Request says what to fetch. The body of a success is in inline_body of the outcome, up
	// to 1 MiB. With delivery auto or stream it may have max_size_bytes, or 16 MiB if that is
	// unset. A longer one is cancelled, and the error matches ErrBodyTooLong; Body has no such
	// limit. A request of more than 2 MiB, or with a string that is not UTF-8, is not sent: its
	// outcome has the class INVALID_REQUEST.
	// An unset event_level means that no events are sent. It must not be changed until the
	// fetch has ended.
	Request *pb.FetchRequest
	// SendBefore is the time after which the fetch is not sent any more. Zero means no limit.
	SendBefore time.Time
	// OnEvent is called for each event before the outcome, except body chunks. It blocks the
	// stream while it runs, and is not called after Do has returned. May be nil.
	OnEvent func(*pb.FetchEvent)
	// Body receives a streamed body as it arrives, of any size up to max_size_bytes, and
	// inline_body stays unset. It does not receive a body that arrives in inline_body. Its
	// methods block the stream while they run, and are not called after Do has returned. If one
	// fails, the fetch is cancelled and Do returns its error. After any error, drop what was
	// written. May be nil.
	Body BodyWriter
}

// BodyWriter receives a body in pieces. An [os.File] opened with O_APPEND is a BodyWriter.
type BodyWriter interface {
	io.Writer
	// Truncate shortens the body to size bytes, because it starts over. It is called only if
	// the request sets recovery: RESTART. The next Write continues there.
	Truncate(size int64) error
}

// Pool runs fetches over FetchMany streams that it keeps open to one or more services. Each
// fetch goes to the stream with the fewest fetches in flight. A fetch that was not sent yet
// moves to another stream when its stream ends; one that was sent is never sent again.
// It is safe for concurrent use. Create it with [NewPool].
type Pool struct {
	closing context.Context // done when no stream is opened any more
	stop    context.CancelFunc
	running sync.WaitGroup
	onEnd   func(answered bool, err error) // called when a stream has ended, before its calls are lost; may be nil

	mu      sync.Mutex
	err     error         // why no fetch is accepted; nil while the pool is open
	streams []*stream     // those that accept fetches
	changed chan struct{} // closed when streams changes
	waiting []*call       // those that no stream has capacity for, oldest first
	wanted  chan struct{} // has a value when waiting has got one
	tags    uint64
}

// call is one fetch of a pool. Its fields are guarded by Pool.mu until done is called.
type call struct {
	Task
	done    func(*call) // called without the lock when the call is over
	wire    pb.Task
	stream  *stream // nil while the call waits for one
	sent    bool
	stopped bool // the service was asked to cancel it
	sends   int
	over    bool
	outcome *pb.FetchOutcome
	err     error

	// Used by the goroutine that receives on the stream.
	parts *assembly // of a streamed body; nil until its head
	fault error     // why the body cannot be used
}

// take adds an event to the body. It returns an error if the body cannot be used from now on.
func (c *call) take(m *pb.FetchEvent) error {
	switch {
	case c.fault != nil:
		return nil
	case c.parts == nil && m.GetOutcome() != nil: // no part of the body came before it
		at := position{request: c.Request}
		c.fault = at.take(m)
		return c.fault
	case c.parts == nil && m.GetResponseStarted() == nil && m.GetBodyChunk() == nil:
		return nil
	case c.parts == nil:
		c.parts = c.newAssembly()
	}
	if c.fault = c.parts.add(m); c.fault != nil {
		c.parts.pieces = nil
	} else if o := m.GetOutcome(); o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS && c.parts.begun {
		o.Body = &pb.FetchOutcome_InlineBody{InlineBody: bytes.Join(c.parts.pieces, nil)}
		c.parts.pieces = nil
	}
	return c.fault
}

// newAssembly returns the body of a task that is streamed.
func (t *Task) newAssembly() *assembly {
	a := &assembly{position: position{request: t.Request}, to: t.Body, limit: defaultBodyBytes}
	if a.to != nil {
		a.limit = math.MaxInt64
	}
	if p := t.Request.GetBodyPolicy(); p != nil && p.MaxSizeBytes != nil {
		a.limit = p.GetMaxSizeBytes()
	}
	return a
}

// settleLocked ends c. The caller calls c.done after it has released the lock.
func (c *call) settleLocked(o *pb.FetchOutcome, err error) {
	c.over, c.outcome, c.err = true, o, err
	if err == nil && o.GetError() != nil {
		c.err = &Error{o}
	}
}

// rejectLocked ends c, which no stream carries, with err. If a service returned c before, c keeps
// the outcome that says so.
func (c *call) rejectLocked(err error) {
	if c.over = true; c.outcome == nil {
		c.err = err
	}
}

// NewPool returns a pool without streams.
func NewPool() *Pool {
	p := &Pool{wanted: make(chan struct{}, 1), changed: make(chan struct{})}
	p.closing, p.stop = context.WithCancel(context.Background())
	return p
}

// Open keeps n streams open to c until the pool is closed, and returns at once. Each stream is
// opened after c has answered a ping. A stream that ends is replaced after 100 ms, and after
// up to 5 s if that fails repeatedly, or after as long as c asks for; lost is called before each
// wait with the error, unless it is nil. The end of ctx breaks the streams.
func (p *Pool) Open(ctx context.Context, c *Client, n int, lost func(err error, retryIn time.Duration)) {
	for range n {
		p.running.Go(func() { p.keep(ctx, c, lost) })
	}
}

func (p *Pool) keep(ctx context.Context, c *Client, lost func(error, time.Duration)) {
	wait := firstReopen
	for p.closing.Err() == nil {
		opened := time.Now()
		err := p.ping(ctx, c)
		if err == nil {
			_, err = p.run(ctx, c)
		}
		if p.closing.Err() != nil {
			return
		}
		if err == nil || time.Since(opened) > lastReopen {
			wait = firstReopen
		}
		asked, _ := refusal(err)
		if err != nil && lost != nil {
			lost(err, max(wait, asked))
		}
		pause(p.closing, max(wait, asked))
		wait = min(2*wait, lastReopen)
	}
}

func (p *Pool) ping(ctx context.Context, c *Client) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)()
	return c.Ping(ctx)
}

// run opens a stream and returns when it accepts no more fetches. The error is nil if the
// service is draining or the pool was closed. answered reports whether the service has sent
// anything.
func (p *Pool) run(ctx context.Context, c *Client) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	rpc, err := c.rpc.FetchMany(ctx)
	if err != nil {
		cancel()
		return false, statusError(ctx, err)
	}
	s := &stream{pool: p, ctx: ctx, cancel: cancel, rpc: rpc, calls: make(map[string]*call),
		wake: make(chan struct{}, 1), left: make(chan struct{}), ended: make(chan struct{})}
	p.mu.Lock()
	p.streams = append(p.streams, s)
	p.fillLocked()
	p.signalLocked()
	p.mu.Unlock()
	p.running.Go(s.send)
	p.running.Go(s.receive) // only now: it removes s from p.streams when s ends
	select {
	case <-s.left:
	case <-p.closing.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.leaveLocked(nil)
	return s.answered, s.err
}

// signalLocked announces that the number of streams has changed.
func (p *Pool) signalLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Capacity returns how many fetches the open streams can carry, and a channel that is closed
// when this may have changed. Fetches beyond it wait.
func (p *Pool) Capacity() (fetches int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams) * StreamTasks, p.changed
}

// Do runs one fetch and returns its outcome, together with an [*Error] if the fetch failed.
// The outcome is nil if there is none: then the error matches [ErrLost] if requests may have
// been made, and any other error means that the fetch was not sent.
//
// When ctx ends, Do withdraws a fetch that was not sent and returns the cause. Otherwise it
// asks the service to cancel the fetch and waits for the outcome, which is CANCELLED unless
// the fetch ended first. A service that does not answer within 30 s is given no further
// fetches on that stream.
func (p *Pool) Do(ctx context.Context, t Task) (*pb.FetchOutcome, error) {
	settled := make(chan struct{})
	c := &call{Task: t, done: func(*call) { close(settled) }}
	if err := p.start(c); err != nil {
		return nil, err
	}
	var late <-chan time.Time
	if !t.SendBefore.IsZero() {
		timer := time.NewTimer(time.Until(t.SendBefore))
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-settled:
			return c.outcome, c.err
		case <-late:
			if p.withdraw(c) {
				return nil, ErrNotSent
			}
		case <-ctx.Done():
			if p.withdraw(c) {
				return nil, context.Cause(ctx)
			}
			return p.cancelSent(c, settled)
		}
	}
}

// start gives c to a stream, or lets it wait for one. The error says why c is not accepted.
func (p *Pool) start(c *call) error {
	if o := refuse(c.Request); o != nil {
		c.settleLocked(o, nil) // no other goroutine has c yet
		c.done(c)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	p.tags++
	c.wire.Tag, c.wire.Request = strconv.FormatUint(p.tags, 36), c.Request
	c.sent, c.over, c.parts, c.fault = false, false, nil, nil
	p.waitLocked(c)
	p.fillLocked()
	return nil
}

// refuse returns the outcome of a request that cannot be sent, or nil. In a message it would end the
// stream, with all other fetches on it.
func refuse(request *pb.FetchRequest) *pb.FetchOutcome {
	var text string
	if n := request.SizeVT(); n > maxTaskBytes {
		text = fmt.Sprintf("the request has %d bytes: send at most %d", n, maxTaskBytes)
	} else if _, err := proto.Marshal(request); err != nil { // a string that is not UTF-8
		text = fmt.Sprintf("the request cannot be encoded: %v", err)
	} else {
		return nil
	}
	return &pb.FetchOutcome{Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, FinalUrl: strings.ToValidUTF8(request.GetUrl(), "\uFFFD"),
		Error: &pb.FetchError{ErrorClass: pb.ErrorClass_ERROR_CLASS_INVALID_REQUEST, FailureType: pb.FailureType_FAILURE_TYPE_PERMANENT, Message: text,
			RequestState: pb.RequestState_REQUEST_STATE_NOT_SENT}}
}

func (p *Pool) waitLocked(c *call) {
	c.stream = nil
	p.waiting = append(p.waiting, c)
	notify(p.wanted)
}

// fillLocked gives waiting calls to streams, as far as these have capacity.
func (p *Pool) fillLocked() {
	n := 0
	for _, c := range p.waiting {
		var best *stream
		for _, s := range p.streams {
			if len(s.calls) < StreamTasks && (best == nil || len(s.calls) < len(best.calls)) {
				best = s
			}
		}
		if best == nil {
			break
		}
		best.addLocked(c)
		n++
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
}

// withdraw ends a call that was not sent, and reports whether it did.
func (p *Pool) withdraw(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.sent || c.over {
		return false
	}
	c.over = true
	if c.stream == nil {
		p.waiting = without(p.waiting, c)
	} else {
		c.stream.queue = without(c.stream.queue, c)
		c.stream.removeLocked(c)
	}
	return true
}

// cancelSent asks the service to cancel c and waits for its outcome.
func (p *Pool) cancelSent(c *call, settled <-chan struct{}) (*pb.FetchOutcome, error) {
	p.mu.Lock()
	s := c.stream
	if c.over { // s may be nil then
		p.mu.Unlock()
		<-settled
		return c.outcome, c.err
	}
	s.cancelLocked(c)
	p.mu.Unlock()
	timer := time.NewTimer(cancelTimeout)
	defer timer.Stop()
	select {
	case <-settled:
		return c.outcome, c.err
	case <-timer.C:
	}
	if !s.abandon(c) {
		<-settled
	}
	return c.outcome, c.err
}

// awaitWork waits until a call waits for a stream. It returns false when the pool is closed.
func (p *Pool) awaitWork() bool {
	for {
		p.mu.Lock()
		n := len(p.waiting)
		p.mu.Unlock()
		if n > 0 && p.closing.Err() == nil {
			return true
		}
		select {
		case <-p.wanted:
		case <-p.closing.Done():
			return false
		}
	}
}

// fail stops the pool: no call is accepted, no stream is opened, and calls that wait for one
// end with err.
func (p *Pool) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.stop()
	waiting := p.waiting
	p.waiting = nil
	for _, c := range waiting {
		c.rejectLocked(p.err)
	}
	p.mu.Unlock()
	for _, c := range waiting {
		c.done(c)
	}
}

// Close closes the pool: it accepts no more fetches, and fetches that wait for a stream end
// with an error that matches [fs.ErrClosed]. Close returns when the fetches in flight have
// ended, and every stream. End the context that was given to Open to break the streams.
func (p *Pool) Close() {
	p.fail(errPoolClosed)
	p.running.Wait()
}

func without(calls []*call, c *call) []*call {
	return slices.DeleteFunc(calls, func(other *call) bool { return other == c })
}

// notify puts a value into c, which has a buffer of one, unless there is one already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
