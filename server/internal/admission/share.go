package admission

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// Share is what the policy of a caller leaves to it. It is for each caller and not for all that have the policy. Zero
// means no limit. A nil *Share has none.
type Share struct {
	Policy  string
	Fetches int   // in flight
	Memory  int64 // bytes
	// PerSecond is the number of fetches that may start in a second, and Burst how many may start at once
	// after a pause. Burst is positive if PerSecond is.
	PerSecond float64
	Burst     int
	// Report says that nothing is refused. [Ticket.Over] names the quota that would have refused a fetch.
	Report bool
}

// The quotas of a share, as errors and the file of policies name them.
const (
	QuotaFetches = "fetches-in-flight"
	QuotaMemory  = "memory"
	QuotaRate    = "fetches-per-second"
)

// ReasonQuota is the reason of refusals for want of a quota of the caller's policy.
const ReasonQuota = "QUOTA"

// maxBuckets limits the callers whose rate is known. The callers beyond share one bucket for each policy. A bucket that is full says
// nothing, so it is forgotten.
const maxBuckets = 16 << 10

// buckets are the tokens that callers have for fetches: PerSecond new ones each second, up to Burst.
type buckets struct {
	of     map[string]*rate.Limiter
	sweepN int       // sweep when there are as many
	swept  time.Time // when it was done last
}

// get returns the bucket of a caller, with the rate of its share now.
func (b *buckets) get(caller string, s *Share, now time.Time) *rate.Limiter {
	one := b.of[caller]
	if one == nil && len(b.of) >= max(b.sweepN, 64) && now.Sub(b.swept) > claimTime/10 { // not for each of thousands of calls
		b.sweep(now)
	}
	if one == nil && len(b.of) >= maxBuckets {
		caller = "\x00" + s.Policy // no caller has this name
		one = b.of[caller]
	}
	if one == nil {
		one = rate.NewLimiter(rate.Limit(s.PerSecond), s.Burst)
		if b.of == nil {
			b.of = make(map[string]*rate.Limiter)
		}
		b.of[caller] = one
	}
	if float64(one.Limit()) != s.PerSecond {
		one.SetLimitAt(now, rate.Limit(s.PerSecond))
	}
	if one.Burst() != s.Burst {
		one.SetBurstAt(now, s.Burst)
	}
	return one
}

func (b *buckets) sweep(now time.Time) {
	for caller, one := range b.of {
		if one.TokensAt(now) >= float64(one.Burst()) {
			delete(b.of, caller)
		}
	}
	b.swept, b.sweepN = now, min(2*len(b.of), maxBuckets)
}

// slack is the part of a token that rounding may take away.
const slack = 1e-6

// untilToken returns when the bucket of a caller has need tokens: 0 if it has them.
func (b *buckets) untilToken(caller string, s *Share, need float64, now time.Time) time.Duration {
	if s == nil || s.PerSecond == 0 {
		return 0
	}
	missing := need - slack - b.get(caller, s, now).TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(min(missing/s.PerSecond, maxWait.Seconds())*float64(time.Second)) + time.Microsecond
}

// maxWait is the longest time that a refusal advises to wait.
const maxWait = time.Hour

// take takes a token of a fetch that is admitted.
func (b *buckets) take(caller string, s *Share, now time.Time) {
	if s.PerSecond > 0 {
		b.get(caller, s, now).ReserveN(now, 1)
	}
}

// overLocked returns the quota over which a caller would be with one more call, and how long it should wait; "" if there
// is none. Tasks of its caller that wait take every token as soon as there is one, and a call cannot wait. So a
// call may take the next one ahead of time, and then the first task comes before another call.
func (a *Slots) overLocked(caller string, s *Share, now time.Time) (quota string, wait time.Duration) {
	if s == nil {
		return "", 0
	}
	if s.Fetches > 0 && a.callers[caller]-a.passed[caller] >= s.Fetches {
		return QuotaFetches, 0
	}
	need := 1.0
	switch w := a.paced.of[caller]; {
	case w == nil:
	case w.ahead:
		need = 2
	default:
		need = 0
	}
	if wait = a.buckets.untilToken(caller, s, need, now); wait > 0 {
		return QuotaRate, wait
	}
	return "", 0
}

// hasAllLocked reports whether a waiter with tasks has as many fetches in flight as its share permits.
func (a *Slots) hasAllLocked(w *waiter) bool {
	if w.tasks.Len() == 0 {
		return false
	}
	s := w.share
	return s != nil && !s.Report && s.Fetches > 0 && a.callers[w.caller] >= s.Fetches
}

// paced are the callers with tasks that wait for a token: a heap by the time of the token. They do not wait
// for a slot, so that no fetch that ends has to look at a thousand of them.
type paced struct {
	of    map[string]*waiter
	order []*waiter
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (p *paced) Len() int           { return len(p.order) }
func (p *paced) Less(i, j int) bool { return p.order[i].token.Before(p.order[j].token) }
func (p *paced) Swap(i, j int) {
	p.order[i], p.order[j] = p.order[j], p.order[i]
	p.order[i].at, p.order[j].at = i, j
}

func (p *paced) Push(x any) {
	w, _ := x.(*waiter)
	w.at = len(p.order)
	p.order = append(p.order, w)
}

func (p *paced) Pop() any {
	last := len(p.order) - 1
	w := p.order[last]
	p.order[last] = nil
	p.order = p.order[:last]
	return w
}

// remove removes a waiter if it is there.
func (p *paced) remove(w *waiter) {
	if p.of[w.caller] == w {
		delete(p.of, w.caller)
		heap.Remove(p, w.at)
	}
}

// waiterLocked returns the waiter of a caller, or nil if it does not wait.
func (a *Slots) waiterLocked(caller string) *waiter {
	if w := a.paced.of[caller]; w != nil {
		return w
	}
	return a.waiting[caller]
}

// paceLocked lets a waiter wait for a token if its first task needs one.
func (a *Slots) paceLocked(w *waiter) bool {
	s, now := w.share, time.Now()
	if s == nil || s.Report {
		return false
	}
	wait := a.buckets.untilToken(w.caller, s, 1, now)
	if wait == 0 {
		return false
	}
	w.token = now.Add(wait)
	if a.paced.of == nil {
		a.paced.of = make(map[string]*waiter)
	}
	delete(a.waiting, w.caller)
	a.paced.of[w.caller] = w
	heap.Push(&a.paced, w)
	a.wakeLocked(wait)
	return true
}

// endPaceLocked lets the callers whose time has come wait for a slot.
func (a *Slots) endPaceLocked() {
	if len(a.paced.order) == 0 {
		return
	}
	for now := time.Now(); len(a.paced.order) > 0; {
		w := a.paced.order[0]
		if wait := w.token.Sub(now); wait > 0 {
			a.wakeLocked(wait)
			return
		}
		a.paced.remove(w)
		a.waiting[w.caller] = w
	}
}

// counts are numbers by caller. Those that are 0 are not there.
type counts map[string]int

func (c *counts) add(caller string, n int) {
	if *c == nil {
		*c = make(counts)
	}
	if (*c)[caller] += n; (*c)[caller] == 0 {
		delete(*c, caller)
	}
}

// setShareLocked gives all tasks of a waiter the share of the last one. If it is another one, the time of their token is
// another one too.
func (w *waiter) setShareLocked(a *Slots, s *Share) {
	before := w.share
	if w.share = s; a.paced.of[w.caller] == w && (s == nil || *before != *s) {
		a.paced.remove(w)
		a.waiting[w.caller] = w
	}
}

// giveBack returns the token of a fetch that was refused after all.
func (a *Slots) giveBack(t *Ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.buckets.get(t.caller, t.share, now).ReserveN(now, -1)
}

// takeLocked takes a token for a fetch that is admitted. One that a policy in mode report would have refused takes none.
func (a *Slots) takeLocked(t *Ticket) {
	now := time.Now()
	if t.share.Report {
		if quota, _ := a.overLocked(t.caller, t.share, now); quota != "" {
			t.over, t.passed = quota, true
			a.passed.add(t.caller, 1)
			return
		}
	}
	if w := a.paced.of[t.caller]; w != nil {
		w.ahead = true
	}
	a.buckets.take(t.caller, t.share, now)
}

// overQuota returns the error of a call over a quota.
func (a *Slots) overQuota(ctx context.Context, s *Share, quota string, wait time.Duration) error {
	if a.Denied != nil {
		a.Denied(s.Policy, quota)
	}
	what := map[string]string{QuotaFetches: "fetches in flight", QuotaMemory: "memory", QuotaRate: "fetches a second"}[quota]
	return a.Refused.refuse(ctx, max(wait, minPushback)+rand.N(minPushback),
		"this caller has used up the "+what+" that its policy "+s.Policy+" permits ("+quota+")",
		&errdetails.ErrorInfo{Reason: ReasonQuota, Domain: ErrorDomain, Metadata: map[string]string{"policy": s.Policy, "quota": quota}})
}
