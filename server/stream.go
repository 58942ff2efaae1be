package server

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// eventStream sends one fetch's events, numbered, and a heartbeat where there
// is none for a while.
type eventStream struct {
	stream   grpc.ServerStreamingServer[pb.FetchResponse]
	start    time.Time
	silence  time.Duration
	mu       sync.Mutex
	sequence int64
	heart    *time.Timer // nil: none
	closed   bool

	limit   time.Duration // how long a send may take
	patient *time.Timer   // runs during a send
	stall   sync.Once
	stalled chan struct{} // closed when a send took too long
}

func newEventStream(stream grpc.ServerStreamingServer[pb.FetchResponse], limit time.Duration) *eventStream {
	return &eventStream{stream: stream, start: time.Now(), limit: limit, stalled: make(chan struct{})}
}

// watched runs f, which sends, and ends the call where a send gets stuck: a
// caller that has stopped reading would hold it for ever, and keepalive does not
// notice (spec B7). gRPC fails the send when the handler returns, and so f ends.
func (e *eventStream) watched(f func() error) error {
	done := make(chan error, 1)
	panicked := make(chan string, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				panicked <- fmt.Sprintf("%v\n%s", p, debug.Stack()) // the stack ends here
			}
		}()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case p := <-panicked:
		panic(p) //nolint:forbidigo // it is this call's own, handed on to the recovery interceptor
	case <-e.stalled:
		return stalledError(e.limit)
	}
}

func (e *eventStream) giveUp() { e.stall.Do(func() { close(e.stalled) }) }

// stalledError tells a caller that it did not read.
func stalledError(limit time.Duration) error {
	st := status.Newf(codes.Aborted, "the caller has read nothing for %s: read on, or ask for another delivery", limit)
	return withDetails(st, &errdetails.ErrorInfo{Reason: "CONSUMER_STALLED", Domain: errorDomain})
}

// beatAfter begins the heartbeats.
func (e *eventStream) beatAfter(silence time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silence, e.heart = silence, time.AfterFunc(silence, e.beat)
}

// sink is the fetch's [fetch.Sink].
func (e *eventStream) sink(ev fetch.Event) error {
	resp := new(pb.FetchResponse)
	event(resp, ev)
	return e.send(resp)
}

// send sends one message. It blocks while the caller does not read.
func (e *eventStream) send(resp *pb.FetchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.locked(resp)
}

// finish sends the last message. No heartbeat follows it, though one be due.
func (e *eventStream) finish(resp *pb.FetchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return e.locked(resp)
}

func (e *eventStream) locked(resp *pb.FetchResponse) error {
	e.sequence++
	resp.Sequence, resp.ElapsedOffset = e.sequence, durationpb.New(time.Since(e.start))
	if e.patient == nil {
		e.patient = time.AfterFunc(e.limit, e.giveUp)
	} else {
		e.patient.Reset(e.limit)
	}
	err := e.stream.Send(resp)
	e.patient.Stop()
	if e.heart != nil {
		e.heart.Reset(e.silence)
	}
	return err
}

// beat sends a heartbeat, unless something is just being sent: that is a sign
// of life too.
func (e *eventStream) beat() {
	if !e.mu.TryLock() {
		return
	}
	defer e.mu.Unlock()
	if !e.closed {
		_ = e.locked(&pb.FetchResponse{Event: &pb.FetchResponse_Heartbeat{Heartbeat: &pb.Heartbeat{}}}) // the fetch's next event meets the same error
	}
}

// close ends the heartbeats. A stream must not be used after its handler.
func (e *eventStream) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.heart != nil {
		e.heart.Stop()
	}
}
