package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"fetchd/client"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
)

// The calls of a scenario other than Fetch.
const unary, many = "unary", "many"

// Record is the result of a scenario: what the service reported and what the origin received.
type Record struct {
	// Outcome is nil if the call failed, and Err is its error.
	Outcome *pb.FetchOutcome
	Err     error
	// Finished are the attempts as reported. Body has the delivered bytes.
	Finished []*pb.AttemptFinished
	Body     []byte
	// Requests are the requests that the origin received.
	Requests []origin.Request
	// Inline reports whether the stream had the body in the outcome.
	Inline bool
	// Head is the last ResponseStarted before a chunk of the body, or nil.
	Head *pb.ResponseStarted
	// Spent is how long the call took.
	Spent time.Duration

	started  *pb.ResponseStarted // the latest one
	base     int64               // offset of the first byte of Body
	sequence int64               // number of the last event
	breaches []string            // violations of the contract
}

// Perform runs the scenario and calls event with each event of the stream, unless it is nil. It
// returns when the call has ended.
func (s *Scenario) Perform(ctx context.Context, service pb.FetchServiceClient, o Origin, event func(*pb.FetchEvent)) *Record {
	started := time.Now()
	if s.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.deadline)
		defer cancel()
	}
	req := new(pb.FetchRequest)
	proto.Merge(req, s.request)
	req.Url, req.EventLevel = s.URL(o), pb.EventLevel_EVENT_LEVEL_ALL
	delivery := cmp.Or(req.GetBodyPolicy().GetStream(), req.GetBodyPolicy().GetAuto())
	rec := &Record{base: delivery.GetResumePoint().GetOffsetBytes()}
	if s.BodyBytes > 0 {
		req.Body = make([]byte, s.BodyBytes)
	}
	switch s.Call {
	case unary:
		rec.Err = rec.unary(ctx, service, req)
	case many:
		rec.Err = rec.many(ctx, service, s.tasks(req))
	default:
		rec.Err = rec.stream(ctx, service, req, event)
	}
	rec.Spent = time.Since(started)
	rec.Requests = o.Requests(s.Key())
	return rec
}

func (rec *Record) unary(ctx context.Context, service pb.FetchServiceClient, req *pb.FetchRequest) error {
	resp, err := service.FetchUnary(ctx, req)
	if err != nil {
		return err
	}
	rec.checkSet(resp)
	rec.Outcome, rec.Finished, rec.Body = resp.GetOutcome(), resp.GetAttempts(), resp.GetOutcome().GetInlineBody()
	if rec.Outcome == nil {
		return errors.New("the answer has no outcome")
	}
	return nil
}

// tasks returns the task of the scenario, and after it the others of its message.
func (s *Scenario) tasks(req *pb.FetchRequest) []*pb.Task {
	tasks := []*pb.Task{{Tag: "0", Request: req}}
	for i, n := range s.Others {
		other := new(pb.FetchRequest)
		proto.Merge(other, s.request)
		other.Url, other.Body = strings.Replace(req.GetUrl(), s.Key(), s.Key()+"-other", 1), make([]byte, n)
		tasks = append(tasks, &pb.Task{Tag: strconv.Itoa(i + 1), Request: other})
	}
	return tasks
}

// many sends the tasks in one message and checks every answer, so it reads the stream itself: a
// client.Pool chooses its messages and ignores answers that nothing asked for. The record is that
// of the first task.
func (rec *Record) many(ctx context.Context, service pb.FetchServiceClient, tasks []*pb.Task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if it is not read to its end
	stream, err := service.FetchMany(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.FetchManyRequest{Tasks: tasks}); err != nil && !errors.Is(err, io.EOF) { // Recv returns the status
		return err
	}
	_ = stream.CloseSend()
	ends := make(map[string]string)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		rec.checkSet(m)
		for _, r := range m.GetEvents() {
			if r.GetTag() == tasks[0].GetTag() {
				rec.add(r.GetEvent())
			}
			if o := r.GetEvent().GetOutcome(); o != nil {
				ends[r.GetTag()] += o.GetKind().String()
			}
		}
	}
	for _, task := range tasks[1:] {
		if end := ends[task.GetTag()]; end != pb.OutcomeKind_OUTCOME_KIND_SUCCESS.String() {
			rec.breach("task %s of the same message ended with %q", task.GetTag(), end)
		}
	}
	if rec.Outcome == nil {
		return errors.New("the stream ended without an outcome")
	}
	return nil
}

func (rec *Record) stream(ctx context.Context, service pb.FetchServiceClient, req *pb.FetchRequest, event func(*pb.FetchEvent)) error {
	for m, err := range client.Wrap(watched{service, rec}).Events(ctx, req) {
		if err != nil {
			return err
		}
		rec.add(m)
		if event != nil {
			event(m)
		}
	}
	return nil
}

// watched is a service whose messages are checked before a client reads their events.
type watched struct {
	pb.FetchServiceClient
	rec *Record
}

// Fetch implements pb.FetchServiceClient.
func (w watched) Fetch(ctx context.Context, in *pb.FetchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[pb.FetchResponse], error) {
	stream, err := w.FetchServiceClient.Fetch(ctx, in, opts...)
	return watchedStream{stream, w.rec}, err
}

type watchedStream struct {
	grpc.ServerStreamingClient[pb.FetchResponse]
	rec *Record
}

// Recv implements grpc.ServerStreamingClient.
func (s watchedStream) Recv() (*pb.FetchResponse, error) {
	m, err := s.ServerStreamingClient.Recv()
	if err != nil {
		return nil, err
	}
	if len(m.GetEvents()) == 0 {
		s.rec.breach("a message has no events")
	}
	s.rec.checkSet(m)
	return m, nil
}

// checkSet records the fields of a response that are unset although the contract always sets them.
func (rec *Record) checkSet(m proto.Message) {
	for _, field := range unset(m) {
		rec.breach("%s is unset", field)
	}
}

// add records an event and its violations of the contract.
func (rec *Record) add(m *pb.FetchEvent) {
	if rec.Outcome != nil {
		rec.breach("an event arrived after the outcome")
	}
	rec.sequence++
	if m.GetSequence() != rec.sequence {
		rec.breach("event %d has the sequence %d", rec.sequence, m.GetSequence())
		rec.sequence = m.GetSequence()
	}
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_ResponseStarted:
		rec.started = e.ResponseStarted
	case *pb.FetchEvent_BodyChunk:
		rec.Head = rec.started
		rec.chunk(e.BodyChunk)
	case *pb.FetchEvent_AttemptFinished:
		rec.Finished = append(rec.Finished, e.AttemptFinished)
	case *pb.FetchEvent_Outcome:
		rec.Outcome = e.Outcome
		if body, ok := e.Outcome.GetBody().(*pb.FetchOutcome_InlineBody); ok {
			rec.inline(body.InlineBody)
		}
	}
}

// inline records the body in the outcome of a stream.
func (rec *Record) inline(body []byte) {
	if len(rec.Body) > 0 {
		rec.breach("%d bytes arrived in chunks, and %d in the outcome", len(rec.Body), len(body))
	}
	rec.Inline, rec.Body = true, body
}

// chunk adds bytes at their offset. A body that starts over replaces earlier bytes.
func (rec *Record) chunk(c *pb.BodyChunk) {
	at := c.GetOffsetBytes() - rec.base
	if at < 0 || at > int64(len(rec.Body)) {
		rec.breach("a chunk at offset %d arrived after %d bytes", c.GetOffsetBytes(), rec.base+int64(len(rec.Body)))
		at = int64(len(rec.Body))
	}
	rec.Body = append(rec.Body[:at], c.GetData()...)
}

func (rec *Record) breach(format string, args ...any) {
	rec.breaches = append(rec.breaches, fmt.Sprintf(format, args...))
}
