package fetch

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/fetch/urls"
)

// settle decides what follows the current attempt, keeps its results, reports it and releases it.
func (r *run) settle() {
	a := r.current
	r.current = nil
	a.readChallenge()
	o := a.observe(a.resp)
	if a.resp != nil {
		r.rateLimits = RateLimits(a.resp.Header, o.Observed)
		o.Exhausted = Exhausted(r.rateLimits)
	}
	d := classify.Decide(&r.req.Policy, &o)
	if d.Verdict == classify.Retry && d.DelaySource == classify.FromAuthRefresh {
		if result := r.refresh(a); r.endCause() == nil { // the next attempt needs a new credential (A2)
			o.Auth, o.TimeLeft = result, r.timeLeft()
			d = classify.Decide(&r.req.Policy, &o)
		}
	}
	if ended := r.endCause(); d.Verdict == classify.Retry && ended != nil { // before the wait, or during the refresh (W5)
		a.fail(classify.Error(classify.NoPhase, ended), classify.NoPhase, fault.ReasonOf(ended))
		o.Faults, o.TimeLeft = a.faults, r.timeLeft()
		d = classify.Decide(&r.req.Policy, &o)
	}
	r.decision, r.failure, r.redirects = d, a.failureOf(&d), max(r.redirects, a.redirects())
	r.failedHop = a.hopError()
	r.keepCharges(a)
	if a.response != nil {
		r.last, r.lastErrorBody = a.head, a.errorBody
	} else if r.last.response == nil {
		r.last.url = a.hop.urlText()
	}
	r.lastHops, r.lastBody, r.lastInlineBody, r.lastText, r.lastStored = a.hops, a.body, a.inlineBody, a.text, a.stored
	r.startHop, r.chain = &r.initialHop, nil
	if d.Start == classify.FailedHop {
		r.startHop, r.chain = a.hop, append([]*hopRequest(nil), a.sent[:len(a.sent)-1]...) // a copy does not keep the attempt
	}
	r.logAttempt(a)
	r.emitFinished(a)
	a.resp, a.response, a.head, a.inlineBody, a.errorBody = nil, nil, head{}, nil, nil // goroutines of HTTP/2 may keep the attempt
	if d.Verdict == classify.Retry {                                                   // ten thousand may wait, so keep only what the outcome needs
		r.releaseForWait()
	}
}

// observe returns the observation of the attempt for package classify. resp is nil if the last
// hop had no response.
func (a *attempt) observe(resp *http.Response) classify.Observation {
	now := time.Now()
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	o := classify.Observation{
		Method: a.run.req.Method, HopMethod: a.hop.method,
		Attempt: a.number, Redirects: a.redirects(),
		Conditional: conditional(a.hop.header),
		Faults:      a.faults, Location: a.location, Auth: a.authResult(status),
		Request:       a.run.requests,
		Reused:        a.reused(),
		BodyCommitted: !a.run.recoverable(),
		Observed:      now, TimeLeft: max(a.run.deadline.Sub(now), 0),
	}
	switch {
	case a.alreadyComplete(): // as good as a 206 with the bytes that are missing: none
		o.Status = http.StatusPartialContent
	case a.refused: // the failure is that of the body
		o.Status = http.StatusOK
	case resp != nil:
		o.Status = status
		o.RetryAfter, o.Date, o.Age = first(resp.Header, "Retry-After"), first(resp.Header, "Date"), first(resp.Header, "Age")
	}
	return o
}

// reused reports whether the connection of the last hop had carried another request.
func (a *attempt) reused() bool { return a.hops[len(a.hops)-1].Exchange.Reused }

// endCause returns why the fetch must end before its next attempt, or nil. A time limit counts
// from the instant it passes, even if its timer has not fired yet.
func (r *run) endCause() error {
	if r.client.config.Shutdown.Err() != nil {
		return errShutdown
	}
	if cause := r.cancelCause(); cause != nil || r.timeLeft() > 0 {
		return cause
	}
	return &timers.Error{Class: classify.Deadline, Limit: time.Since(r.start)}
}

// failureOf returns the failure of the attempt, or nil.
func (a *attempt) failureOf(d *classify.Decision) *Failure {
	if d.Class == classify.NoClass {
		return nil
	}
	f := &Failure{Class: d.Class, FailureType: d.FailureType, Rule: d.ClassRule,
		URL: a.hop.urlText(), Retryable: d.Retryable, Request: a.run.requests,
		RetryAfter: d.RetryAfter, HasRetryAfter: d.HasRetryAfter,
		Phase: a.phase, Reason: a.reason, Policy: a.denial.policy, PolicyRule: a.denial.rule}
	if d.Class == classify.Internal && a.reason == fault.NoDescriptor { // a later fetch may find one (P6)
		f.Retryable = a.run.maySendAgain()
	}
	switch {
	case d.Class == classify.TooManyRedirects:
		f.Phase, f.Reason = classify.PhasePolicy, "too_many_redirects"
	case !a.faults.Has(d.Class): // the status alone is the failure
		f.Phase, f.Reason = classify.PhaseProcessing, ""
	}
	if d.Class == classify.AuthRequired && (a.refreshedJustNow || a.mayPass) { // a later fetch may get another credential (A2, A3)
		f.Retryable = a.run.maySendAgain()
		switch {
		case a.refreshedJustNow:
			f.Reason = refreshedJustNow
		case !a.noCredential:
			f.Reason = refreshFailed
		}
	}
	f.Message, f.Detail = a.run.message(d, f.Reason), a.detail(d)
	if f.Policy != "" {
		f.Message = policyMessage(f.Reason, a.denial)
	}
	return f
}

// maySendAgain reports whether a later fetch may send the request again.
func (r *run) maySendAgain() bool {
	o := classify.Observation{Method: r.req.Method, Request: r.requests}
	return o.MaySendAgain(&r.req.Policy)
}

// emitFinished reports an attempt to the sink and the observer.
func (r *run) emitFinished(a *attempt) {
	wanted := r.sink != nil && r.req.Events != OutcomeOnly
	if !wanted && r.client.config.Observer == nil {
		return
	}
	e := AttemptFinished{a.number, a.response, r.failure, a.hops, r.decision, !r.keepsBody() && r.decision.Delay == 0}
	if r.client.config.Observer != nil {
		r.client.config.Observer.Attempted(r.caller, r.req, &e)
	}
	if wanted {
		r.emit(e)
	}
}

// endsAtOnce reports whether the end of an attempt waits for nothing once the body is read: neither for a
// store, nor for the rest of a request that is still being written.
func (r *run) endsAtOnce() bool { return !r.keepsBody() && len(r.req.Body) == 0 }

// keepsBody reports whether the fetch writes the body or its records to a store.
func (r *run) keepsBody() bool { return r.req.Delivery == Store || r.req.Recorder != nil }

// releaseForWait releases what a wait does not need. The exchange is over, and a fetch that ends
// during the wait has another failure.
func (r *run) releaseForWait() {
	r.failure, r.failedHop = nil, hopError{}
	if p := r.progressToResume(); p == nil || p != r.uploadOf {
		r.dropUpload()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight = nil
}

// conclude returns the outcome of a fetch, after it has logged and reported it.
func (c *Client) conclude(ctx context.Context, r *run) *Outcome {
	out := r.outcome()
	r.logEnd(out)
	if c.config.Observer != nil {
		c.config.Observer.Fetched(ctx, r.req, out)
	}
	return out
}

// outcome returns how the fetch ended.
func (r *run) outcome() *Outcome {
	if r.attempts == 0 && r.failure == nil {
		r.settleCancelled() // nothing was sent: no time left, cancelled, or shutting down
	}
	out := &Outcome{
		Kind: r.decision.Kind, FinalURL: r.last.url,
		Response: r.last.response, ResponseAttempt: r.last.attempt, ErrorBody: r.lastErrorBody,
		Rule: r.decision.Rule, Attempts: r.attempts, Exchanges: r.exchanges, Redirects: r.redirects,
		Hops: r.lastHops, Body: r.lastBody, Records: r.records, RateLimits: r.rateLimits, Total: time.Since(r.start),
	}
	if out.FinalURL == "" {
		out.FinalURL = urls.WithoutUserinfo(r.req.URL)
	}
	if out.Kind == classify.Failed {
		out.Failure, out.StopReason = r.failure, r.decision.Verdict
	} else {
		out.InlineBody, out.Text, out.Stored = r.lastInlineBody, r.lastText, r.lastStored
	}
	return out
}

// settleCancelled settles a fetch that was cancelled before its first attempt or between two (W5).
func (r *run) settleCancelled() {
	cause := r.cancelCause()
	r.settleAs(cmp.Or(classify.Error(classify.NoPhase, cause), classify.Internal), fault.ReasonOf(cause), "")
}

// settleAs settles a fetch that ends outside an attempt. An empty text means the message of the
// class.
func (r *run) settleAs(class classify.Class, reason, text string) {
	o := classify.Observation{Method: r.req.Method, Attempt: r.attempts, Request: r.requests,
		Faults: classify.FaultsOf(class), Observed: time.Now()}
	r.decision = classify.Decide(&r.req.Policy, &o)
	r.failedHop = hopError{}
	if text == "" && r.caller != nil { // nil: the fetch was refused, and has no deadline
		text = r.message(&r.decision, "")
	}
	r.failure = &Failure{Class: r.decision.Class, FailureType: r.decision.FailureType, Rule: r.decision.ClassRule,
		Message: cmp.Or(text, classMessage(class, "")), Reason: reason,
		URL: urls.WithoutUserinfo(r.req.URL), Retryable: r.decision.Retryable, Request: r.requests}
}

// Refuse returns the outcome of a fetch that fails before it starts: it has no attempts and
// a failure of the given class. If text is not empty it is the failure's message. The
// fetch is logged and observed like any other.
func (c *Client) Refuse(ctx context.Context, req *Request, class classify.Class, text string) *Outcome {
	r := &run{client: c, req: req, start: time.Now(), requests: classify.NotSent}
	r.settleAs(class, "", text)
	return c.conclude(ctx, r)
}
