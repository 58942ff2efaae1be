package server

import (
	"container/list"
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
)

// admission counts the fetches in flight and charges their memory. A call over a limit
// is refused at once: a queue would hide the overload from the client, which can try
// another replica. A task of FetchMany waits, because its stream is a queue already.
type admission struct {
	budget  *budget.Budget
	refused refusals
	reason  string // the reason of its refusals
	things  string // the name of what it counts, for messages

	mu       sync.Mutex
	limits   *Limits
	inFlight int
	callers  map[string]int
	waiting  map[string]*list.List // of *place, by caller, in order of arrival
	arrivals uint64                // number of places so far
}

// place is a task's position, in the queue or among the fetches in flight.
type place struct {
	ticket   *ticket
	number   uint64        // in the order of arrival
	at       *list.Element // in its caller's queue; nil: admitted
	admitted chan struct{}
}

func newAdmission(b *budget.Budget, limits *Limits, reason, things string, refused refusals) *admission {
	return &admission{budget: b, limits: limits, callers: make(map[string]int), waiting: make(map[string]*list.List), refused: refused, reason: reason, things: things}
}

// set changes the limits, and admits waiting tasks that they allow.
func (a *admission) set(limits *Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limits
	a.admitLocked()
}

// enter admits a fetch, and charges it that many bytes of each kind. The error is
// RESOURCE_EXHAUSTED. It must be returned before the first message of a stream, because
// standard gRPC clients retry only then.
func (a *admission) enter(ctx context.Context, charges ...charge) (*ticket, error) {
	t := &ticket{admission: a, caller: callerOf(ctx)}
	if err := a.count(ctx, t); err != nil {
		return nil, err
	}
	t.memory = a.budget.Lease(t.caller)
	if !t.grow(charges) {
		t.release()
		return nil, a.noMemory(ctx, "fetches")
	}
	return t, nil
}

// noMemory returns the error of a call without memory.
func (a *admission) noMemory(ctx context.Context, things string) error {
	return a.refused.refuse(ctx, reasonMemory, "the memory for "+things+" is used up")
}

// charge is a number of bytes of one kind.
type charge struct {
	kind  budget.Kind
	bytes int64
}

func (a *admission) count(ctx context.Context, t *ticket) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.inFlight >= a.limits.MaxFetches:
		return a.refused.refuse(ctx, a.reason, "the server has as many "+a.things+" in flight as it may")
	case !a.mayLocked(t.caller):
		return a.refused.refuse(ctx, a.reason+"_OF_CALLER", "this caller has as many "+a.things+" in flight as one may")
	}
	a.countLocked(t.caller)
	return nil
}

// queue adds a task that has its memory to the queue. [place.leave] removes it from the
// queue. Once it is admitted, its ticket releases the slot.
func (a *admission) queue(t *ticket) *place {
	p := &place{ticket: t, admitted: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inFlight < a.limits.MaxFetches && a.mayLocked(t.caller) { // no waiting task could be admitted
		a.countLocked(t.caller)
		close(p.admitted)
		return p
	}
	a.arrivals++
	p.number = a.arrivals
	if a.waiting[t.caller] == nil {
		a.waiting[t.caller] = list.New()
	}
	p.at = a.waiting[t.caller].PushBack(p)
	return p
}

// isAdmitted reports whether the fetch is admitted.
func (p *place) isAdmitted() bool {
	select {
	case <-p.admitted:
		return true
	default:
		return false
	}
}

// leave removes p from the queue. The ticket then has a slot to release.
func (p *place) leave() {
	a := p.ticket.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.at != nil {
		a.removeLocked(p)
		p.at = nil
		a.countLocked(p.ticket.caller) // the ticket will release it
	}
}

// admitLocked admits waiting tasks while there are free slots: of the first tasks of all
// callers that may have one, the oldest. It scans callers and not places, of which one
// caller may have thousands.
func (a *admission) admitLocked() {
	for a.inFlight < a.limits.MaxFetches {
		var next *place
		for caller, queue := range a.waiting {
			if p, ok := queue.Front().Value.(*place); ok && a.mayLocked(caller) && (next == nil || p.number < next.number) {
				next = p
			}
		}
		if next == nil {
			return
		}
		a.removeLocked(next)
		next.at = nil
		a.countLocked(next.ticket.caller)
		close(next.admitted)
	}
}

// mayLocked reports whether a caller may have another slot, if there is one. If there are
// many slots, the last eighth is for callers with few, as in the memory budget. So a few
// large callers leave some to new ones. A single caller may have them all.
func (a *admission) mayLocked(caller string) bool {
	const many, few = 64, 64
	own, limit := a.callers[caller], a.limits.MaxFetches
	if own >= a.limits.maxFetchesOf(caller) {
		return false
	}
	alone := own == a.inFlight
	return alone || limit < many || own < limit/few || a.inFlight < limit-limit/8
}

func (a *admission) removeLocked(p *place) {
	queue := a.waiting[p.ticket.caller]
	if queue.Remove(p.at); queue.Len() == 0 {
		delete(a.waiting, p.ticket.caller)
	}
}

func (a *admission) countLocked(caller string) {
	a.inFlight++
	a.callers[caller]++
}

func (a *admission) freeLocked(caller string) {
	a.inFlight--
	decrement(a.callers, caller)
	a.admitLocked()
}

// load returns how many fetches are in flight, and how many may be.
func (a *admission) load() (inFlight, limit int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inFlight, a.limits.MaxFetches
}

// refusals counts refused calls, by reason. Its method refuse returns their errors.
type refusals func(reason string)

// refuse returns RESOURCE_EXHAUSTED with the reason and with the time after which to retry. It sets
// the metadata that gRPC's own retries use (gRFC A6).
func (count refusals) refuse(ctx context.Context, reason, text string) error {
	count(reason)
	wait := pushback()
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(wait.Milliseconds(), 10))) // fails only outside a call
	return refusal(reason, text, wait)
}

// pushback returns how long a refused caller should wait. It is random, so that callers
// that were refused together do not return together.
func pushback() time.Duration { return minPushback + rand.N(minPushback) }

const minPushback = 250 * time.Millisecond

func refusal(reason, text string, wait time.Duration) error {
	return badrequest.WithDetails(status.Newf(codes.ResourceExhausted, "%s: retry in %s, or call another replica", text, wait.Round(time.Millisecond)),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)},
		&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain})
}
