package server

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/workers"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/observe"
)

// service implements the methods of the contract.
type service struct {
	pb.UnimplementedFetchServiceServer
	client    *fetch.Client
	limits    atomic.Pointer[Limits]
	heartbeat time.Duration
	stall     time.Duration
	admission *admission
	providers map[string]AuthProvider
	observe   *observe.Observer
	workers   workers.Pool // of tasks
	draining  context.Context
	logger    *slog.Logger
}

// prepared is a request that was found in order.
type prepared struct {
	echo *echo
	req  *fetch.Request
	cut  []string // fields that were clamped
}

// prepare reads a request. prefix stands before the fields that an error names;
// fallback is the delivery where none is asked for.
func (s *service) prepare(ctx context.Context, in *pb.FetchRequest, prefix string, fallback fetch.Delivery) (*prepared, error) {
	req, cut, err := s.limits.Load().convert(in, prefix, fallback, s.providers)
	if err != nil {
		return nil, err
	}
	if name := in.GetAuthProvider(); name != "" && !s.providers[name].open(ctx) {
		return nil, status.Errorf(codes.PermissionDenied, "this caller may not use the auth provider %q", name)
	}
	if req.Circle, err = circle(ctx); err != nil {
		return nil, err
	}
	return &prepared{echoOf(in), req, cut}, nil
}

// Fetch implements fetchd.v1.FetchService.Fetch.
func (s *service) Fetch(in *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return s.fetch(stream.Context(), in, func(m sized) error { return stream.SendMsg(m) }, sentAtOnce)
}

// fetch carries out a fetch and sends what happens. The first atOnce bytes are
// sent without waiting for their reader.
func (s *service) fetch(caller context.Context, in *pb.FetchRequest, send func(sized) error, atOnce int) error {
	began := time.Now()
	p, err := s.prepare(caller, in, "", fetch.Stream)
	if err != nil {
		return err
	}
	name, err := s.admission.enter(caller)
	if err != nil {
		return err
	}
	defer s.admission.leave(name)
	ctx, release := context.WithCancel(caller)
	defer release()
	end := reserved(caller)
	events := newEventStream(send, atOnce, s.stall, release)
	defer events.close()
	if p.req.Events != fetch.OutcomeOnly {
		events.telling.ends = true
		events.beatAfter(s.heartbeat)
		if err := events.send(p.admitted(events.start, end)); err != nil {
			return err
		}
	}
	req := p.req // the rest is not kept while the fetch goes on
	ctx, req.TraceParent = s.observe.Start(ctx, began)
	out := s.inTime(ctx, end, req, events.sink)
	if err := caller.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if err := events.failed(); err != nil {
		return err
	}
	return events.finish(&pb.FetchResponse{Event: &pb.FetchResponse_Outcome{Outcome: outcome(out, req, events.telling.last)}})
}

// admitted is the first event of a fetch that ends at the latest at end; zero is no
// end.
func (p *prepared) admitted(start, end time.Time) *pb.FetchResponse {
	if last := start.Add(p.req.TotalTimeout); end.IsZero() || last.Before(end) {
		end = last
	}
	all := &struct {
		response pb.FetchResponse
		event    pb.FetchResponse_Admitted
		admitted pb.Admitted
	}{admitted: pb.Admitted{
		FetchId: p.req.ID, EffectiveRequest: effective(p.echo, p.req), ClampedFields: p.cut,
		ExpireTime: timestamppb.New(end), StartTime: timestamppb.New(start),
	}}
	all.event.Admitted = &all.admitted
	all.response.Event = &all.event
	return &all.response
}

// FetchUnary implements fetchd.v1.FetchService.FetchUnary.
func (s *service) FetchUnary(ctx context.Context, in *pb.FetchUnaryRequest) (*pb.FetchUnaryResponse, error) {
	request := in.GetRequest()
	in.Request = nil // gRPC and the interceptors keep it until the call is over, and ten thousand may wait
	return s.fetchUnary(ctx, request, "request.", func(*pb.FetchUnaryResponse) error { return nil })
}

// fetchUnary carries out a fetch. Its answer is delivered while it still has its
// place.
func (s *service) fetchUnary(ctx context.Context, in *pb.FetchRequest, prefix string, deliver func(*pb.FetchUnaryResponse) error) (*pb.FetchUnaryResponse, error) {
	began := time.Now()
	p, err := s.prepare(ctx, in, prefix, fetch.Inline)
	if err != nil {
		return nil, err
	}
	name, err := s.admission.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.admission.leave(name)
	p.req.Deep = true
	asked := p.req.Events
	switch asked {
	case fetch.All, fetch.Attempts: // the headers of 220 hops are more than a client takes in one message
		asked, p.req.Events = fetch.Attempts, fetch.Ends // of which alone the answer tells
	}
	var attempts []*pb.AttemptFinished
	traced, parent := s.observe.Start(ctx, began)
	p.req.TraceParent = parent
	out := s.inTime(traced, reserved(ctx), p.req, func(e fetch.Event) error {
		if finished, ok := e.(fetch.AttemptFinished); ok {
			attempts = append(attempts, attemptFinished(&finished, response(finished.Response)))
		}
		return nil
	})
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	var last *pb.AttemptFinished
	if n := len(attempts); n > 0 {
		last = attempts[n-1]
	}
	p.req.Events = asked
	resp := &pb.FetchUnaryResponse{FetchId: p.req.ID, ClampedFields: p.cut, Attempts: attempts, Outcome: outcome(out, p.req, last),
		EffectiveRequest: effective(p.echo, p.req)} // here, and not kept by ten thousand that wait
	shorten(attempts)
	return resp, deliver(resp) // in its place still
}

// maxAttemptsBytes bounds the attempts of a unary answer: with the outcome, which
// has a body of 1 MiB at most, they stay below the 4 MiB that clients take. An
// origin decides how long its headers and redirects are, and must not decide
// that the caller gets no outcome.
const maxAttemptsBytes = 2 << 20

// shorten leaves out headers and hops of the earlier attempts, where all would
// be too long.
func shorten(attempts []*pb.AttemptFinished) {
	const alwaysFit = 3 // with heads of 64 KiB, which no text makes four times as long, and 21 hops with two URLs of 8 KiB each
	if len(attempts) <= alwaysFit {
		return
	}
	room := maxAttemptsBytes
	for _, a := range slices.Backward(attempts) {
		if room -= sizeOf(a); room < 0 {
			a.Hops, a.Exchange = nil, nil
			if r := a.Response; r != nil { // which the outcome may hold too
				a.Response = &pb.HttpResponse{StatusCode: r.StatusCode, Protocol: r.Protocol, ContentLength: r.ContentLength}
			}
		}
	}
}

// circleKey is the name of [fetch.CircleHeader] in a call's metadata.
var circleKey = strings.ToLower(fetch.CircleHeader)

// maxCircle is how many fetches may lead to one another: a chain of two services
// is somebody's design, more is a circle.
const maxCircle = 3

// circle reads how many fetches led to this call, and refuses one too many. Who
// sends a header of that name by hand only shortens his own way.
func circle(ctx context.Context) (int, error) {
	most := 0
	for _, sent := range metadata.ValueFromIncomingContext(ctx, circleKey) {
		n, err := strconv.Atoi(sent)
		if err != nil || n < 0 || n >= maxCircle {
			return 0, withDetails(status.Newf(codes.FailedPrecondition, "this call comes from a fetch that comes from a fetch, %d times: the service must not fetch itself", maxCircle),
				&errdetails.ErrorInfo{Reason: "FETCH_CIRCLE", Domain: errorDomain})
		}
		most = max(most, n)
	}
	return most, nil
}

// inTime carries out a fetch, so that its caller gets the outcome before the call's
// deadline and not a bare DEADLINE_EXCEEDED. Zero is no end.
func (s *service) inTime(ctx context.Context, end time.Time, r *fetch.Request, sink fetch.Sink) *fetch.Outcome {
	if !end.IsZero() {
		left := time.Until(end)
		if left <= 0 {
			return s.client.Refuse(ctx, r, classify.Deadline, "")
		}
		defer func(asked time.Duration) { r.TotalTimeout = asked }(r.TotalTimeout)
		r.TotalTimeout = min(r.TotalTimeout, left)
	}
	return s.client.Fetch(ctx, r, sink)
}

// reserved is when a fetch is to end at the latest, of whose call's deadline a part is
// kept back: 5 %, at least 50 ms, at most 1 s (spec §9). Zero is never.
func reserved(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return deadline.Add(-min(max(time.Until(deadline)/20, 50*time.Millisecond), time.Second))
}

// reserve returns a context that ends then.
func reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	if end := reserved(ctx); !end.IsZero() {
		return context.WithDeadline(ctx, end)
	}
	return context.WithCancel(ctx)
}
