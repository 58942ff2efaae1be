package frontier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fetchd/client"
	"fetchd/frontier/normal"
	"fetchd/frontier/sitemap"
	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// errLeaseLost cancels a visit whose URL may belong to another worker by now.
var errLeaseLost = errors.New("the lease was lost")

// visit is one claimed URL while this worker holds it.
type visit struct {
	w           *Worker
	claim       store.Claim
	ctx         context.Context // ends with the lease, or with the time to drain
	cancel      context.CancelCauseFunc
	totals      totals
	held        string // the reserved host
	reservation store.Reservation
	heldUntil   time.Time // the reservation lasts at least until then, by this machine's clock
	leftHost    bool      // the claim's own host was left
	unused      bool      // no request was sent to the reserved host yet
	started     bool      // a fetch was sent, so requests may have been made
	body        Body      // of the last part; nil if bodies are not stored
	spool       *spool    // of the last part; nil if it is not read for links
	leftOut     bool      // a budget has left out links

	mu       sync.Mutex
	until    time.Time // the lease lasts at least until then, by this machine's clock
	progress bool      // the fetch has reported something since the last extension
	waiting  bool      // for a host, or for the place of bodies
	overdue  time.Time // when the fetch should have ended; zero before its first report
}

// run fetches the URL and returns what to do with it.
func (v *visit) run() ending {
	defer v.release()
	defer v.dropBody()
	c, p := v.claim, &v.w.config.Policy
	if p.MaxCrashes > 0 && c.CrashCount >= p.MaxCrashes {
		return p.failed(c, ClassCrashed, fmt.Sprintf("%s: started %d times and never ended", ClassCrashed, c.CrashCount), false, 0)
	}
	if e := v.checkBudget(); e != nil {
		return *e
	}
	if e, stop := v.askOwn(); stop {
		return e
	}
	kind := pageChain
	if c.Kind == store.Sitemap {
		kind = sitemapChain
	}
	outcome, e := v.chain(c.URL, kind, c.Earlier)
	if e != nil {
		return *e
	}
	result := p.judge(c, outcome, v.totals)
	result.fetch.Content = contentOf(outcome.GetResponse(), v.w.config.KeepHeaders)
	if result.queue != "" && !v.allows(result.queue) {
		return *v.outOfScope(outcome, result.queue)
	}
	if result.how == record && result.fetch.Status == store.Fetched && outcome.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		return v.received(outcome, result)
	}
	return result
}

// received stores the body of a success, and adds what it links to.
func (v *visit) received(outcome *pb.FetchOutcome, result ending) ending {
	if v.body != nil {
		digest := outcome.GetBodySummary().GetSha256()
		if !v.keep(digest, outcome.GetInlineBody()) {
			return ending{how: giveBackDelayed}
		}
		result.fetch.BodyDigest = digest
	}
	if v.spool != nil {
		if e := v.discover(outcome, &result); e != nil {
			return *e
		}
	}
	if v.leftOut || v.tooDeep() && !v.w.config.Recrawl.On() {
		// A 304 would hide the links from a crawl with larger limits.
		result.fetch.ETag, result.fetch.LastModified = "", ""
	}
	return result
}

// newBody drops the body of the part before, which was a redirect, and prepares the next one. It
// returns nil if the body is not needed.
func (v *visit) newBody() client.BodyWriter {
	v.dropBody()
	var to writers
	if v.w.config.Bodies != nil {
		// Not v.ctx: a body whose outcome has arrived is stored even if the visit is cancelled.
		v.body = v.w.config.Bodies.New(v.w.storing)
		to = append(to, v.body)
	}
	switch {
	case v.claim.Kind == store.Sitemap:
		v.spool = &spool{limit: sitemap.MaxBytes}
	case v.discovers():
		v.spool = &spool{limit: v.w.config.Discovery.Links.DocumentBytes() + 1} // one more shows that it is longer
	}
	if v.spool != nil {
		to = append(to, v.spool)
	}
	if len(to) == 0 {
		return nil
	}
	return to
}

func (v *visit) dropBody() {
	if v.spool != nil {
		v.spool.close()
		v.spool = nil
	}
	if v.body != nil {
		v.body.Drop()
		v.body = nil
	}
}

// keep stores the body, of which last is not written yet. If that fails, the URL is fetched again
// later.
func (v *visit) keep(digest string, last []byte) bool {
	if digest == "" { // a 204
		return true
	}
	if err := v.wait(func() error { return v.body.Commit(digest, last) }); err != nil {
		v.notKept(err)
		return false
	}
	v.w.backoff.succeeded()
	return true
}

// notKept reports that a body could not be stored.
func (v *visit) notKept(err error) {
	v.w.cannotStore(v.ctx, &v.w.backoff, "keep a body", err)
}

// chainKind is the purpose of a chain of redirects.
type chainKind int

const (
	pageChain       chainKind = iota
	robotsChain               // does not check robots.txt itself
	robotsOnceChain           // the same, with one attempt
	sitemapChain
)

func (k chainKind) robots() bool { return k == robotsChain || k == robotsOnceChain }

// chain fetches a URL and follows its redirects, with a separate fetch for each origin. It returns
// the outcome of the last part, or the visit's ending. earlier is the record that the response may
// refer to.
func (v *visit) chain(url string, kind chainKind, earlier store.Earlier) (*pb.FetchOutcome, *ending) {
	left := v.w.config.Policy.MaxRedirects
	if kind.robots() {
		left = robotsRedirects
	}
	asked := map[string]bool{}
	for {
		asked[url] = true
		outcome, e := v.part(url, left, kind, earlier)
		if e != nil {
			return nil, e
		}
		next := target(outcome)
		if outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_REDIRECT || next == "" || (!kind.robots() && !v.follows()) {
			return outcome, nil
		}
		if !kind.robots() && !v.allows(next) {
			return nil, v.outOfScope(outcome, next)
		}
		left -= len(outcome.GetHops()) // the redirects that fetchd followed, and this one
		switch {
		case left < 0:
			return failedRedirect(outcome, pb.ErrorClass_ERROR_CLASS_TOO_MANY_REDIRECTS), nil
		case asked[next]:
			return failedRedirect(outcome, pb.ErrorClass_ERROR_CLASS_REDIRECT_LOOP), nil
		}
		granted, e := v.takeHost(next, kind)
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

// failedRedirect returns the outcome that fetchd would have reported if the whole chain were at one
// origin.
func failedRedirect(outcome *pb.FetchOutcome, class pb.ErrorClass) *pb.FetchOutcome {
	return &pb.FetchOutcome{
		Kind: pb.OutcomeKind_OUTCOME_KIND_FAILED, Response: outcome.GetResponse(), FinalUrl: outcome.GetFinalUrl(),
		Hops: outcome.GetHops(), BodySummary: outcome.GetBodySummary(), Records: outcome.GetRecords(), ResponseAttempt: outcome.GetResponseAttempt(),
		Error: &pb.FetchError{ErrorClass: class, Reason: className(class), Message: "the redirect limit was reached, or the redirects loop", FailureType: pb.FailureType_FAILURE_TYPE_PERMANENT},
	}
}

// part runs one fetch of a chain.
func (v *visit) part(url string, redirects int, kind chainKind, earlier store.Earlier) (*pb.FetchOutcome, *ending) {
	if e := v.checkLease(); e != nil {
		return nil, e
	}
	task := client.Task{Request: v.w.config.robotsRequest(url, redirects, earlier), SendBefore: v.startBefore()}
	if kind == robotsOnceChain {
		once(task.Request)
	}
	if !kind.robots() {
		task.Body = v.newBody()
		task.Request = v.w.config.pageRequest(url, redirects, v.validators(url), earlier)
		if v.spool != nil {
			deliver(task.Request)
		}
	}
	if kind == sitemapChain {
		sitemapPolicies(task.Request)
	}
	v.unused = false
	v.mu.Lock()
	v.overdue = time.Time{}
	v.mu.Unlock()
	var wait time.Duration
	task.OnEvent = func(m *pb.FetchResponse) {
		v.noteProgress()
		if f := m.GetAttemptFinished(); f != nil {
			wait += f.GetRetryDecision().GetDelay().AsDuration()
			v.delayOthers(f.GetHops())
		}
	}
	outcome, err := v.w.pool.Do(v.ctx, task)
	if outcome != nil || errors.Is(err, client.ErrLost) {
		v.started = true
	}
	if outcome == nil {
		return nil, v.broken(err)
	}
	v.totals.add(outcome, wait)
	if cause := context.Cause(v.ctx); errors.Is(cause, errLeaseLost) {
		return nil, &ending{how: forget}
	}
	if _, failed := errors.AsType[*client.Error](err); err != nil && !failed { // the body could not be written
		v.notKept(err)
		return nil, &ending{how: giveBackDelayed}
	}
	outcome = whole(outcome)
	if err := v.w.config.recordError(outcome); err != nil {
		v.w.cannotStore(v.ctx, &v.w.recording, "write WARC records", err)
		return nil, &ending{how: giveBackDelayed}
	}
	if len(outcome.GetRecords()) > 0 {
		v.w.recording.succeeded()
	}
	return outcome, nil
}

// whole returns the outcome, or a failure if its body is only a part of the whole or may be that of
// another response. No request asks for a part, so something on the way is broken. The links and rules
// of a part would be taken for all.
func whole(outcome *pb.FetchOutcome) *pb.FetchOutcome {
	body, e := outcome.GetBodySummary(), &pb.FetchError{FailureType: pb.FailureType_FAILURE_TYPE_TRANSIENT, Retryable: true}
	switch {
	case outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS:
		return outcome
	case body.GetUnrequestedBytes():
		e.ErrorClass, e.Reason = pb.ErrorClass_ERROR_CLASS_CONNECTION_RESET, "unrequested_bytes"
		e.Message = "the origin sent more than was requested, so the response may be the answer to an earlier request"
	case body.GetPartialContent():
		e.ErrorClass, e.Reason = pb.ErrorClass_ERROR_CLASS_INTEGRITY, "partial_content"
		e.Message = "the origin sent only a part of the body, although the request was for all of it"
	default:
		return outcome
	}
	outcome.Kind, outcome.InlineBody, outcome.Error = pb.OutcomeKind_OUTCOME_KIND_FAILED, nil, e
	return outcome
}

// startBefore returns the latest time to send a fetch that is to end within the lease and the
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

// validators returns those of the URL's last success, if url is at the same origin.
func (v *visit) validators(url string) store.Claim {
	own, _ := normal.OriginOf(v.claim.URL)
	if origin, _ := normal.OriginOf(url); origin != own {
		return store.Claim{}
	}
	return v.claim
}

// checkLease extends the lease if it is too short for another fetch. It returns the visit's ending
// if no fetch may start.
func (v *visit) checkLease() *ending {
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
		return &ending{how: forget} // the URL may belong to another worker by now
	}
	asked := time.Now()
	held, err := v.w.store.Extend(v.ctx, []store.Lease{v.claim.Lease}, v.w.config.Lease)
	switch {
	case err != nil && v.ctx.Err() != nil:
		return v.stopped()
	case err != nil:
		v.w.reportError(v.ctx, "extend a lease", err)
		return v.back()
	case len(held) == 0:
		return &ending{how: forget}
	}
	v.extended(asked)
	return nil
}

// back gives the URL back: at once if its host received no request.
func (v *visit) back() *ending {
	if v.started {
		return &ending{how: giveBackDelayed}
	}
	return &ending{how: giveBack}
}

// broken returns the ending of a visit whose fetch has no outcome.
func (v *visit) broken(err error) *ending {
	switch {
	case errors.Is(err, client.ErrLost):
		return &ending{how: abandon}
	case errors.Is(context.Cause(v.ctx), errLeaseLost):
		return &ending{how: forget}
	}
	return v.back()
}

// noteProgress records that the fetch has reported something.
func (v *visit) noteProgress() {
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

// delayOthers delays the hosts of hops that this visit does not hold. There are none if the service
// follows redirects only within an origin, but the worker does not rely on that.
func (v *visit) delayOthers(hops []*pb.Hop) {
	var hosts []string
	for _, h := range hops {
		if host := normal.HostOf(h.GetUrl()); host != "" && host != v.claim.Host && host != v.held {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) > 0 {
		v.w.delayHosts(hosts)
	}
}
