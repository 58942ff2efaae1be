package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
)

const (
	// drainGrace is how long a stream may have no task in flight before it ends, while the
	// server drains.
	drainGrace = time.Second
	// revokedTime is how long a revoked caller's stream may still send the outcomes of its
	// tasks.
	revokedTime = 2 * time.Second
)

// errGoingAway is the status of a stream whose caller does not half-close it while the server drains.
var errGoingAway = status.Error(codes.Unavailable, "the server is shutting down: open a stream to another replica")

// many is a call of FetchMany. One goroutine reads tasks, one writes answers, and the handler waits
// for both. Each task runs in a goroutine as well.
type many struct {
	service  *service
	stream   grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]
	ctx      context.Context // the context of the tasks; it ends before the deadline of the call
	over     context.Context // done when the handler returns
	slots    chan struct{}   // maxOpen of them
	answers  chan *taskAnswer
	chunks   chan *taskChunk
	tasks    sync.WaitGroup
	started  atomic.Int64    // tasks started
	revoked  context.Context // done when the caller is revoked
	released func()          // is release

	mu    sync.Mutex
	open  map[string]context.CancelFunc // by tag
	last  time.Time                     // when a task was started or ended
	held  int                           // tickets held by tasks
	freed chan struct{}                 // signals that a ticket was released
	ended bool                          // no more tasks start
}

// FetchMany implements fetchd.v1.FetchService.FetchMany.
func (s *service) FetchMany(stream grpc.BidiStreamingServer[pb.FetchManyRequest, pb.FetchManyResponse]) error {
	ctx, release := reserve(stream.Context())
	over, leave := context.WithCancel(context.Background())
	revoked, revoke := context.WithCancel(over)
	stalled, stall := context.WithCancel(over)
	m := &many{service: s, stream: stream, ctx: ctx, over: over, slots: make(chan struct{}, maxOpen),
		answers: make(chan *taskAnswer), chunks: make(chan *taskChunk), freed: make(chan struct{}, 1), revoked: revoked, open: make(map[string]context.CancelFunc), last: time.Now()}
	m.released = m.release
	defer m.tasks.Wait()
	defer release()
	defer leave()
	defer stall()
	if err := s.Callers.Enter(stream.Context(), admission.RevokeFunc(func() { m.end(); revoke(); release() })); err != nil {
		return err
	}
	p := &packer{answers: m.answers, chunks: m.chunks, draining: s.Draining, ending: s.ending, over: over, send: func(o *wire.Outgoing) error { return stream.SendMsg(o) }, limit: s.Stall, silence: s.heartbeats.Delay(), caller: stream.Context(), memory: s.Fetches.Budget,
		stalled: stalled, stall: stall, message: new(pb.FetchManyResponse), started: func() int { return int(m.started.Load()) }}
	err := m.serve(p)
	if revoked.Err() != nil {
		return admission.StatusRevoked
	}
	return err
}

// serve runs the reader and the packer, and waits for both.
func (m *many) serve(p *packer) error {
	read, written, ended := make(chan error, 1), make(chan error, 1), make(chan struct{})
	reading := read
	go func() { reading <- m.read() }() // ends with the stream
	go func() { written <- p.run() }()
	idle := time.NewTicker(time.Second)
	defer idle.Stop()
	var last error // the status of the call once all tasks are answered
	answered := func() { m.tasks.Wait(); close(ended) }
	revoked, ending, late := m.revoked.Done(), m.service.ending.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case err := <-read:
			last, read = err, nil
			go answered() // the answers are still sent, even if a message was refused
		case <-revoked:
			if read != nil {
				go answered()
			}
			read, revoked, late = nil, nil, time.After(revokedTime)
		case <-ending:
			ending = nil
			if read != nil {
				m.end()
				read, last = nil, errGoingAway
				go answered()
			}
		case <-late: // the caller does not read the answers
			return admission.StatusRevoked
		case <-ended:
			close(m.answers)
			ended = nil
		case err := <-written:
			return cmp.Or(err, last)
		case <-p.stalled.Done():
			return calls.Stalled(p.limit)
		case <-idle.C:
			if read != nil && p.draining.Err() != nil && m.idleFor() > drainGrace {
				return errGoingAway
			}
		}
	}
}

// end stops new tasks from starting.
func (m *many) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
}

// idleFor returns how long no task has been in flight.
func (m *many) idleFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.open) > 0 {
		return 0
	}
	return time.Since(m.last)
}

// read starts tasks until the caller half-closes the stream.
func (m *many) read() error {
	for {
		in, err := m.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, tag := range in.GetCancelTags() {
			m.cancelTask(tag)
		}
		for _, task := range in.GetTasks() {
			if !m.takeSlot() {
				return status.FromContextError(m.ctx.Err()).Err()
			}
			if err := m.begin(task); err != nil {
				return err
			}
		}
	}
}

// takeSlot waits for a free slot. It returns false if the call ends first.
func (m *many) takeSlot() bool {
	select {
	case m.slots <- struct{}{}:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// charge charges a task. While there is no memory for it, charge waits for another task of this
// stream to end. Flow control then makes the caller wait, and the request is in the memory that the
// stream has reserved. The ticket is nil if there is no other task to wait for, or if the server
// drains. An error ends the call.
func (m *many) charge(task *pb.Task, policy callerPolicy) (*admission.Ticket, error) {
	a, caller := m.service.Fetches, admission.Caller(m.stream.Context())
	cost := charges(task.GetRequest())
	t := a.NewTicket(caller, m.service.shareOf(policy.Policy), m.released)
	for {
		m.mu.Lock()
		held := m.held
		m.mu.Unlock()
		if t.Grow(cost[:]) {
			m.mu.Lock()
			m.held++
			m.mu.Unlock()
			return t, nil
		}
		draining := m.service.Draining.Err() != nil
		if held == 0 || draining { // a draining server does not start the task anyway
			t.Memory.Close()
			if !draining {
				a.Refused(caller, admission.ReasonMemory)
			}
			return nil, nil
		}
		select {
		case <-m.freed:
		case <-m.service.Draining.Done():
		case <-m.ctx.Done():
			t.Memory.Close()
			return nil, status.FromContextError(m.ctx.Err()).Err()
		}
	}
}

// release records that a task's ticket was released.
func (m *many) release() {
	m.mu.Lock()
	m.held--
	m.mu.Unlock()
	select {
	case m.freed <- struct{}{}:
	default: // a signal is pending
	}
}

func (m *many) cancelTask(tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cancel, ok := m.open[tag]; ok {
		cancel()
	}
}

// begin starts a task. An error ends the call: a task without a unique tag cannot be answered.
func (m *many) begin(task *pb.Task) error {
	if err := m.checkTag(task.GetTag()); err != nil {
		return err
	}
	policy := m.service.policyOf(m.stream.Context())
	ticket, err := m.charge(task, policy)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		if ticket != nil {
			m.held--
			ticket.Memory.Close()
		}
		return admission.StatusRevoked
	}
	t := &openTask{many: m, tag: task.GetTag(), in: task.GetRequest(), policy: policy, ticket: ticket}
	t.ctx, t.cancel = context.WithCancel(m.ctx)
	m.open[t.tag], m.last = t.cancel, time.Now()
	if ticket != nil {
		t.place = m.service.Fetches.Queue(ticket) // here, so that tasks are admitted in order
	}
	m.tasks.Add(1)
	m.started.Add(1)
	m.service.workers.Go(t.run)
	return nil
}

func (m *many) checkTag(tag string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var v badrequest.Violations
	switch {
	case tag == "" || len(tag) > conversion.MaxLabelBytes:
		v.Add("tasks.tag", "has %d bytes: give 1 to %d", len(tag), conversion.MaxLabelBytes)
	case m.open[tag] != nil:
		v.Add("tasks.tag", "is %.60q, the tag of a task in flight: give each task its own tag", tag)
	}
	return v.Err()
}
