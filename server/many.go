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
		stalled: make(chan struct{}), message: new(pb.FetchManyResponse), open: m.underWay}
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

// underWay is how many tasks have no outcome yet.
func (m *many) underWay() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
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

// unqueue notes that a request of n bytes waits no longer.
func (m *many) unqueue(n int) {
	m.mu.Lock()
	m.queued -= n
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
	ctx, cancel := context.WithCancel(m.ctx)
	m.open[task.GetTag()], m.last = cancel, time.Now()
	size := sizeOf(task.GetRequest())
	m.queued += size
	turned := sync.OnceFunc(func() { m.unqueue(size) })
	turn := m.service.admission.queue(m.stream.Context()) // here, so that turns come in the order of the tasks
	m.tasks.Add(1)
	m.service.workers.Go(func() {
		defer m.tasks.Done()
		defer func() { <-m.places }()
		defer turn.leave()
		defer turned()
		defer cancel()
		m.run(ctx, task, turn, turned)
	})
	return nil
}

// run carries out a task and answers it, once.
func (m *many) run(ctx context.Context, task *pb.Task, turn *place, turned func()) {
	a := taskAnswers{many: m, tag: task.GetTag(), turn: turn, turned: turned, start: time.Now()}
	out, req := m.guarded(ctx, task.GetRequest(), &a)
	m.mu.Lock()
	delete(m.open, a.tag) // its caller may use the tag again once it has the outcome
	m.last = time.Now()
	m.mu.Unlock()
	_ = a.send(&pb.FetchResponse{Event: &pb.FetchResponse_Outcome{Outcome: outcome(out, req, a.last)}}) // the call is over then
}

// guarded has a panic cost one task.
func (m *many) guarded(ctx context.Context, in *pb.FetchRequest, a *taskAnswers) (out *fetch.Outcome, req *fetch.Request) {
	defer func() {
		if p := recover(); p != nil {
			m.service.logger.ErrorContext(ctx, "panic in a task", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			req = fetch.NewRequest(classify.Standard)
			out = m.service.client.Refuse(ctx, req, classify.Internal, "")
		}
	}()
	return m.fetch(ctx, in, a)
}

// fetch is a task's fetch, by the same steps as that of a call.
func (m *many) fetch(ctx context.Context, in *pb.FetchRequest, a *taskAnswers) (*fetch.Outcome, *fetch.Request) {
	s := m.service
	p, err := s.prepareTask(m.stream.Context(), in)
	if err != nil {
		req := fetch.NewRequest(classify.Standard)
		req.ID = rand.Text()
		return s.client.Refuse(ctx, req, classify.InvalidRequest, status.Convert(err).Message()), req
	}
	class := m.enter(ctx, a.turn)
	a.turned()
	if class != classify.NoClass {
		return s.client.Refuse(ctx, p.req, class, ""), p.req
	}
	if p.req.Events != fetch.OutcomeOnly {
		end, _ := ctx.Deadline()
		if err := a.send(p.admitted(a.start, end)); err != nil {
			return s.client.Refuse(ctx, p.req, classify.Cancelled, ""), p.req
		}
	}
	ctx, p.req.TraceParent = s.observe.Start(ctx, a.start)
	return s.client.Fetch(ctx, p.req, a.sink), p.req
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

// taskAnswers numbers what is sent of one task.
type taskAnswers struct {
	many     *many
	tag      string
	turn     *place
	turned   func() // its turn has come
	start    time.Time
	sequence int64
	last     *pb.AttemptFinished // that ended the fetch
}

// sink is the fetch's [fetch.Sink].
func (a *taskAnswers) sink(ev fetch.Event) error {
	resp := new(pb.FetchResponse)
	event(resp, ev)
	a.last = ending(resp)
	return a.send(resp)
}

func (a *taskAnswers) send(resp *pb.FetchResponse) error {
	a.sequence++
	resp.Sequence, resp.ElapsedOffset = a.sequence, durationpb.New(time.Since(a.start))
	select {
	case a.many.answers <- &pb.TaskResponse{Tag: a.tag, Response: resp}:
		return nil
	case <-a.many.over.Done():
		return a.many.over.Err()
	}
}
