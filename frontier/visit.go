package frontier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// errLeaseLost ends a visit whose URL is another's by now.
var errLeaseLost = errors.New("the lease was lost")

// visit is one claimed URL while this worker holds it.
type visit struct {
	w           *Worker
	claim       store.Claim
	ctx         context.Context // ends with the lease, or when the time to drain is over
	cancel      context.CancelCauseFunc
	made        made
	held        string // host that is reserved, by reservation
	reservation store.Reservation
	heldUntil   time.Time // the reservation lasts so long at least, by this machine's clock
	departed    bool      // the claim's own host was given back
	unused      bool      // nothing was asked of the reserved host
	begun       bool      // a fetch was sent, so requests may have been made

	mu       sync.Mutex
	until    time.Time // the lease lasts so long at least, by this machine's clock
	progress bool      // something was heard of the fetch
	waiting  bool      // for a host
	overdue  time.Time // the fetch should have ended; zero while nothing was heard of it
}

// run carries the visit out and says what became of the URL.
func (v *visit) run() ending {
	defer v.release()
	c, p := v.claim, &v.w.config.Policy
	if p.MaxCrashes > 0 && c.CrashCount >= p.MaxCrashes {
		return p.failed(c, ClassCrashed, fmt.Sprintf("%s: begun %d times and never ended", ClassCrashed, c.CrashCount), false, 0)
	}
	if e, stop := v.askOwn(); stop {
		return e
	}
	outcome, e := v.chain(c.URL, pageChain)
	if e != nil {
		return *e
	}
	result := p.judge(c, outcome, v.made)
	if result.how == record && result.fetch.Status == store.Fetched && outcome.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		digest := outcome.GetBodySummary().GetSha256()
		if !v.keep(digest, outcome.GetInlineBody()) {
			return ending{how: chargeBack}
		}
		if v.w.config.Bodies != nil {
			result.fetch.BodyDigest = digest
		}
	}
	return result
}

// keep stores a body. Where that cannot be done the URL is fetched again later.
func (v *visit) keep(digest string, body []byte) bool {
	if v.w.config.Bodies == nil || digest == "" {
		return true
	}
	// The outcome is there: it is not given up with the visit.
	if err := v.w.config.Bodies.Keep(v.w.last, digest, body); err != nil {
		v.w.trouble(v.ctx, "keep a body", err)
		v.w.brake.press()
		return false
	}
	v.w.brake.release()
	return true
}

// chainKind is what a chain of redirects is for.
type chainKind int

const (
	pageChain   chainKind = iota
	robotsChain           // does not ask robots.txt in its turn
)

// chain fetches a URL and what redirects lead to, each part by a fetch of its
// own where the origin changes. It returns the outcome of the last part, or the
// visit's end.
func (v *visit) chain(url string, kind chainKind) (*pb.FetchOutcome, *ending) {
	left := v.w.config.Policy.MaxRedirects
	if kind == robotsChain {
		left = robotsRedirects
	}
	asked := map[string]bool{}
	for {
		asked[url] = true
		outcome, e := v.part(url, left, kind)
		if e != nil {
			return nil, e
		}
		next := target(outcome)
		if outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_REDIRECT || next == "" || (kind == pageChain && !v.follows()) {
			return outcome, nil
		}
		left -= len(outcome.GetHops()) // those that were followed, and this one
		switch {
		case left < 0:
			return failedRedirect(outcome, pb.ErrorClass_ERROR_CLASS_TOO_MANY_REDIRECTS), nil
		case asked[next]:
			return failedRedirect(outcome, pb.ErrorClass_ERROR_CLASS_REDIRECT_LOOP), nil
		}
		granted, e := v.turn(next, kind)
		if e != nil {
			return nil, e
		}
		if !granted {
			return outcome, nil
		}
		url = next
	}
}

func (v *visit) follows() bool {
	return v.w.config.Policy.FollowRedirects && !v.w.config.Policy.QueueRedirects
}

// failedRedirect is the outcome that fetchd would have told, had the chain
// stayed at one origin.
func failedRedirect(outcome *pb.FetchOutcome, class pb.ErrorClass) *pb.FetchOutcome {
	return &pb.FetchOutcome{
		Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, Response: outcome.GetResponse(), FinalUrl: outcome.GetFinalUrl(),
		Hops: outcome.GetHops(), BodySummary: outcome.GetBodySummary(),
		Error: &pb.FetchError{ErrorClass: class, Reason: className(class), Message: "the redirects lead on", FailureType: pb.FailureType_FAILURE_TYPE_PERMANENT},
	}
}

// part is one fetch of a chain.
func (v *visit) part(url string, redirects int, kind chainKind) (*pb.FetchOutcome, *ending) {
	if e := v.inTime(); e != nil {
		return nil, e
	}
	request := v.w.config.robotsRequest(url, redirects)
	if kind == pageChain {
		request = v.w.config.pageRequest(url, redirects, v.validators(url))
	}
	v.unused = false
	v.mu.Lock()
	v.overdue = time.Time{}
	v.mu.Unlock()
	var wait time.Duration
	outcome, err := v.w.pool.fetch(v.ctx, v.startBefore(), request, func(m *pb.FetchResponse) {
		v.heard()
		if f := m.GetAttemptFinished(); f != nil {
			wait += f.GetRetryDecision().GetDelay().AsDuration()
			v.touched(f.GetHops())
		}
	})
	if err == nil || errors.Is(err, errLost) {
		v.begun = true
	}
	if err != nil {
		return nil, v.broken(err)
	}
	v.made.add(outcome, wait)
	if cause := context.Cause(v.ctx); errors.Is(cause, errLeaseLost) {
		return nil, &ending{how: forget}
	}
	return outcome, nil
}

// startBefore is when a fetch must have been sent, to end within the lease and the
// reservation.
func (v *visit) startBefore() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	until := v.until
	if v.held != "" && v.heldUntil.Before(until) {
		until = v.heldUntil
	}
	return until.Add(-v.w.config.TotalTimeout - leaseReserve/2)
}

// validators are those of the URL's last success, for its own origin.
func (v *visit) validators(url string) store.Claim {
	own, _ := originOf(v.claim.URL)
	if origin, _ := originOf(url); origin != own {
		return store.Claim{}
	}
	return v.claim
}

// inTime makes sure that the lease outlasts the fetch that is to be begun, and
// that it may still be begun.
func (v *visit) inTime() *ending {
	if v.w.draining.Err() != nil {
		return v.back()
	}
	need := v.w.config.TotalTimeout + leaseReserve
	v.mu.Lock()
	left := time.Until(v.until)
	v.mu.Unlock()
	if left >= need {
		return nil
	}
	if left <= 0 {
		return &ending{how: forget} // it may be another's by now
	}
	asked := time.Now()
	held, err := v.w.store.Extend(v.ctx, []store.Lease{v.claim.Lease}, v.w.config.Lease)
	switch {
	case err != nil && v.ctx.Err() != nil:
		return v.stopped()
	case err != nil:
		v.w.trouble(v.ctx, "extend a lease", err)
		return v.back()
	case len(held) == 0:
		return &ending{how: forget}
	}
	v.extended(asked)
	return nil
}

// back gives the URL back: at once if nothing was asked of its host.
func (v *visit) back() *ending {
	if v.begun {
		return &ending{how: chargeBack}
	}
	return &ending{how: giveBack}
}

// broken is the end of a visit whose fetch has no outcome.
func (v *visit) broken(err error) *ending {
	switch {
	case errors.Is(err, errLost):
		return &ending{how: abandon}
	case errors.Is(context.Cause(v.ctx), errLeaseLost):
		return &ending{how: forget}
	}
	return v.back()
}

// heard notes a sign of life.
func (v *visit) heard() {
	v.mu.Lock()
	v.progress = true
	if v.overdue.IsZero() {
		v.overdue = time.Now().Add(v.w.config.TotalTimeout + leaseReserve)
	}
	v.mu.Unlock()
}

func (v *visit) extended(asked time.Time) {
	v.mu.Lock()
	v.until, v.progress = asked.Add(v.w.config.Lease), false
	v.mu.Unlock()
}

// touched charges the hosts of hops that this visit does not hold: there are none
// as long as redirects stay within an origin, and a service that did otherwise is not trusted blindly.
func (v *visit) touched(hops []*pb.Hop) {
	var hosts []string
	for _, h := range hops {
		if host := hostOf(h.GetUrl()); host != "" && host != v.claim.Host && host != v.held {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) > 0 {
		v.w.charge(hosts)
	}
}
