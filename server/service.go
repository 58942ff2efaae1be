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
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/server/observe"
	"fetchd/stores"
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
	providers atomic.Pointer[map[string]AuthProvider]
	stores    atomic.Pointer[stores.Set]
	callers   *authentication
	observe   *observe.Observer
	workers   workers.Pool    // for tasks of FetchMany
	draining  context.Context // done from the start of a drain
	ending    context.Context // done when the time of the drain is nearly over
	calls     atomic.Int64    // calls in flight, except health
	logger    *slog.Logger
	finished  *callLog
}

// prepared is a valid request.
type prepared struct {
	echo    *echo
	req     *fetch.Request
	clamped []string // names of fields
	// What the effective request reports. A call may run req with fewer events and less time.
	events fetch.Level
	total  time.Duration
}

// prepare validates and converts a request. The fields that an error names start with prefix.
// mode is that of the method.
func (s *service) prepare(ctx context.Context, in *pb.FetchRequest, prefix string, mode deliveryMode) (*prepared, error) {
	known := configured{*s.providers.Load(), s.stores.Load()}
	req, clamped, err := s.limits.Load().convert(in, prefix, mode, &known)
	if err != nil {
		return nil, err
	}
	if err := known.mayUse(ctx, in); err != nil {
		return nil, err
	}
	if req.Hops, err = hopsTo(ctx); err != nil {
		return nil, err
	}
	req.Caller = callerOf(ctx)
	return newPrepared(in, req, clamped), nil
}

func newPrepared(in *pb.FetchRequest, req *fetch.Request, clamped []string) *prepared {
	return &prepared{echoOf(in), req, clamped, req.Events, req.TotalTimeout}
}

// Fetch implements fetchd.v1.FetchService.Fetch.
func (s *service) Fetch(in *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return s.fetch(stream.Context(), in, func(o *outgoing) error { return stream.SendMsg(o) }, gRPCMode)
}

type sendMode struct {
	unblocked int     // bytes that are sent without waiting for the reader
	copies    int64   // of each message that are held while it is sent
	id        *string // receives the ID of the fetch, if it is set
}

var gRPCMode = sendMode{unblocked: unblockedBytes, copies: 1}

// fetch runs a fetch and sends its events.
func (s *service) fetch(caller context.Context, in *pb.FetchRequest, send func(*outgoing) error, mode sendMode) error {
	began := time.Now()
	p, err := s.prepare(caller, in, "", fetchMode)
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
	if mode.id != nil {
		*mode.id = p.req.ID
	}
	p.req.InlineCopies = int(mode.copies)
	ctx, release := context.WithCancel(caller)
	defer release()
	end := reserved(caller)
	events := newEventStream(caller, send, mode, t, s.stall, release)
	defer events.close()
	if p.req.Events != fetch.OutcomeOnly {
		events.convert.attempts = true
		events.startHeartbeats(s.heartbeat)
		if err := events.send(p.admitted(events.start, end)); errors.Is(err, fetch.ErrOutOfMemory) {
			return s.admission.noMemory(caller, "answers")
		} else if err != nil {
			return err
		}
	}
	req := p.req // so that the rest of p can be collected while the fetch runs
	ctx, req.TraceParent = s.observe.Start(ctx, began)
	out := s.runUntil(ctx, end, req, events.sink)
	if err := caller.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if err := events.failed(); err != nil {
		return err
	}
	if err := events.finish(asOutcome(out, req, events.convert.last)); err != nil {
		return err
	}
	t = nil // the answer owns it now
	return nil
}

// enter admits a fetch, and sets the lease that its memory is charged to.
func (s *service) enter(ctx context.Context, p *prepared, in *pb.FetchRequest) (*ticket, error) {
	t, err := s.admission.enter(ctx, charges(in)...)
	if err == nil {
		p.req.Memory = t.memory
	}
	return t, err
}

// charges returns the memory that a fetch is charged at its start.
func charges(in *pb.FetchRequest) []charge {
	return []charge{{budget.Fetch, fetchBytes}, {budget.Request, int64(sizeOf(in)) + headerBytes*int64(len(in.GetHeaders()))}}
}

// admitted returns the first event of a fetch. end is the time limit of the call; zero means no
// limit.
func (p *prepared) admitted(start, end time.Time) *pb.FetchResponse {
	if last := start.Add(p.total); end.IsZero() || last.Before(end) {
		end = last
	}
	all := &struct {
		response pb.FetchResponse
		event    pb.FetchResponse_Admitted
		admitted pb.Admitted
	}{admitted: pb.Admitted{
		FetchId: p.req.ID, EffectiveRequest: p.effective(), ClampedFields: p.clamped,
		ExpireTime: timestamppb.New(end), StartTime: timestamppb.New(start),
	}}
	all.event.Admitted = &all.admitted
	all.response.Event = &all.event
	return &all.response
}

// FetchUnary implements fetchd.v1.FetchService.FetchUnary.
func (s *service) FetchUnary(ctx context.Context, in *pb.FetchUnaryRequest) (*pb.FetchUnaryResponse, error) {
	request := in.GetRequest()
	in.Request = nil // gRPC and the interceptors keep in until the call ends, and 10,000 calls may wait
	return s.fetchUnary(ctx, request, "request.", gRPCMode.copies, func(_ *pb.FetchUnaryResponse, t *ticket) error {
		handOver(ctx, t)
		return nil
	})
}

// fetchUnary runs a fetch. deliver receives the answer and its ticket, and ensures that the ticket
// is released once the answer has been written.
func (s *service) fetchUnary(ctx context.Context, in *pb.FetchRequest, prefix string, copies int64, deliver func(*pb.FetchUnaryResponse, *ticket) error) (*pb.FetchUnaryResponse, error) {
	began := time.Now()
	p, err := s.prepare(ctx, in, prefix, unaryMode)
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
	if p.events == fetch.All || p.events == fetch.Attempts {
		// The answer holds finished attempts only. With all events it could hold the headers of
		// 220 hops, which exceeds the client's limit for a message.
		p.req.Events = fetch.Ends
	}
	var attempts []*pb.AttemptFinished
	kept := keptAttempts{memory: t.memory}
	traced, parent := s.observe.Start(ctx, began)
	p.req.TraceParent = parent
	out := s.runUntil(traced, reserved(ctx), p.req, func(e fetch.Event) error {
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
	resp := &pb.FetchUnaryResponse{FetchId: p.req.ID, ClampedFields: p.clamped, Attempts: attempts, Outcome: outcome(out, p.req, last),
		EffectiveRequest: p.effective()} // made here, so that waiting calls do not hold it
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

// maxAttemptsBytes limits the attempts in a unary answer. Together with the outcome, whose body
// has at most 1 MiB, they stay below the 4 MiB that clients accept by default. An origin controls
// the length of its headers and redirects, but must not prevent the outcome from arriving.
const maxAttemptsBytes = 2 << 20

// keptAttempts limits the attempts in a unary answer and charges their memory. If an attempt
// does not fit, headers and hops are dropped, starting with the oldest attempt.
type keptAttempts struct {
	memory *budget.Lease
	sizes  []int // the charge of each attempt; 0 means it was shortened
	total  int
}

// add charges the last of attempts.
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

// attemptBytes returns the memory of an attempt, as a message and encoded.
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

// hopsKey is the key of [fetch.HopsHeader] in the metadata of a call.
var hopsKey = strings.ToLower(fetch.HopsHeader)

// maxHops limits the fetchd services through which a fetch may pass. A chain of two services may
// be intended; a longer one is a loop.
const maxHops = 3

// hopsTo returns the number of fetches that led to this call, or an error if there are too many.
// A caller that sends the header itself only lowers its own limit.
func hopsTo(ctx context.Context) (int, error) {
	hops := 0
	for _, sent := range metadata.ValueFromIncomingContext(ctx, hopsKey) {
		n, err := strconv.Atoi(sent)
		if err != nil || n < 0 || n >= maxHops {
			return 0, badrequest.WithDetails(status.Newf(codes.FailedPrecondition, "this call passed through %d fetches: a fetchd service must not fetch from itself", maxHops),
				&errdetails.ErrorInfo{Reason: "FETCH_CIRCLE", Domain: errorDomain})
		}
		hops = max(hops, n)
	}
	return hops, nil
}

// runUntil runs a fetch that ends before end, so that the caller receives an outcome and not just
// DEADLINE_EXCEEDED. If end is zero, total_timeout alone limits the fetch.
func (s *service) runUntil(ctx context.Context, end time.Time, r *fetch.Request, sink fetch.Sink) *fetch.Outcome {
	if !end.IsZero() {
		left := time.Until(end)
		if left <= 0 {
			return s.client.Refuse(ctx, r, classify.Deadline, "the deadline of the call leaves no time for the fetch: set a later deadline")
		}
		if left < r.TotalTimeout {
			r.TotalTimeout, r.SetBy.TotalTimeout = left, fetch.ByCall
		}
	}
	return s.client.Fetch(ctx, r, sink)
}

// reserved returns the time by which a fetch must end, so that its outcome reaches the caller
// before the deadline of the call (spec §9). It is zero if the call has no deadline.
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

// reserve returns a context that ends at the time that [reserved] returns.
func reserve(ctx context.Context) (context.Context, context.CancelFunc) {
	if end := reserved(ctx); !end.IsZero() {
		return context.WithDeadline(ctx, end)
	}
	return context.WithCancel(ctx)
}
