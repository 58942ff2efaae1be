package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

const (
	messageTasks = 16
	// messageBytes is the size of a message to which no further task is added. The service
	// accepts 4 MiB, and a task of up to 2 MiB.
	messageBytes = 1 << 20
)

// errStreamEnded is the error of a stream that the service ended without need. Status
// UNAVAILABLE means, as from gRPC, that another stream may work.
var errStreamEnded = status.Error(codes.Unavailable, "the service ended the stream")

// stream is one call of FetchMany. Two goroutines run it: send and receive.
type stream struct {
	pool     *Pool
	ctx      context.Context
	cancel   context.CancelFunc
	rpc      grpc.BidiStreamingClient[pb.FetchManyRequest, pb.FetchManyResponse]
	wake     chan struct{} // has a value when there is something to send
	left     chan struct{} // closed when the stream accepts no more calls
	ended    chan struct{} // closed when nothing more is received
	handling sync.Mutex    // held while events are delivered

	// Guarded by Pool.mu.
	calls    map[string]*call // by tag: those without an outcome
	queue    []*call          // those to be sent
	cancels  []string         // tags
	leaving  bool             // it accepts no more calls
	answered bool             // the service has sent something
	err      error            // why it accepts no more calls; nil if all is well
	idle     *time.Timer      // breaks a stream that the service does not end
}

func (s *stream) addLocked(c *call) {
	c.stream = s
	s.calls[c.wire.Tag] = c
	s.queue = append(s.queue, c)
	notify(s.wake)
}

// leave is leaveLocked with the lock. A nil stream has none to accept.
func (s *stream) leave() {
	if s != nil {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		s.leaveLocked(nil)
	}
}

func (s *stream) removeLocked(c *call) {
	delete(s.calls, c.wire.Tag)
	s.pool.fillLocked()
	s.endIdleLocked()
}

// leaveLocked makes the stream accept no more calls. It ends when its calls have ended.
func (s *stream) leaveLocked(err error) {
	if s.leaving {
		return
	}
	s.leaving, s.err = true, err
	s.pool.streams = slices.DeleteFunc(s.pool.streams, func(other *stream) bool { return other == s })
	s.pool.signalLocked()
	close(s.left)
	s.endIdleLocked()
}

// endIdleLocked half-closes a stream that has no calls and gets no more.
func (s *stream) endIdleLocked() {
	if s.leaving && len(s.calls) == 0 && s.idle == nil {
		s.idle = time.AfterFunc(idleTimeout, s.cancel)
		notify(s.wake)
	}
}

// abandon ends a call that the service does not answer, and stops using the stream for other
// calls. It returns false if the call has ended meanwhile.
func (s *stream) abandon(c *call) bool {
	s.pool.mu.Lock()
	over := c.over
	if !over {
		err := fmt.Errorf("no answer for a cancelled fetch within %v", cancelTimeout)
		s.leaveLocked(err)
		s.removeLocked(c)
		c.settleLocked(nil, lost(onceOf(c.Request), fmt.Errorf("%w: %w", ErrLost, err)))
	}
	s.pool.mu.Unlock()
	s.handling.Lock() // no event of the call is delivered after this
	defer s.handling.Unlock()
	return !over
}

// send sends what is queued until the stream has ended or is half-closed.
func (s *stream) send() {
	for first := true; ; first = false {
		m, last := s.next()
		if first && m == nil && !last {
			m = new(pb.FetchManyRequest) // a service ends a stream whose first message does not arrive
		}
		switch {
		case m != nil:
			if s.rpc.Send(m) != nil {
				return // receive gets the reason
			}
		case last:
			_ = s.rpc.CloseSend() // always nil
			return
		default:
			select {
			case <-s.wake:
				runtime.Gosched() // more calls may be about to start: one message for all
			case <-s.ended:
				return
			}
		}
	}
}

// next returns the next message to send, or nil. last is true if none will follow.
func (s *stream) next() (m *pb.FetchManyRequest, last bool) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if len(s.queue)+len(s.cancels) > 0 {
		m = s.messageLocked()
	}
	return m, s.leaving && len(s.calls) == 0
}

// messageLocked returns a message with the first calls of the queue, or nil if all of it is late.
func (s *stream) messageLocked() *pb.FetchManyRequest {
	m := &pb.FetchManyRequest{CancelTags: s.cancels}
	s.cancels = nil
	taken := 0
	for size := 0; taken < len(s.queue) && len(m.GetTasks()) < messageTasks; taken++ {
		c := s.queue[taken]
		if !c.SendBefore.IsZero() && !time.Now().Before(c.SendBefore) {
			continue // about to be withdrawn
		}
		size += c.wire.SizeVT()
		if len(m.GetTasks()) > 0 && size > messageBytes {
			break
		}
		c.sent, c.sends = true, c.sends+1
		m.Tasks = append(m.Tasks, &c.wire)
	}
	s.queue = slices.Delete(s.queue, 0, taken)
	if len(m.GetTasks())+len(m.GetCancelTags()) == 0 {
		return nil
	}
	return m
}

// receive gives answers to their calls until the stream ends.
func (s *stream) receive() {
	for {
		m, err := s.rpc.Recv()
		if err != nil {
			s.end(err)
			return
		}
		s.handle(m)
	}
}

func (s *stream) handle(m *pb.FetchManyResponse) {
	s.handling.Lock()
	defer s.handling.Unlock()
	s.pool.mu.Lock()
	s.answered = true
	if m.GetDraining() {
		s.leaveLocked(nil)
	}
	s.pool.mu.Unlock()
	for _, r := range m.GetEvents() {
		s.answer(r)
	}
}

func (s *stream) answer(r *pb.TaskEvent) {
	m := r.GetEvent()
	s.pool.mu.Lock()
	c := s.calls[r.GetTag()]
	known := c != nil && c.sent // else abandoned, or the service made the tag up
	s.pool.mu.Unlock()
	if !known {
		return
	}
	switch err := c.take(m); {
	case m.GetOutcome() != nil:
		s.settle(c, m.GetOutcome())
	case err != nil: // its outcome follows
		s.pool.mu.Lock()
		s.cancelLocked(c)
		s.pool.mu.Unlock()
	case c.OnEvent != nil && m.GetBodyChunk() == nil:
		c.OnEvent(m)
	}
}

// settle ends a call with its outcome, unless it was abandoned meanwhile. An outcome that breaks the contract is as
// good as none.
func (s *stream) settle(c *call, o *pb.FetchOutcome) {
	fault := c.fault
	if errors.Is(fault, ErrContract) {
		o, fault = nil, lost(onceOf(c.Request), fmt.Errorf("%w: %w", ErrLost, fault))
	}
	s.pool.mu.Lock()
	over := c.over
	if !over {
		s.removeLocked(c)
		c.settleLocked(o, fault)
	}
	s.pool.mu.Unlock()
	if !over {
		c.done(c)
	}
}

// cancelLocked asks the service to cancel a call.
func (s *stream) cancelLocked(c *call) {
	c.stopped = true
	s.cancels = append(s.cancels, c.wire.Tag)
	notify(s.wake)
}

// end moves calls that were not sent to other streams. Calls that were sent are lost, unless the service has refused the
// stream and asked for a wait.
func (s *stream) end(err error) {
	p := s.pool
	p.mu.Lock()
	var over []*call
	if wait, _ := refusal(err); wait > 0 && !s.answered {
		for _, c := range s.calls {
			if c.sent {
				c.sent, c.sends = false, c.sends-1
				if !c.stopped { // else its caller does not want it any more
					s.queue = append(s.queue, c)
				}
			}
		}
	}
	for _, c := range s.queue {
		if delete(s.calls, c.wire.Tag); p.err == nil {
			p.waitLocked(c)
			continue
		}
		c.rejectLocked(p.err)
		over = append(over, c)
	}
	for _, c := range s.calls {
		if !c.sent { // messageLocked found it late, or it was cancelled and never run
			c.settleLocked(nil, ErrNotSent)
			over = append(over, c)
			delete(s.calls, c.wire.Tag)
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		err = statusError(s.ctx, err)
	case len(s.calls) > 0:
		err = fmt.Errorf("%w: the call ended with %d tasks that have no outcome", ErrContract, len(s.calls))
	default:
		err = errStreamEnded
	}
	for _, c := range s.calls {
		c.settleLocked(nil, lost(onceOf(c.Request), fmt.Errorf("%w: %w", ErrLost, err)))
		over = append(over, c)
	}
	s.calls, s.queue = nil, nil
	s.leaveLocked(err)
	p.fillLocked()
	if s.idle != nil {
		s.idle.Stop()
	}
	answered := s.answered
	p.mu.Unlock()
	if p.onEnd != nil {
		p.onEnd(answered, err)
	}
	s.cancel()
	close(s.ended)
	for _, c := range over {
		c.done(c)
	}
}
