package admission

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// Share is what the policy of a caller leaves to it. It is for each caller and not for all that have the policy. Zero
// means no limit of its own. A nil *Share has none.
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

// maxBuckets limits the callers whose rate is known. The callers beyond share one bucket. A bucket that is full says
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
		caller = ""
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
func (b *buckets) take(caller string, s *Share) {
	if s != nil && s.PerSecond > 0 {
		now := time.Now()
		b.get(caller, s, now).ReserveN(now, 1)
	}
}

// overLocked returns the quota over which a caller would be with one more fetch, and how long it should wait; "" if there
// is none. A task needs a token. A call needs only that no other call has taken a token ahead, if
// tasks of its caller wait: they take every token as soon as there is one, and a call cannot wait.
func (a *Slots) overLocked(caller string, s *Share, task bool) (quota string, wait time.Duration) {
	if s == nil {
		return "", 0
	}
	if s.Fetches > 0 && a.callers[caller] >= s.Fetches {
		return QuotaFetches, 0
	}
	need := 1.0
	if w := a.waiting[caller]; !task && w != nil && w.tasks.Len() > 0 {
		need = 0
	}
	if wait = a.buckets.untilToken(caller, s, need, time.Now()); wait > 0 {
		return QuotaRate, wait
	}
	return "", 0
}

// taskOverLocked is overLocked for the first task of a waiter. It is "" if the policy only reports.
func (a *Slots) taskOverLocked(caller string, w *waiter) (quota string, wait time.Duration) {
	s := w.first().ticket.share
	if s == nil || s.Report {
		return "", 0
	}
	return a.overLocked(caller, s, true)
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
