package server

import (
	"container/list"
	"context"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// pushback is when a caller that was refused may come again.
const pushback = 250 * time.Millisecond

// admission counts the fetches in flight. A call over a limit is refused and not
// made to wait: a queue would hide the overload from its caller, who can go to
// another replica. A task of FetchMany waits, for its stream is a queue already.
type admission struct {
	mu       sync.Mutex
	limits   *Limits
	inFlight int
	callers  map[string]int
	waiting  map[string]*list.List // of *place, by caller, in the order they came
	came     uint64                // places so far
	refused  func(reason string)   // counts
	reason   string                // of a refusal
	things   string                // that are counted
}

// place is that of a task, in the queue or among the fetches under way.
type place struct {
	admission *admission
	caller    string
	number    uint64        // in the order in which they came
	at        *list.Element // in its caller's queue; nil: admitted
	admitted  chan struct{}
}

func newAdmission(limits *Limits, reason, things string, refused func(reason string)) *admission {
	return &admission{limits: limits, callers: make(map[string]int), waiting: make(map[string]*list.List), refused: refused, reason: reason, things: things}
}

// set changes the limits, and admits those that may come in now.
func (a *admission) set(limits *Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limits
	a.handOver()
}

// enter admits a fetch and returns its caller, to [admission.leave] with at its end, or
// RESOURCE_EXHAUSTED. It must come before the first message of a stream: stock
// clients try again what was refused before that, and only that.
func (a *admission) enter(ctx context.Context) (caller string, err error) {
	caller = callerOf(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.inFlight >= a.limits.MaxFetches:
		return "", a.refuse(ctx, a.reason, "the server has as many "+a.things+" under way as it may")
	case a.callers[caller] >= a.limits.of(caller):
		return "", a.refuse(ctx, a.reason+"_OF_CALLER", "this caller has as many "+a.things+" under way as one may")
	}
	a.count(caller)
	return caller, nil
}

// queue takes a place in the queue. Its end must be told by leave.
func (a *admission) queue(ctx context.Context) *place {
	p := &place{admission: a, caller: callerOf(ctx), admitted: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inFlight < a.limits.MaxFetches && a.callers[p.caller] < a.limits.of(p.caller) { // nobody who waits could come in
		a.count(p.caller)
		close(p.admitted)
		return p
	}
	a.came++
	p.number = a.came
	if a.waiting[p.caller] == nil {
		a.waiting[p.caller] = list.New()
	}
	p.at = a.waiting[p.caller].PushBack(p)
	return p
}

// came tells whether the fetch is admitted.
func (p *place) came() bool {
	select {
	case <-p.admitted:
		return true
	default:
		return false
	}
}

// wait returns once the fetch is admitted, or the error of ctx.
func (p *place) wait(ctx context.Context) error {
	if p.came() {
		return nil
	}
	select {
	case <-p.admitted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave gives the place up, wherever it is.
func (p *place) leave() {
	p.admission.mu.Lock()
	defer p.admission.mu.Unlock()
	if p.at != nil {
		p.admission.remove(p)
		return
	}
	p.admission.free(p.caller)
}

// handOver admits those that wait, as far as there is room for them: of the first of
// each caller that has room the one that came first. It looks at callers and not at
// places, of which one caller may have thousands.
func (a *admission) handOver() {
	for a.inFlight < a.limits.MaxFetches {
		var next *place
		for caller, queue := range a.waiting {
			if p, ok := queue.Front().Value.(*place); ok && a.callers[caller] < a.limits.of(caller) && (next == nil || p.number < next.number) {
				next = p
			}
		}
		if next == nil {
			return
		}
		a.remove(next)
		next.at = nil
		a.count(next.caller)
		close(next.admitted)
	}
}

func (a *admission) remove(p *place) {
	queue := a.waiting[p.caller]
	if queue.Remove(p.at); queue.Len() == 0 {
		delete(a.waiting, p.caller)
	}
}

func (a *admission) count(caller string) {
	a.inFlight++
	a.callers[caller]++
}

func (a *admission) leave(caller string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free(caller)
}

func (a *admission) free(caller string) {
	a.inFlight--
	if a.callers[caller]--; a.callers[caller] == 0 {
		delete(a.callers, caller)
	}
	a.handOver()
}

// load is how many fetches are under way, and how many may be.
func (a *admission) load() (inFlight, limit int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inFlight, a.limits.MaxFetches
}

func (a *admission) refuse(ctx context.Context, reason, text string) error {
	a.refused(reason)
	return refuse(ctx, reason, text)
}

// refuse says no, why, and when to come again: as a detail for people and
// programs, and as the metadata that gRPC's own retry obeys (gRFC A6).
func refuse(ctx context.Context, reason, text string) error {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(pushback.Milliseconds(), 10))) // fails outside a call only
	return withDetails(status.Newf(codes.ResourceExhausted, "%s: try again in %s, or ask another replica", text, pushback),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(pushback)},
		&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain})
}
