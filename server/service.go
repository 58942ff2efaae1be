package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// service implements the methods of the contract.
type service struct {
	pb.UnimplementedFetchServiceServer
	client    *fetch.Client
	limits    limits
	heartbeat time.Duration
}

// Fetch implements fetchd.v1.FetchService.Fetch.
func (s *service) Fetch(in *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	req, cut, err := s.limits.convert(in, "", fetch.Stream)
	if err != nil {
		return err
	}
	ctx, release := reserve(stream.Context())
	defer release()
	events := newEventStream(stream)
	defer events.close()
	if req.Events != fetch.OutcomeOnly {
		events.beatAfter(s.heartbeat)
		if err := events.send(&pb.FetchResponse{Event: &pb.FetchResponse_Admitted{Admitted: &pb.Admitted{
			FetchId: req.ID, EffectiveRequest: effective(in, req), ClampedFields: cut,
			ExpireTime: timestamppb.New(expiry(ctx, events.start, req.TotalTimeout)), StartTime: timestamppb.New(events.start),
		}}}); err != nil {
			return err
		}
	}
	out := s.client.Fetch(ctx, req, events.sink)
	if err := stream.Context().Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return events.finish(&pb.FetchResponse{Event: &pb.FetchResponse_Outcome{Outcome: outcome(out, req)}})
}

// FetchUnary implements fetchd.v1.FetchService.FetchUnary.
func (s *service) FetchUnary(ctx context.Context, in *pb.FetchUnaryRequest) (*pb.FetchUnaryResponse, error) {
	req, cut, err := s.limits.convert(in.GetRequest(), "request.", fetch.Inline)
	if err != nil {
		return nil, err
	}
	if req.Events == fetch.All {
		req.Events = fetch.Attempts // the headers of 220 hops are more than a client takes in one message
	}
	resp := &pb.FetchUnaryResponse{FetchId: req.ID, ClampedFields: cut, EffectiveRequest: effective(in.GetRequest(), req)}
	bounded, release := reserve(ctx)
	defer release()
	out := s.client.Fetch(bounded, req, func(e fetch.Event) error {
		if finished, ok := e.(fetch.AttemptFinished); ok {
			resp.Attempts = append(resp.Attempts, attemptFinished(&finished))
		}
		return nil
	})
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	resp.Outcome = outcome(out, req)
	return resp, nil
}

// reserve keeps back a part of the call's deadline, so that the caller gets the
// outcome and not a bare DEADLINE_EXCEEDED: 5 %, at least 50 ms, at most 1 s
// (spec §9).
func reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	kept := min(max(time.Until(deadline)/20, 50*time.Millisecond), time.Second)
	return context.WithDeadline(ctx, deadline.Add(-kept))
}

// expiry is when the fetch gives up.
func expiry(ctx context.Context, start time.Time, total time.Duration) time.Time {
	end := start.Add(total)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		return deadline
	}
	return end
}

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
}

func newEventStream(stream grpc.ServerStreamingServer[pb.FetchResponse]) *eventStream {
	return &eventStream{stream: stream, start: time.Now()}
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
	err := e.stream.Send(resp)
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
