package server

import (
	"context"
	"errors"
	"log/slog"
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
	"fetchd/internal/budget"
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
	budget    *budget.Budget
	providers map[string]AuthProvider
	callers   *authentication
	observe   *observe.Observer
	workers   workers.Pool    // of tasks
	draining  context.Context // done from the start of a drain
	ending    context.Context // done when its time is nearly over
	calls     atomic.Int64    // in flight, health aside
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
	if req.Hops, err = circle(ctx); err != nil {
		return nil, err
	}
	req.Caller = callerOf(ctx)
	return &prepared{echoOf(in), req, cut}, nil
}

// Fetch implements fetchd.v1.FetchService.Fetch.
func (s *service) Fetch(in *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return s.fetch(stream.Context(), in, func(o *outgoing) error { return stream.SendMsg(o) }, gRPCWay)
}

// way is how the events of a fetch are sent to the caller.
type way struct {
	atOnce int   // bytes that are sent without waiting for the reader
	copies int64 // of each message that are held while it is sent
}

var gRPCWay = way{atOnce: sentAtOnce, copies: 1}

// fetch runs a fetch and sends its events.
func (s *service) fetch(caller context.Context, in *pb.FetchRequest, send func(*outgoing) error, by way) error {
	began := time.Now()
	p, err := s.prepare(caller, in, "", fetch.Stream)
	if err != nil {
		return err
	}
	t, err := s.enter(caller, p, in)
	if err != nil {
		return err
	}
	defer func() {
		if t != nil {
			t.release()
		}
	}()
	p.req.InlineCopies = int(by.copies)
	ctx, release := context.WithCancel(caller)
	defer release()
	end := reserved(caller)
	events := newEventStream(caller, send, by, t, s.stall, release)
	defer events.close()
	if p.req.Events != fetch.OutcomeOnly {
		events.telling.ends = true
		events.beatAfter(s.heartbeat)
		if err := events.send(p.admitted(events.start, end)); errors.Is(err, fetch.ErrOutOfMemory) {
			return s.admission.noMemory(caller, "answers")
		} else if err != nil {
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
	if err := events.finish(asOutcome(out, req, events.telling.last)); err != nil {
		return err
	}
	t = nil // its answer owns it
	return nil
}

// enter admits a fetch, and sets the lease that it is charged to.
func (s *service) enter(ctx context.Context, p *prepared, in *pb.FetchRequest) (*ticket, error) {
	t, err := s.admission.enter(ctx, charges(in)...)
	if err == nil {
		p.req.Memory = t.memory
	}
	return t, err
}

// charges returns what a fetch is charged from its start.
func charges(in *pb.FetchRequest) []charge {
	return []charge{{budget.Fetch, fetchBytes}, {budget.Request, int64(sizeOf(in)) + headerBytes*int64(len(in.GetHeaders()))}}
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
	return s.fetchUnary(ctx, request, "request.", gRPCWay.copies, func(_ *pb.FetchUnaryResponse, t *ticket) error {
		handOver(ctx, t)
		return nil
	})
}

// fetchUnary runs a fetch. It delivers the answer with its ticket, which must be released
// once the answer has been read.
func (s *service) fetchUnary(ctx context.Context, in *pb.FetchRequest, prefix string, copies int64, deliver func(*pb.FetchUnaryResponse, *ticket) error) (*pb.FetchUnaryResponse, error) {
	began := time.Now()
	p, err := s.prepare(ctx, in, prefix, fetch.Inline)
	if err != nil {
		return nil, err
	}
	t, err := s.enter(ctx, p, in)
	if err != nil {
		return nil, err
	}
	handedOver := false
	defer func() {
		if !handedOver {
			t.release()
		}
	}()
	p.req.LargeStack, p.req.InlineCopies = true, int(copies)
	asked := p.req.Events
	switch asked {
	case fetch.All, fetch.Attempts: // the headers of 220 hops are more than a client takes in one message
		asked, p.req.Events = fetch.Attempts, fetch.Ends // of which alone the answer tells
	}
	var attempts []*pb.AttemptFinished
	kept := keptAttempts{memory: t.memory}
	traced, parent := s.observe.Start(ctx, began)
	p.req.TraceParent = parent
	out := s.inTime(traced, reserved(ctx), p.req, func(e fetch.Event) error {
		if finished, ok := e.(fetch.AttemptFinished); ok {
			attempts = append(attempts, attemptFinished(&finished, response(finished.Response)))
			kept.add(attempts)
		}
		return nil
	})
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	var last *pb.AttemptFinished
	if n := len(attempts); n > 0 && kept.sizes[n-1] > 0 {
		last = attempts[n-1]
	}
	p.req.Events = asked
	resp := &pb.FetchUnaryResponse{FetchId: p.req.ID, ClampedFields: p.cut, Attempts: attempts, Outcome: outcome(out, p.req, last),
		EffectiveRequest: effective(p.echo, p.req)} // here, and not kept by ten thousand that wait
	if !t.becomeAnswer(int(copies) * sizeOf(resp)) {
		for i := range attempts {
			attempts[i] = shorten(attempts[i])
		}
		shortenOutcome(resp.Outcome)
		if !t.becomeAnswer(int(copies) * sizeOf(resp)) {
			return nil, s.admission.noMemory(ctx, "answers")
		}
	}
	handedOver = true
	return resp, deliver(resp, t)
}

// maxAttemptsBytes bounds the attempts of a unary answer: with the outcome, which
// has a body of 1 MiB at most, they stay below the 4 MiB that clients take. An
// origin decides how long its headers and redirects are, and must not decide
// that the caller gets no outcome.
const maxAttemptsBytes = 2 << 20

// keptAttempts limits and charges the attempts before the last in a unary answer. If an
// attempt does not fit, headers and hops are dropped, those of the oldest attempt first.
type keptAttempts struct {
	memory *budget.Lease
	sizes  []int // the charge of each attempt; 0: it was shortened
	total  int
}

// add adds the last of attempts.
func (k *keptAttempts) add(attempts []*pb.AttemptFinished) {
	last := len(attempts) - 1
	size := attemptBytes(attempts[last])
	for i := 0; k.total+size > maxAttemptsBytes && i < last; i++ {
		k.shorten(attempts, i)
	}
	granted := k.memory.Grow(budget.Head, int64(size))
	for i := 0; !granted && i < last; i++ {
		k.shorten(attempts, i)
		granted = k.memory.Grow(budget.Head, int64(size))
	}
	if !granted {
		attempts[last] = shorten(attempts[last])
		size = 0
	}
	k.sizes, k.total = append(k.sizes, size), k.total+size
}

func (k *keptAttempts) shorten(attempts []*pb.AttemptFinished, i int) {
	if k.sizes[i] > 0 {
		attempts[i] = shorten(attempts[i])
		k.memory.Shrink(budget.Head, int64(k.sizes[i]))
		k.total, k.sizes[i] = k.total-k.sizes[i], 0
	}
}

// attemptBytes is the memory of an attempt as a message and encoded.
func attemptBytes(a *pb.AttemptFinished) int {
	const line, hop = 128, 512 // structs of the message
	return 2*sizeOf(a) + line*len(a.GetResponse().GetHeaders()) + hop*len(a.Hops)
}

// shorten returns an attempt without headers and hops. It does not change a, which the
// outcome may share.
func shorten(a *pb.AttemptFinished) *pb.AttemptFinished {
	return &pb.AttemptFinished{Attempt: a.Attempt, Error: a.Error, RetryDecision: a.RetryDecision, Response: shortResponse(a.Response)}
}

// shortResponse returns a response without its headers.
func shortResponse(r *pb.HttpResponse) *pb.HttpResponse {
	if r == nil {
		return nil
	}
	return &pb.HttpResponse{StatusCode: r.StatusCode, Protocol: r.Protocol, ContentLength: r.ContentLength}
}

// circleKey is the name of [fetch.HopsHeader] in a call's metadata.
var circleKey = strings.ToLower(fetch.HopsHeader)

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
			return s.client.Refuse(ctx, r, classify.Deadline, "the time for the fetch is spent: the deadline of the call, set by the caller, left none")
		}
		if left < r.TotalTimeout {
			defer func(asked time.Duration) { r.TotalTimeout = asked }(r.TotalTimeout)
			r.TotalTimeout, r.SetBy.TotalTimeout = left, fetch.ByCall
		}
	}
	return s.client.Fetch(ctx, r, sink)
}

// reserved is when a fetch is to end at the latest, so that its outcome reaches the
// caller before the call's deadline (spec §9). Zero is never.
func reserved(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	left := time.Until(deadline)
	return deadline.Add(-min(max(left/20, min(left/4, shortReserve)), maxReserve))
}

const (
	// shortReserve is the reserve of deadlines between 1 s and 5 s.
	shortReserve = 250 * time.Millisecond
	maxReserve   = time.Second
)

// reserve returns a context that ends then.
func reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	if end := reserved(ctx); !end.IsZero() {
		return context.WithDeadline(ctx, end)
	}
	return context.WithCancel(ctx)
}
