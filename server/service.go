package server

import (
	"context"
	"errors"
	"fmt"
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

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/workers"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/internal/policies"
	"fetchd/internal/rejections"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/calls"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
	"fetchd/server/observe"
	"fetchd/stores"
)

// service implements the methods of the contract.
type service struct {
	pb.UnimplementedFetchServiceServer
	client *fetch.Client
	*calls.Shared
	limits     atomic.Pointer[conversion.Limits]
	heartbeats *wire.Delays[*eventStream]
	providers  atomic.Pointer[map[string]AuthProvider]
	stores     atomic.Pointer[stores.Set]
	policies   atomic.Pointer[policies.Set]
	encoded    conversion.Encoded
	denials    *rejections.Sums[deniedTo, struct{}] // of policies that only report
	observe    *observe.Observer
	workers    workers.Pool    // for tasks of FetchMany
	ending     context.Context // done when the time of the drain is nearly over
}

// prepare validates and converts a request. The fields that an error names start with prefix.
// mode is that of the method, and policy that of the caller.
func (s *service) prepare(ctx context.Context, policy callerPolicy, in *pb.FetchRequest, prefix string, mode conversion.Mode) (conversion.Prepared, error) {
	known := conversion.Configured{Providers: *s.providers.Load(), Stores: s.stores.Load()}
	p, err := conversion.Convert(in, prefix, mode, limitsFor(s.limits.Load(), policy.Policy), &known)
	if err != nil {
		return p, err
	}
	if err := mayUse(ctx, &known, in, prefix); err != nil {
		return p, err
	}
	if err := s.applyPolicy(ctx, policy, in, &p, prefix); err != nil {
		return p, err
	}
	if p.Request.Hops, err = hopsTo(ctx); err != nil {
		return p, err
	}
	p.Request.Caller = admission.Caller(ctx)
	return p, nil
}

// Fetch implements fetchd.v1.FetchService.Fetch.
func (s *service) Fetch(in *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.FetchResponse]) error {
	return s.fetch(stream.Context(), in, func(o *wire.Outgoing) error { return stream.SendMsg(o) }, gRPCMode)
}

// gRPCMode is for gRPC. Without waiting for the reader it sends as much as gRPC accepts: the first
// 64 KiB. Most fetches never send more, so 10,000 waiting fetches do not need a second goroutine each.
var gRPCMode = calls.Mode{Unblocked: 48 << 10, Copies: 1, Encoded: true}

// fetch runs a fetch and sends its events.
func (s *service) fetch(caller context.Context, in *pb.FetchRequest, send func(*wire.Outgoing) error, mode calls.Mode) error {
	began := time.Now()
	p, t, err := s.admit(caller, in, conversion.FetchMode)
	if err != nil {
		return err
	}
	answered := false // then the outcome has the ticket
	defer t.ReleaseUnless(&answered)
	if mode.ID != nil {
		*mode.ID = p.Request.ID
	}
	p.Request.InlineCopies = int(mode.Copies)
	end := reserved(caller)
	events := newEventStream(caller, send, mode, t, s.Stall)
	defer events.close()
	events.startHeartbeats(s.heartbeats)
	if p.Request.Events != fetch.OutcomeOnly {
		events.convert.Attempts = true
		var encoded *conversion.Encoded
		if mode.Encoded {
			encoded = &s.encoded
		}
		if err := events.admitted(p.Admitted(events.start, end, encoded)); errors.Is(err, fetch.ErrOutOfMemory) {
			return s.Fetches.NoMemory(caller, "answers")
		} else if err != nil {
			return err
		}
	}
	req := p.Request // so that the rest of p can be collected while the fetch runs
	out := s.runUntil(s.observe.Start(caller, began), end, req, events.sink)
	if err := events.failed(); err != nil {
		return err
	}
	err = events.finish(conversion.OutcomeEvent(out, req, events.convert.Last))
	answered = err == nil
	return err
}

// admit prepares a request and admits its fetch, whose memory is charged to the ticket. It empties in.
func (s *service) admit(ctx context.Context, in *pb.FetchRequest, mode conversion.Mode) (conversion.Prepared, *admission.Ticket, error) {
	policy := s.policyOf(ctx)
	p, err := s.prepare(ctx, policy, in, "", mode)
	if err != nil {
		return p, nil, err
	}
	cost := charges(in)
	t, err := s.Fetches.Enter(ctx, s.shareOf(policy.Policy), cost[:]...)
	if err != nil {
		return p, nil, err
	}
	p.Request.Memory = t.Memory
	reportQuota(&p, t)
	in.Reset() // gRPC and the interceptors keep it until the call ends, and 10,000 calls may wait
	return p, t, nil
}

// charges returns the memory that a fetch is charged at its start.
func charges(in *pb.FetchRequest) [2]admission.Charge {
	return [2]admission.Charge{{Kind: budget.Fetch, Bytes: admission.FetchBytes}, {Kind: budget.Request, Bytes: int64(wire.SizeOf(in)) + admission.HeaderBytes*int64(len(in.GetHeaders()))}}
}

// Explain implements fetchd.v1.FetchService.Explain.
func (*service) Explain(_ context.Context, in *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	return conversion.Explain(in)
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
				&errdetails.ErrorInfo{Reason: "FETCH_LOOP", Domain: admission.ErrorDomain})
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
	return s.run(ctx, r, sink)
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

// mayUse returns PERMISSION_DENIED if the caller may not use what a valid request names.
func mayUse(ctx context.Context, known *conversion.Configured, in *pb.FetchRequest, prefix string) error {
	if name := in.GetAuthProvider(); name != "" && !permits(ctx, known.Providers[name].Callers) {
		v := badrequest.Violations{Prefix: prefix}
		v.AddReason("auth_provider", conversion.ProviderCaller, "is %.60q, which is for other callers: give the name of another provider", name)
		return v.As(codes.PermissionDenied, fmt.Sprintf("this caller may not use the auth provider %.60q", name))
	}
	bodies, records := in.GetBodyPolicy().GetStore().GetStore(), in.GetRecordPolicy().GetStore()
	_, ofBodies := known.Stores.Get(bodies)
	_, ofRecords := known.Stores.Archive(records)
	for name, callers := range map[string][]string{bodies: ofBodies, records: ofRecords} {
		if !permits(ctx, callers) {
			return status.Errorf(codes.PermissionDenied, "this caller may not use the store %q", name)
		}
	}
	return nil
}

// permits reports whether the caller of a call is among callers. An empty list permits everyone.
func permits(ctx context.Context, callers []string) bool {
	return len(callers) == 0 || slices.Contains(callers, admission.Caller(ctx))
}

// FetchUnary implements fetchd.v1.FetchService.FetchUnary.
func (s *service) FetchUnary(ctx context.Context, in *pb.FetchRequest) (*pb.FetchUnaryResponse, error) {
	return s.fetchUnary(ctx, in, gRPCMode, func(_ *pb.FetchUnaryResponse, size int, t *admission.Ticket) error {
		wire.HandOver(ctx, t, size)
		return nil
	})
}

// fetchUnary runs a fetch. deliver receives the answer, its size and its ticket, and ensures
// that the ticket is released once the answer has been written.
func (s *service) fetchUnary(ctx context.Context, in *pb.FetchRequest, mode calls.Mode, deliver func(*pb.FetchUnaryResponse, int, *admission.Ticket) error) (*pb.FetchUnaryResponse, error) {
	began := time.Now()
	p, t, err := s.admit(ctx, in, conversion.UnaryMode)
	if err != nil {
		return nil, err
	}
	answered := false
	defer t.ReleaseUnless(&answered)
	p.Request.LargeStack, p.Request.InlineCopies = true, int(mode.Copies)
	if p.Events == fetch.All || p.Events == fetch.Attempts {
		// The answer holds finished attempts only. With all events it could hold the headers of
		// 220 hops, which exceeds the client's limit for a message.
		p.Request.Events = fetch.Ends
	}
	kept := newKeptAttempts(t.Memory)
	out := s.runUntil(s.observe.Start(ctx, began), reserved(ctx), p.Request, kept.sink)
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	resp := &kept.response
	resp.ClampedFields, resp.Attempts, resp.Outcome = p.Clamped, kept.attempts, conversion.Outcome(out, p.Request, kept.last())
	if !mode.Encoded || !s.encoded.Add(resp, &p) {
		resp.EffectiveRequest = p.Effective() // made here, so that waiting calls do not hold it
	}
	size, err := wire.BecomeAnswer(ctx, t, resp, wire.SizeOf(resp), mode.Copies, func() {
		for i := range kept.attempts {
			kept.attempts[i] = conversion.Shorten(kept.attempts[i])
		}
		conversion.ShortenOutcome(resp.Outcome)
	})
	if err != nil {
		return nil, err
	}
	answered = true
	return resp, deliver(resp, size, t)
}

// maxAttemptsBytes limits the attempts in a unary answer. Together with the outcome, whose body
// has at most 1 MiB, they stay below the 4 MiB that clients accept by default. An origin controls
// the length of its headers and redirects, but must not prevent the outcome from arriving.
const maxAttemptsBytes = 2 << 20

// keptAttempts limits the attempts in a unary answer and charges their memory. If an attempt
// does not fit, headers and hops are dropped, starting with the oldest attempt.
type keptAttempts struct {
	memory   *budget.Lease
	attempts []*pb.AttemptFinished
	sizes    []int // the charge of each attempt; 0 means it was shortened
	total    int

	response pb.FetchUnaryResponse // here to make both in one allocation
	first    [1]*pb.AttemptFinished
	size     [1]int
}

func newKeptAttempts(memory *budget.Lease) *keptAttempts {
	k := &keptAttempts{memory: memory}
	k.attempts, k.sizes = k.first[:0], k.size[:0]
	return k
}

// sink is the [fetch.Sink] of the fetch.
func (k *keptAttempts) sink(e fetch.Event) error {
	if finished, ok := e.(fetch.AttemptFinished); ok {
		k.add(conversion.Attempt(&finished))
	}
	return nil
}

// last returns the last attempt, or nil if it was shortened or there is none.
func (k *keptAttempts) last() *pb.AttemptFinished {
	n := len(k.attempts)
	if n == 0 || k.sizes[n-1] == 0 {
		return nil
	}
	return k.attempts[n-1]
}

// add charges an attempt.
func (k *keptAttempts) add(attempt *pb.AttemptFinished) {
	last, size := len(k.attempts), attemptBytes(attempt)
	for i := 0; k.total+size > maxAttemptsBytes && i < last; i++ {
		k.shorten(i)
	}
	granted := k.memory.Grow(budget.Head, int64(size))
	for i := 0; !granted && i < last; i++ {
		k.shorten(i)
		granted = k.memory.Grow(budget.Head, int64(size))
	}
	if !granted {
		attempt, size = conversion.Shorten(attempt), 0
	}
	k.attempts, k.sizes, k.total = append(k.attempts, attempt), append(k.sizes, size), k.total+size
}

func (k *keptAttempts) shorten(i int) {
	if k.sizes[i] > 0 {
		k.attempts[i] = conversion.Shorten(k.attempts[i])
		k.memory.Shrink(budget.Head, int64(k.sizes[i]))
		k.total, k.sizes[i] = k.total-k.sizes[i], 0
	}
}

// attemptBytes returns the memory of an attempt, as a message and encoded.
func attemptBytes(a *pb.AttemptFinished) int {
	const line, hop = 128, 512 // structs of the message
	return 2*wire.SizeOf(a) + line*len(a.GetResponse().GetHeaders()) + hop*len(a.Hops)
}
