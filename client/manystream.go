package client

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

// manyStream is one call of FetchMany.
type manyStream struct {
	many    *many
	rpc     pb.FetchService_FetchManyClient
	sending sync.Mutex // one sends at a time

	mu      sync.Mutex
	tasks   map[string]*task // by tag, without an outcome
	unsent  int              // of those
	leaving bool             // no task will be registered
	over    bool             // the stream has ended
}

// register notes t, unless the stream has ended. It must be sent then.
func (s *manyStream) register(tag string, t *task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.tasks[tag] = t
	s.unsent++
	return true
}

// send sends a task that was registered. An error of it is told by the end of the
// stream, to all tasks.
func (s *manyStream) send(t *pb.Task) {
	s.sending.Lock()
	_ = s.rpc.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{t}})
	s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsent--
	s.halfClose()
}

// leave half-closes the stream once what was registered is sent.
func (s *manyStream) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	s.halfClose()
}

// halfClose does so where nothing more will be sent. The lock is held.
func (s *manyStream) halfClose() {
	if s.leaving && s.unsent == 0 {
		_ = s.rpc.CloseSend() // always nil
	}
}

// receive hands out what comes until the stream ends.
func (s *manyStream) receive() {
	for answered := false; ; answered = true {
		in, err := s.rpc.Recv()
		if err != nil {
			s.end(err, answered)
			return
		}
		if in.GetDraining() {
			s.many.forget(s)
		}
		for _, r := range in.GetResponses() {
			s.answer(r)
		}
	}
}

func (s *manyStream) answer(r *pb.TaskResponse) {
	o := r.GetResponse().GetOutcome()
	s.mu.Lock()
	t := s.tasks[r.GetTag()]
	if o != nil {
		delete(s.tasks, r.GetTag())
	}
	s.mu.Unlock()
	switch {
	case t == nil: // not ours
	case o == nil:
		if s.many.event != nil {
			s.many.event(t.request, r.GetResponse())
		}
	case t.sends < mostSends && untouched(o):
		t.returned = o
		s.many.forget(s) // it may not have said so yet
		again := func() { s.many.send(t) }
		s.many.running.Go(again) // for it may wait
	case o.GetError() != nil:
		s.many.settle(t, o, &Error{o})
	default:
		s.many.settle(t, o, nil)
	}
}

// untouched tells whether a service that goes away gave a fetch back before any
// origin saw of it.
func untouched(o *pb.FetchOutcome) bool {
	return o.GetError().GetErrorClass() == pb.ErrorClass_ERROR_CLASS_SHUTDOWN && o.GetExchanges() == 0
}

// end tells every task that its outcome will not come.
func (s *manyStream) end(err error, answered bool) {
	s.many.forget(s)
	s.mu.Lock()
	s.over = true
	left := s.tasks
	s.tasks = nil
	s.mu.Unlock()
	if errors.Is(err, io.EOF) {
		if len(left) == 0 {
			return
		}
		err = fmt.Errorf("%w: the call ended with %d tasks that have no outcome", ErrContract, len(left))
	}
	err = statusError(s.many.ctx, err)
	if !answered || status.Code(err) != codes.Unavailable {
		s.many.endFeed(err)
	}
	for _, t := range left {
		s.many.settle(t, nil, err)
	}
}
