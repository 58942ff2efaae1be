package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
)

// openTask is a task in flight. run and fetch use little stack, because 10,000 tasks may wait in
// them.
type openTask struct {
	many   *many
	tag    string
	ctx    context.Context
	cancel context.CancelFunc
	ticket *admission.Ticket // nil if there is no memory for the task, or if its answer owns the ticket
	place  *admission.Place  // nil without a ticket
	in     *pb.FetchRequest  // nil once it is converted
	policy callerPolicy      // of its caller when it began

	start    time.Time
	sequence int64
	convert  conversion.Events
	chunk    *taskChunk // nil until the first chunk
}

// run runs a task and sends its outcome.
func (t *openTask) run() {
	defer t.release()
	t.start = time.Now()
	out, req := t.fetch()
	if t.place != nil {
		t.place.Leave() // it may not have been admitted
	}
	t.finish(out, req)
}

// release releases what the task holds.
func (t *openTask) release() {
	t.cancel()
	if t.ticket != nil {
		t.ticket.Release()
	}
	<-t.many.slots
	t.many.tasks.Done()
}

// finish sends the outcome of a task.
func (t *openTask) finish(out *fetch.Outcome, req *fetch.Request) {
	m := t.many
	m.mu.Lock()
	delete(m.open, t.tag) // the caller may reuse the tag once it has the outcome
	m.last = time.Now()
	m.mu.Unlock()
	if t.send(conversion.OutcomeEvent(out, req, t.convert.Last)) == nil {
		t.ticket = nil // the answer owns it now
	}
}

// fetch runs the fetch of a task. A panic ends only that task.
func (t *openTask) fetch() (out *fetch.Outcome, req *fetch.Request) {
	defer func() {
		if p := recover(); p != nil {
			s := t.many.service
			_ = s.LogPanic(t.ctx, "panic in a task", p) // the outcome has the error
			req = t.placeholder()
			out = s.client.Refuse(t.ctx, req, classify.Internal, "")
		}
	}()
	ctx, req, out := t.begin()
	if out == nil {
		out = t.many.service.run(ctx, req, t.sink)
	}
	return out, req
}

// placeholder returns the request of a task that has no valid one.
func (t *openTask) placeholder() *fetch.Request {
	req := fetch.NewRequest(classify.Standard)
	req.ID, req.Caller = rand.Text(), admission.Caller(t.many.stream.Context())
	return req
}

// begin validates, admits and announces the fetch. It returns an outcome if the task must not
// fetch.
func (t *openTask) begin() (context.Context, *fetch.Request, *fetch.Outcome) {
	s := t.many.service
	p, err := s.prepare(t.many.stream.Context(), t.policy, t.in, "request.", conversion.ManyMode)
	quiet := t.in.GetEventLevel() == pb.EventLevel_EVENT_LEVEL_UNSPECIFIED // only the outcome is sent
	t.in = nil
	if err != nil {
		req, reason := t.placeholder(), ""
		req.CallerPolicy, reason = deniedBy(err)
		out := s.client.Refuse(t.ctx, req, classify.InvalidRequest, status.Convert(err).Message())
		out.Failure.Policy, out.Failure.Reason = req.CallerPolicy, cmp.Or(reason, providerReason(err))
		return t.ctx, req, out
	}
	if quiet {
		p.Events, p.Request.Events = fetch.OutcomeOnly, fetch.OutcomeOnly
	}
	if class := t.many.enter(t.ctx, t.place); class != classify.NoClass {
		return t.ctx, p.Request, s.client.Refuse(t.ctx, p.Request, class, "")
	}
	p.Request.Memory = t.ticket.Memory
	reportQuota(&p, t.ticket)
	if p.Request.Events != fetch.OutcomeOnly {
		t.convert.Attempts = true
		end, _ := t.ctx.Deadline()
		if err := t.send(p.Admitted(t.start, end, nil)); err != nil {
			return t.ctx, p.Request, s.client.Refuse(t.ctx, p.Request, classify.Cancelled, "")
		}
	}
	return s.observe.Start(t.ctx, t.start), p.Request, nil
}

// providerReason returns the reason of an outcome if a request names an auth provider that it cannot have.
func providerReason(err error) (reason string) {
	switch badrequest.Reason(err, "request.auth_provider") {
	case conversion.ProviderUnknown:
		return "auth_provider_unknown"
	case conversion.ProviderOrigin:
		return "auth_provider_origin"
	case conversion.ProviderCaller:
		return "auth_provider_caller"
	}
	return ""
}

// enter waits until a task is admitted. If it is not admitted, enter returns the class of the failure.
func (m *many) enter(ctx context.Context, p *admission.Place) classify.Class {
	switch {
	case p == nil && m.service.Draining.Err() != nil:
		return classify.Shutdown
	case p == nil:
		return classify.OutOfMemory
	}
	if p.IsAdmitted() && ctx.Err() == nil && m.service.Draining.Err() == nil { // the common case
		return classify.NoClass
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(m.service.Draining, stop)()
	select {
	case <-p.Admitted:
	case <-waiting.Done():
	}
	switch {
	case m.service.Draining.Err() != nil: // even if it has just been admitted
		return classify.Shutdown
	case p.IsAdmitted():
		return classify.NoClass
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return classify.Deadline
	}
	return classify.Cancelled
}

// sink is the [fetch.Sink] of the task.
func (t *openTask) sink(ev fetch.Event) error {
	if _, ok := ev.(fetch.BodyChunk); ok {
		return t.sendChunk(ev)
	}
	m := new(pb.FetchEvent)
	t.convert.Event(m, ev)
	return t.send(m)
}

// number sets the number and the time of an event. to becomes the time.
func (t *openTask) number(m *pb.FetchEvent, to *durationpb.Duration) {
	t.sequence++
	elapsed := time.Since(t.start)
	to.Seconds, to.Nanos = int64(elapsed/time.Second), int32(elapsed%time.Second)
	m.Sequence, m.ElapsedOffset = t.sequence, to
}

// sendChunk sends a chunk, and returns when gRPC has accepted its message. So the chunk is not
// copied, and at most one chunk of a task waits.
func (t *openTask) sendChunk(ev fetch.Event) error {
	c := t.chunk
	if c == nil {
		c = &taskChunk{ctx: t.ctx, ticket: t.ticket, sent: make(chan error, 1)}
		c.task.Tag, c.task.Event = t.tag, &c.event
		t.chunk = c
	}
	t.convert.Event(&c.event, ev)
	t.number(&c.event, &c.elapsed)
	select {
	case t.many.chunks <- c:
	case <-t.many.over.Done():
		return t.many.over.Err()
	}
	select {
	case err := <-c.sent:
		if c.event.Event = nil; err != nil {
			t.sequence-- // nothing was sent, and more may follow
		}
		return err
	case <-t.many.over.Done(): // the packer may still use c
		return t.many.over.Err()
	}
}

func (t *openTask) send(m *pb.FetchEvent) error {
	answer := &taskAnswer{}
	t.number(m, &answer.elapsed)
	answer.event.Tag, answer.event.Event = t.tag, m
	answer.size = wire.SizeOf(&answer.event)
	if t.ticket != nil { // without one the message is in the reserved memory of the stream
		if m.GetOutcome() != nil {
			answer.ticket = t.ticket
		} else {
			answer.memory = new(budget.Lease)
		}
		var err error
		if answer.size, err = wire.Pay(t.ctx, t.ticket, answer.memory, &answer.event, m, answer.size, 1); err != nil {
			t.sequence--
			return err
		}
	}
	select {
	case t.many.answers <- answer:
		return nil
	case <-t.many.over.Done():
		var held wire.Held
		held.Add(answer.memory, answer.ticket)
		held.Release()
		return t.many.over.Err()
	}
}
