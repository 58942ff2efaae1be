// Package admission decides which calls may run. It names their callers, gives them slots and memory,
// refuses what exceeds a limit, and ends the calls of revoked callers.
package admission

import (
	"container/list"
	"context"
	"maps"
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

// Slots counts the fetches in flight and charges their memory. A call over a limit
// is refused at once: a queue would hide the overload from the client, which can try
// another replica. A task of FetchMany waits, because its stream is a queue already.
// Callers that wait take turns; see [waiter].
type Slots struct {
	Budget  *budget.Budget
	Refused Refusals
	Denied  func(policy, quota string) // called for each call over a quota; it must not wait. Nil: none
	Shares  bool                       // what enters has the share of its caller, and not just a slot
	things  string                     // the name of what it counts, for messages

	reason, callerReason string // of refusals over the limit of all callers, and of one

	mu       sync.Mutex
	limits   *Limits
	inFlight int
	callers  map[string]int
	waiting  map[string]*waiter // for a slot, by caller
	paced    paced              // callers that wait for a token instead
	claims   int                // waiters without tasks
	dropped  time.Time          // when claims were last looked at
	arrivals uint64             // number of waiters so far
	admitted uint64             // number of fetches admitted so far
	last     string             // the caller that was admitted last
	buckets  buckets
	passed   counts      // fetches in flight that a policy in mode report would have refused, by caller
	wake     *time.Timer // looks at tasks again that wait for the end of a claim, or for a token; nil: not running
	wakeAt   time.Time
}

// Limits limits the fetches in flight.
type Limits struct {
	Fetches, PerCaller int
	OfCallers          map[string]int // replaces PerCaller for these callers
}

// of returns how many fetches a caller may have in flight.
func (l *Limits) of(caller string) int {
	if n, own := l.OfCallers[caller]; own {
		return n
	}
	return l.PerCaller
}

// waiter is a caller that waits for a slot: with tasks of FetchMany, or with a claim, because a
// call of it was refused while it had no slot. The slot that it claims is kept for its next call.
// Otherwise a caller that repeats its calls more often would take every slot that becomes free.
//
// Waiters take turns. The first is the one whose last fetch was admitted longest ago. A new
// waiter comes before the caller that was admitted last, and after all others.
type waiter struct {
	caller string
	share  *Share    // of the task that arrived last
	ahead  bool      // a call has taken a token before its first task
	tasks  list.List // of *place, in order of arrival
	until  time.Time // end of the claim; zero: none
	token  time.Time // when it has one, while it waits for a token
	at     int       // its index in paced
	turn   uint64    // of two waiters, the lower one is first
	number uint64    // decides between equal turns
}

// Place is a task's position, in the queue or among the fetches in flight.
type Place struct {
	ticket   *Ticket
	at       *list.Element // in its caller's queue; nil: admitted
	Admitted chan struct{}
}

const (
	// FetchBytes is the charge of each fetch in flight, in addition to its call: stacks, a
	// connection to an origin or a chunk of the body (decision 17).
	FetchBytes = 40 << 10
	// HeaderBytes is the memory of a request header without its text.
	HeaderBytes = 96
	// ErrorDomain is the domain of every google.rpc.ErrorInfo of this service.
	ErrorDomain = "fetchd.v1"
	// ReasonMemory is the reason of refusals for want of memory.
	ReasonMemory = "MEMORY"
	// minPushback is the shortest time after which a refused caller should retry.
	minPushback = 250 * time.Millisecond
	// claimTime is how long a slot is kept for a refused call to be repeated. It is longer than the
	// time that the refusal advises, which is a second over HTTP.
	claimTime = 1500 * time.Millisecond
	// maxClaims limits the claims, because anyone may make one.
	maxClaims = 64
)

// New returns slots. things is the name of what takes them. reason is that of refusals over the limit of all callers,
// callerReason over the limit of one.
func New(b *budget.Budget, limits *Limits, reason, callerReason, things string, refused Refusals) *Slots {
	return &Slots{Budget: b, limits: limits, callers: make(map[string]int), waiting: make(map[string]*waiter), Refused: refused, reason: reason, callerReason: callerReason, things: things}
}

// Set changes the limits, and admits waiting tasks that they allow.
func (a *Slots) Set(limits *Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limits
	a.admitLocked()
}

// Enter admits a fetch of a caller with a share, and charges it that many bytes of each kind. The error is
// RESOURCE_EXHAUSTED. It must be returned before the first message of a stream, because
// standard gRPC clients retry only then.
func (a *Slots) Enter(ctx context.Context, s *Share, charges ...Charge) (*Ticket, error) {
	t := a.NewTicket(Caller(ctx), s, nil)
	if err := a.count(ctx, t); err != nil {
		t.Memory.Close()
		return nil, err
	}
	if !t.Grow(charges) {
		over := t.overMemory(charges)
		if s != nil && s.PerSecond > 0 && !t.passed {
			a.giveBack(t)
		}
		if t.Release(); over {
			return nil, a.overQuota(ctx, s, QuotaMemory, 0)
		}
		return nil, a.NoMemory(ctx, "fetches")
	}
	return t, nil
}

// NoMemory returns the error of a call without memory.
func (a *Slots) NoMemory(ctx context.Context, things string) error {
	return a.Refused.Refuse(ctx, ReasonMemory, "the memory for "+things+" is used up")
}

// NoMemoryOf returns the error of a call that was refused n bytes, which names the share of its caller if that is used up.
func (a *Slots) NoMemoryOf(ctx context.Context, s *Share, memory *budget.Lease, n int64) error {
	if s != nil && !s.Report && memory.ExceedsLimit(n) {
		return a.overQuota(ctx, s, QuotaMemory, 0)
	}
	return a.NoMemory(ctx, "calls")
}

// NoAnswer returns the error of a call whose fetch has run, and for whose answer there is no memory. Clients
// do not repeat such a call by themselves: the request may have taken effect.
func (a *Slots) NoAnswer(ctx context.Context) error {
	a.Refused(Caller(ctx), ReasonMemory)
	st := status.New(codes.Aborted, "the fetch has run, but the memory for its answer is used up: the request may have taken effect")
	return badrequest.WithDetails(st, &errdetails.ErrorInfo{Reason: "ANSWER_LOST", Domain: ErrorDomain})
}

func (a *Slots) count(ctx context.Context, t *Ticket) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	free := a.limits.Fetches - a.inFlight
	quota, wait := a.overLocked(t.caller, t.share, time.Now())
	switch {
	case quota != "" && !t.share.Report:
		return a.overQuota(ctx, t.share, quota, wait)
	case free > 0 && !a.mayLocked(t.caller):
		return a.Refused.Refuse(ctx, a.callerReason, "this caller has as many "+a.things+" in flight as one may")
	case free <= 0 || free <= a.aheadLocked(a.waiting[t.caller]):
		a.claimLocked(t.caller)
		return a.Refused.Refuse(ctx, a.reason, "the server has as many "+a.things+" in flight as it may")
	}
	a.countLocked(t)
	return nil
}

// claimLocked records that a call was refused, if its caller has no slot.
func (a *Slots) claimLocked(caller string) {
	if a.callers[caller] > 0 || a.paced.of[caller] != nil {
		return
	}
	w, now := a.waiting[caller], time.Now()
	if w == nil {
		if a.claims >= maxClaims && now.Sub(a.dropped) > claimTime/10 { // not for each of thousands of calls
			a.dropClaimsLocked(now)
		}
		if a.claims >= maxClaims {
			return
		}
		w = a.addLocked(caller)
		a.claims++
	}
	if w.tasks.Len() == 0 {
		w.until = now.Add(claimTime)
	}
}

// dropClaimsLocked removes the claims that have ended.
func (a *Slots) dropClaimsLocked(now time.Time) {
	a.dropped = now
	for caller, w := range a.waiting {
		if w.tasks.Len() == 0 && !w.until.After(now) {
			a.claims--
			delete(a.waiting, caller)
		}
	}
}

func (a *Slots) addLocked(caller string) *waiter {
	a.arrivals++
	w := &waiter{caller: caller, number: a.arrivals, turn: a.admitted}
	if caller != a.last && a.admitted > 0 {
		w.turn--
	}
	a.waiting[caller] = w
	return w
}

// aheadLocked returns how many free slots are kept for waiters that come before w, which is nil for
// a caller that does not wait. It is at most an eighth of the slots, or one.
func (a *Slots) aheadLocked(w *waiter) int {
	if len(a.waiting) == 0 {
		return 0
	}
	if a.claims > 0 {
		a.dropClaimsLocked(time.Now())
	}
	ahead := 0
	for caller, other := range a.waiting {
		if other != w && a.beforeLocked(other, w) && a.mayLocked(caller) && !a.hasAllLocked(other) {
			ahead++
		}
	}
	return min(ahead, max(a.limits.Fetches/reservedPart, 1))
}

// beforeLocked reports whether the waiter w comes before another one, or before a new one if other
// is nil.
func (a *Slots) beforeLocked(w, other *waiter) bool {
	if other == nil {
		return w.turn < a.admitted || a.admitted == 0
	}
	return w.turn < other.turn || w.turn == other.turn && w.number < other.number
}

// Queue adds a task that has its memory to the queue. [Place.Leave] removes it from the
// queue. Once it is admitted, its ticket releases the slot.
func (a *Slots) Queue(t *Ticket) *Place {
	p := &t.place
	p.ticket = t
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.share == nil && len(a.waiting) == 0 && a.inFlight < a.limits.Fetches && a.mayLocked(t.caller) {
		a.countLocked(t)
		p.Admitted = closed
		return p
	}
	p.Admitted = make(chan struct{})
	w := a.waiterLocked(t.caller)
	switch {
	case w == nil:
		w = a.addLocked(t.caller)
	case w.tasks.Len() == 0: // the task replaces the claim
		a.claims--
	}
	w.until = time.Time{}
	w.setShareLocked(a, t.share)
	p.at = w.tasks.PushBack(p)
	a.admitLocked()
	return p
}

// closed is the channel of places that do not wait.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// IsAdmitted reports whether the fetch is admitted.
func (p *Place) IsAdmitted() bool {
	select {
	case <-p.Admitted:
		return true
	default:
		return false
	}
}

// Leave removes p from the queue. The ticket then has no slot, but still its memory.
func (p *Place) Leave() {
	a := p.ticket.Slots
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.at != nil {
		w := a.waiterLocked(p.ticket.caller)
		if w.tasks.Remove(p.at); w.tasks.Len() == 0 {
			delete(a.waiting, w.caller)
			a.paced.remove(w)
		}
		p.at = nil
		p.ticket.left = true
		a.admitLocked() // others may have waited for its turn
	}
}

// admitLocked admits waiting tasks while there are free slots. It scans callers and not places, of
// which one caller may have thousands.
func (a *Slots) admitLocked() {
	for a.endPaceLocked(); len(a.waiting) > a.claims && a.inFlight < a.limits.Fetches; {
		var next *waiter
		for caller, w := range a.waiting {
			if w.tasks.Len() > 0 && a.mayLocked(caller) && !a.hasAllLocked(w) && (next == nil || a.beforeLocked(w, next)) {
				next = w
			}
		}
		if next == nil {
			return
		}
		if a.paceLocked(next) {
			continue
		}
		if a.limits.Fetches-a.inFlight <= a.aheadLocked(next) { // only claims are ahead
			a.wakeLocked(a.untilClaimLocked())
			return
		}
		p, _ := next.tasks.Remove(next.tasks.Front()).(*Place)
		p.at, p.ticket.share, next.ahead = nil, next.share, false
		a.countLocked(p.ticket)
		close(p.Admitted)
	}
}

// untilClaimLocked returns the time until the first claim ends.
func (a *Slots) untilClaimLocked() time.Duration {
	now, first := time.Now(), claimTime
	for _, w := range a.waiting {
		if w.tasks.Len() == 0 {
			first = min(first, w.until.Sub(now))
		}
	}
	return first
}

// wakeLocked looks at the waiting tasks again after a time, or earlier.
func (a *Slots) wakeLocked(after time.Duration) {
	at := time.Now().Add(after)
	if a.wake != nil {
		if !at.Before(a.wakeAt) || !a.wake.Stop() { // or it is about to look
			return
		}
	}
	a.wakeAt = at
	a.wake = time.AfterFunc(after, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.wake = nil
		a.admitLocked()
	})
}

// mayLocked reports whether a caller may have one of the free slots.
func (a *Slots) mayLocked(caller string) bool {
	own, limit := a.callers[caller], a.limits.Fetches
	return own < a.limits.of(caller) && limit-a.inFlight > reservedSlots(limit, own)
}

// reservedPart is the divisor of the slots that gives the part which is reserved for callers that
// have less than it.
const reservedPart = 8

// reservedSlots returns how many free slots a caller must leave that has own of limit slots. So the first
// caller leaves the second an eighth, and several callers with many slots leave some to a new one.
// With fewer than eight slots nothing is reserved, and callers take turns only.
func reservedSlots(limit, own int) int {
	const last, few = 64, 512
	switch part := limit / reservedPart; {
	case own < max(limit/few, 1):
		return 0
	case own < part:
		return limit / last
	default:
		return part + limit/last
	}
}

// countLocked records that a fetch is admitted. That ends a claim of its caller.
func (a *Slots) countLocked(t *Ticket) {
	caller := t.caller
	if t.share != nil {
		a.takeLocked(t)
	}
	a.inFlight++
	a.callers[caller]++
	a.admitted++
	a.last = caller
	w := a.waiterLocked(caller)
	switch {
	case w == nil:
	case w.tasks.Len() > 0:
		w.turn = a.admitted
	default:
		if !w.until.IsZero() { // else this was its last task
			a.claims--
		}
		delete(a.waiting, caller)
	}
}

func (a *Slots) freeLocked(caller string) {
	a.inFlight--
	if a.callers[caller]--; a.callers[caller] == 0 {
		delete(a.callers, caller)
	}
	a.admitLocked()
}

// Loads returns how many fetches of each caller are in flight.
func (a *Slots) Loads() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.callers)
}

// Load returns how many fetches are in flight, and how many may be.
func (a *Slots) Load() (inFlight, limit int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inFlight, a.limits.Fetches
}

// Ticket is a fetch's slot among the fetches in flight, and its memory. It is released
// when the fetch's outcome is no longer unread.
type Ticket struct {
	Slots    *Slots
	caller   string
	share    *Share
	over     string // see [Ticket.Over]
	passed   bool   // a policy in mode report would have refused it: it has no token, and is not counted for its share
	left     bool   // it has left the queue, and has no slot
	Memory   *budget.Lease
	lease    budget.Lease // is Memory
	place    Place        // of a task
	released func()       // called once at the end; may be nil
	done     bool         // guarded by Slots.mu
}

// NewTicket returns the ticket of a task of a caller with a share, which has memory but no slot yet. released is called
// when it is released; it may be nil.
func (a *Slots) NewTicket(caller string, s *Share, released func()) *Ticket {
	t := &Ticket{Slots: a, caller: caller, share: s, released: released}
	a.Budget.Open(&t.lease, caller)
	t.Memory = &t.lease
	switch {
	case !a.Shares:
	case s != nil && !s.Report:
		t.Memory.LimitCaller(s.Memory)
	default:
		t.Memory.LimitCaller(0)
	}
	return t
}

// Release releases the slot and the memory. It may be called again.
func (t *Ticket) Release() {
	if t.finish() {
		t.Memory.Close()
		if t.released != nil {
			t.released()
		}
	}
}

// ReleaseUnless releases the ticket unless it has been passed on.
func (t *Ticket) ReleaseUnless(passed *bool) {
	if !*passed {
		t.Release()
	}
}

// finish releases the slot, and reports whether it was still held.
func (t *Ticket) finish() bool {
	t.Slots.mu.Lock()
	defer t.Slots.mu.Unlock()
	if t.done {
		return false
	}
	t.done = true
	if t.passed {
		t.Slots.passed.add(t.caller, -1)
	}
	if !t.left {
		t.Slots.freeLocked(t.caller)
	}
	return true
}

// Over returns the quota that would have refused an admitted fetch, if the policy of its caller only reports; "" if
// there is none.
func (t *Ticket) Over() string { return t.over }

// overMemory reports whether the caller's own quota is what refuses charges.
func (t *Ticket) overMemory(charges []Charge) bool {
	if t.share == nil || t.share.Memory == 0 {
		return false
	}
	n := t.Memory.OfCaller()
	for _, c := range charges {
		n += c.Bytes
	}
	return n > t.share.Memory
}

// Grow charges all of charges, or none of them.
func (t *Ticket) Grow(charges []Charge) bool {
	if t.share != nil && t.share.Report && t.overMemory(charges) {
		t.over = QuotaMemory
	}
	for i, c := range charges {
		if !t.Memory.Grow(c.Kind, c.Bytes) {
			for _, granted := range charges[:i] {
				t.Memory.Shrink(granted.Kind, granted.Bytes)
			}
			return false
		}
	}
	return true
}

// Charge is a number of bytes of one kind.
type Charge struct {
	Kind  budget.Kind
	Bytes int64
}

// Refusals counts refused calls, by caller and reason. Its methods return their errors.
type Refusals func(caller, reason string)

// Refuse returns RESOURCE_EXHAUSTED with the reason and with the time after which to retry. It sets
// the metadata that gRPC's own retries use (gRFC A6).
func (count Refusals) Refuse(ctx context.Context, reason, text string) error {
	return count.refuse(ctx, minPushback+rand.N(minPushback), text, &errdetails.ErrorInfo{Reason: reason, Domain: ErrorDomain})
}

func (count Refusals) refuse(ctx context.Context, wait time.Duration, text string, info *errdetails.ErrorInfo) error {
	err := count.refusal(Caller(ctx), wait, text, info)
	_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(wait.Milliseconds(), 10))) // fails only outside a call
	return err
}

// Refusal returns RESOURCE_EXHAUSTED with the time that the caller should wait. It is random, so that
// callers that were refused together do not return together.
func (count Refusals) Refusal(caller, reason, text string) error {
	return count.refusal(caller, minPushback+rand.N(minPushback), text, &errdetails.ErrorInfo{Reason: reason, Domain: ErrorDomain})
}

func (count Refusals) refusal(caller string, wait time.Duration, text string, info *errdetails.ErrorInfo) error {
	count(caller, info.GetReason())
	return badrequest.WithDetails(status.Newf(codes.ResourceExhausted, "%s: retry in %s, or call another replica", text, wait.Round(time.Millisecond)),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}, info)
}
