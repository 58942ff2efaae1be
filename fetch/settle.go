package fetch

import (
	"context"
	"net/http"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/fetch/urls"
)

// observe is what classify is told of the attempt; resp is nil where its last
// hop read no response.
func (a *attempt) observe(resp *http.Response) classify.Observation {
	now := time.Now()
	o := classify.Observation{
		Method: a.req.Method, HopMethod: a.hop.method,
		Attempt: a.number, Redirects: len(a.hops) - 1, Exchanges: a.exchanges,
		Conditional: conditional(a.hop.header),
		Faults:      a.faults, Location: a.location, Auth: a.authResult(),
		BodyCommitted: !a.recoverable(),
		Observed:      now, TimeLeft: max(a.deadline.Sub(now), 0),
	}
	switch {
	case a.complete(): // there was nothing left to bring
		o.Status = http.StatusPartialContent
	case resp != nil:
		o.Status = resp.StatusCode
		o.RetryAfter, o.Date = first(resp.Header, "Retry-After"), first(resp.Header, "Date")
	}
	return o
}

func (r *run) timeLeft() time.Duration {
	return max(time.Until(r.deadline), 0)
}

// settle decides what the attempt means, keeps what must be kept of it, and
// tells of it.
func (r *run) settle(a *attempt) {
	o := a.observe(a.resp)
	d := classify.Decide(&r.req.Policy, &o)
	if d.Verdict == classify.Retry && o.Auth == classify.NotAsked && d.DelaySource == classify.FromAuthRefresh {
		if result := r.refresh(a); r.ended() == nil {
			o.Auth, o.TimeLeft = result, r.timeLeft()
			d = classify.Decide(&r.req.Policy, &o)
		}
	}
	if ended := r.ended(); d.Verdict == classify.Retry && ended != nil { // W5, before it begins; or during a refresh
		a.fail(classify.Error(classify.NoPhase, ended), classify.NoPhase, fault.ReasonOf(ended))
		o.Faults, o.TimeLeft = a.faults, r.timeLeft()
		d = classify.Decide(&r.req.Policy, &o)
	}
	r.decision, r.failure = d, a.failureOf(&d)
	r.failed = a.hopError()
	r.keepHeld(a)
	if a.response != nil {
		r.last, r.lastError = a.head, a.errorBody
	} else if r.last.response == nil {
		r.last.url = a.hop.told()
	}
	r.lastHops, r.lastBody, r.lastInline = a.hops, a.body, a.inline
	r.first = &r.origin
	if d.Start == classify.FailedHop {
		r.first = a.hop
	}
	r.logAttempt(a)
	r.tellFinished(a)
	if d.Verdict == classify.Retry { // ten thousand may wait: keep what the outcome needs, and no more
		r.letGo()
	}
}

// tellFinished tells the caller and the observer of an attempt.
func (r *run) tellFinished(a *attempt) {
	told := r.sink != nil && r.req.Events != OutcomeOnly
	if !told && r.client.observer == nil {
		return
	}
	e := AttemptFinished{a.number, a.response, r.failure, a.hops, r.decision}
	if r.client.observer != nil {
		r.client.observer.Attempted(r.caller, r.req, &e)
	}
	if told {
		r.emit(e)
	}
}

// ended returns what has ended the fetch from outside, or nil. A time limit counts
// from the instant it passes, even if its timer has not fired yet.
func (r *run) ended() error {
	if r.client.shutdown.Err() != nil {
		return errShutdown
	}
	if why := r.why(); why != nil || r.timeLeft() > 0 {
		return why
	}
	return &timers.Error{Class: classify.Deadline, Limit: time.Since(r.start)}
}

// failureOf describes what went wrong, or nil.
func (a *attempt) failureOf(d *classify.Decision) *Failure {
	if d.Class == classify.NoClass {
		return nil
	}
	f := &Failure{Class: d.Class, FailureType: d.FailureType, Rule: d.ClassRule,
		URL: a.hop.told(), Retryable: d.Retryable,
		RetryAfter: d.RetryAfter, HasRetryAfter: d.HasRetryAfter,
		Phase: a.phase, Reason: a.reason}
	switch {
	case d.Class == classify.TooManyRedirects:
		f.Phase, f.Reason = classify.PhasePolicy, "too_many_redirects"
	case !a.faults.Has(d.Class): // the status alone says it
		f.Phase, f.Reason = classify.PhaseProcessing, ""
	}
	f.Message, f.Detail = a.message(d, f.Reason), a.detail(d)
	return f
}

// outcome says how the fetch ended.
func (r *run) outcome() *Outcome {
	if r.attempts == 0 && r.failure == nil {
		r.endWait() // nothing was sent: no time, cancelled, or shutting down
	}
	out := &Outcome{
		Kind: r.decision.Kind, FinalURL: r.last.url,
		Response: r.last.response, ResponseAttempt: r.last.attempt, ErrorBody: r.lastError,
		Rule: r.decision.Rule, Attempts: r.attempts, Exchanges: r.exchanges,
		Hops: r.lastHops, Body: r.lastBody, Total: time.Since(r.start),
	}
	if out.FinalURL == "" {
		out.FinalURL = urls.WithoutUserinfo(r.req.URL)
	}
	if out.Kind == classify.Failed {
		out.Failure, out.StopReason = r.failure, r.decision.Verdict
	} else {
		out.InlineBody = r.lastInline
	}
	return out
}

// endWait settles a fetch that ended outside an attempt, by the cause that its
// context tells (W5).
func (r *run) endWait() {
	cause := r.why()
	r.endAs(orDefault(classify.Error(classify.NoPhase, cause), classify.Internal), fault.ReasonOf(cause), "")
}

// endAs settles a fetch that ends outside an attempt. An empty text means the
// class's own.
func (r *run) endAs(class classify.Class, reason, text string) {
	o := classify.Observation{Method: r.req.Method, Attempt: r.attempts, Exchanges: r.exchanges,
		Faults: classify.FaultsOf(class), Observed: time.Now()}
	r.decision = classify.Decide(&r.req.Policy, &o)
	r.failed = hopError{}
	if text == "" && r.caller != nil {
		text = r.message(&r.decision, "")
	}
	r.failure = &Failure{Class: r.decision.Class, FailureType: r.decision.FailureType, Rule: r.decision.ClassRule,
		Message: orDefault(text, message(class, "")), Reason: reason,
		URL: urls.WithoutUserinfo(r.req.URL), Retryable: r.decision.Retryable}
}

// Refuse returns the outcome of a fetch that fails before it starts: it has no attempts and
// a failure of the given class. If text is not empty it is the failure's message. The
// fetch is logged and observed like any other.
func (c *Client) Refuse(ctx context.Context, req *Request, class classify.Class, text string) *Outcome {
	r := &run{client: c, req: req, start: time.Now()}
	r.endAs(class, "", text)
	return c.ended(ctx, r)
}

// ended tells of the end of a fetch and returns its outcome.
func (c *Client) ended(ctx context.Context, r *run) *Outcome {
	out := r.outcome()
	r.logEnd(out)
	if c.observer != nil {
		c.observer.Fetched(ctx, r.req, out)
	}
	return out
}
