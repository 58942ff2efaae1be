package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

const (
	// maxOpen tasks of a stream are under way at once. While there are as many
	// nothing more is read, and HTTP/2 makes the caller wait.
	maxOpen = 256
	// maxQueuedBytes of requests may wait for their turn in a stream. While there are
	// as many nothing more is read: a caller's queue is its own memory's matter.
	maxQueuedBytes = 1 << 20
	// drainGrace is how long a stream of a draining server may have nothing under
	// way before it ends.
	drainGrace = 5 * time.Second
)

// many is one call of FetchMany. Three goroutines share it: one reads tasks, one
// writes answers, and the handler waits for both; each task has its own.
type many struct {
	service *service
	stream  grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]
	ctx     context.Context // of the tasks; it ends before the call does
	over    context.Context // done when the handler leaves
	places  chan struct{}   // of maxOpen
	answers chan *pb.TaskResponse
	tasks   sync.WaitGroup
	begun   atomic.Int64 // tasks

	mu     sync.Mutex
	open   map[string]context.CancelFunc // by tag
	last   time.Time                     // when one was opened or closed
	queued int                           // bytes of requests whose turn has not come
	turned chan struct{}                 // one's turn has
}

// FetchMany implements fetchd.v1.FetchService.FetchMany.
func (s *service) FetchMany(stream grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]) error {
	ctx, release := reserve(stream.Context())
	over, leave := context.WithCancel(context.Background())
	m := &many{service: s, stream: stream, ctx: ctx, over: over, places: make(chan struct{}, maxOpen),
		answers: make(chan *pb.TaskResponse), turned: make(chan struct{}, 1), open: make(map[string]context.CancelFunc), last: time.Now()}
	defer m.tasks.Wait()
	defer release()
	defer leave()
	p := &packer{answers: m.answers, draining: s.draining, over: over, send: stream.Send, limit: s.stall,
		stalled: make(chan struct{}), message: new(pb.FetchManyResponse), begun: func() int { return int(m.begun.Load()) }}
	p.stall = sync.OnceFunc(func() { close(p.stalled) })
	return m.serve(p)
}

// serve waits for the end of what is read and of what is written.
func (m *many) serve(p *packer) error {
	read, written, ended := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() { read <- m.read() }() // ends with the stream
	go func() { written <- p.run() }()
	idle := time.NewTicker(time.Second)
	defer idle.Stop()
	var last error // of a call that is answered to the end
	for {
		select {
		case err := <-read:
			if err != nil && m.ctx.Err() == nil {
				return err
			}
			last, read = err, nil
			go func() { m.tasks.Wait(); close(ended) }() // their answers are written meanwhile
		case <-ended:
			close(m.answers)
			ended = nil
		case err := <-written:
			return cmp.Or(err, last)
		case <-p.stalled:
			return stalledError(p.limit)
		case <-idle.C:
			if read != nil && p.draining.Err() != nil && m.idleFor() > drainGrace {
				return status.Error(codes.Unavailable, "the server is going away: open another stream")
			}
		}
	}
}

// idleFor is how long no task has been under way.
func (m *many) idleFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.open) > 0 {
		return 0
	}
	return time.Since(m.last)
}

// read takes tasks until the caller half-closes.
func (m *many) read() error {
	for {
		if !m.place() || !m.room() {
			return status.FromContextError(m.ctx.Err()).Err()
		}
		in, err := m.stream.Recv()
		<-m.places // it was only to know that there is one
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, tag := range in.GetCancelledTags() {
			m.giveUp(tag)
		}
		for _, task := range in.GetTasks() {
			if !m.place() {
				return status.FromContextError(m.ctx.Err()).Err()
			}
			if err := m.begin(task); err != nil {
				return err
			}
		}
	}
}

// place takes one of the places, or tells that the call is over.
func (m *many) place() bool {
	select {
	case m.places <- struct{}{}:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// room waits until few enough bytes are queued, or tells that the call is over.
func (m *many) room() bool {
	for {
		m.mu.Lock()
		queued := m.queued
		m.mu.Unlock()
		if queued < maxQueuedBytes {
			return true
		}
		select {
		case <-m.turned:
		case <-m.ctx.Done():
			return false
		}
	}
}

// unqueue notes that a task's request waits no longer.
func (t *openTask) unqueue() {
	m := t.many
	if t.size == 0 {
		return
	}
	m.mu.Lock()
	m.queued -= t.size
	t.size = 0
	m.mu.Unlock()
	select {
	case m.turned <- struct{}{}:
	default: // it is told already
	}
}

func (m *many) giveUp(tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cancel, ok := m.open[tag]; ok {
		cancel()
	}
}

// begin starts a task. The error ends the call: without a tag of its own a task
// cannot be answered.
func (m *many) begin(task *pb.Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var v violations
	switch tag := task.GetTag(); {
	case tag == "" || len(tag) > maxLabelBytes:
		v.add("tasks.tag", "has %d bytes: give 1 to %d", len(tag), maxLabelBytes)
		return v.err()
	case m.open[tag] != nil:
		v.add("tasks.tag", "is %.60q, which is under way: give each task a tag of its own", tag)
		return v.err()
	}
	t := &openTask{many: m, tag: task.GetTag(), in: task.GetRequest(), size: sizeOf(task.GetRequest())}
	t.ctx, t.cancel = context.WithCancel(m.ctx)
	m.open[t.tag], m.last = t.cancel, time.Now()
	m.queued += t.size
	t.turn = m.service.admission.queue(m.stream.Context()) // here, so that turns come in the order of the tasks
	m.tasks.Add(1)
	m.begun.Add(1)
	m.service.workers.Go(t.run)
	return nil
}

// openTask is a task under way. Of what it does only little is done in run and fetch:
// ten thousand may wait below them, each with a stack of its own.
type openTask struct {
	many   *many
	tag    string
	ctx    context.Context
	cancel context.CancelFunc
	turn   *place
	in     *pb.FetchRequest // until its turn has come
	size   int              // of it in bytes, while it is queued

	start    time.Time
	sequence int64
	telling  telling
}

// run carries out a task and answers it, once.
func (t *openTask) run() {
	defer t.leave()
	t.start = time.Now()
	out, req := t.fetch()
	t.finish(out, req)
}

// leave gives up what a task holds.
func (t *openTask) leave() {
	t.cancel()
	t.unqueue()
	t.turn.leave()
	<-t.many.places
	t.many.tasks.Done()
}

// finish tells how a task ended.
func (t *openTask) finish(out *fetch.Outcome, req *fetch.Request) {
	m := t.many
	m.mu.Lock()
	delete(m.open, t.tag) // its caller may use the tag again once it has the outcome
	m.last = time.Now()
	m.mu.Unlock()
	_ = t.send(&pb.FetchResponse{Event: &pb.FetchResponse_Outcome{Outcome: outcome(out, req, t.telling.last)}}) // the call is over then
}

// fetch is a task's fetch. A panic costs one task.
func (t *openTask) fetch() (out *fetch.Outcome, req *fetch.Request) {
	defer func() {
		if p := recover(); p != nil {
			out, req = t.panicked(p)
		}
	}()
	ctx, req, out := t.begin()
	if out == nil {
		out = t.many.service.client.Fetch(ctx, req, t.sink)
	}
	return out, req
}

func (t *openTask) panicked(p any) (*fetch.Outcome, *fetch.Request) {
	s, req := t.many.service, fetch.NewRequest(classify.Standard)
	s.logger.ErrorContext(t.ctx, "panic in a task", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	return s.client.Refuse(t.ctx, req, classify.Internal, ""), req
}

// begin takes the same steps as a call before its fetch. The outcome is that of a task
// for which none is made.
func (t *openTask) begin() (context.Context, *fetch.Request, *fetch.Outcome) {
	s := t.many.service
	p, err := s.prepareTask(t.many.stream.Context(), t.in)
	t.in = nil
	if err != nil {
		req := fetch.NewRequest(classify.Standard)
		req.ID = rand.Text()
		return t.ctx, req, s.client.Refuse(t.ctx, req, classify.InvalidRequest, status.Convert(err).Message())
	}
	class := t.many.enter(t.ctx, t.turn)
	t.unqueue()
	if class != classify.NoClass {
		return t.ctx, p.req, s.client.Refuse(t.ctx, p.req, class, "")
	}
	if p.req.Events != fetch.OutcomeOnly {
		t.telling.ends = true
		end, _ := t.ctx.Deadline()
		if err := t.send(p.admitted(t.start, end)); err != nil {
			return t.ctx, p.req, s.client.Refuse(t.ctx, p.req, classify.Cancelled, "")
		}
	}
	ctx, traceparent := s.observe.Start(t.ctx, t.start)
	p.req.TraceParent = traceparent
	return ctx, p.req, nil
}

// prepareTask reads a task's request. Of one that says nothing of events only the
// outcome is told.
func (s *service) prepareTask(ctx context.Context, in *pb.FetchRequest) (*prepared, error) {
	p, err := s.prepare(ctx, in, "request.", fetch.Inline)
	if err == nil && in.GetEventLevel() == pb.EventLevel_EVENT_LEVEL_UNSPECIFIED {
		p.req.Events = fetch.OutcomeOnly
	}
	return p, err
}

// enter waits for a task's turn. Where none came it says why.
func (m *many) enter(ctx context.Context, turn *place) classify.Class {
	if turn.came() && ctx.Err() == nil && m.service.draining.Err() == nil { // as it mostly has: nothing is to be waited for
		return classify.NoClass
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(m.service.draining, stop)()
	err := turn.wait(waiting)
	switch {
	case m.service.draining.Err() != nil: // though its turn may just have come
		return classify.Shutdown
	case err == nil:
		return classify.NoClass
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return classify.Deadline
	}
	return classify.Cancelled
}

// sink is the fetch's [fetch.Sink].
func (t *openTask) sink(ev fetch.Event) error {
	resp := new(pb.FetchResponse)
	t.telling.event(resp, ev)
	return t.send(resp)
}

func (t *openTask) send(resp *pb.FetchResponse) error {
	t.sequence++
	resp.Sequence, resp.ElapsedOffset = t.sequence, durationpb.New(time.Since(t.start))
	select {
	case t.many.answers <- &pb.TaskResponse{Tag: t.tag, Response: resp}:
		return nil
	case <-t.many.over.Done():
		return t.many.over.Err()
	}
}
