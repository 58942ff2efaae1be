package classify

// The order in which faults count where several hold (spec §3).
var (
	// Before anything the origin did.
	ownFaults = []Class{Internal, InvalidRequest, Cancelled, Shutdown, OutOfMemory}
	// About where the chain leads; void where a 3xx is not followed at all.
	redirectFaults = []Class{TargetBlocked, RedirectRejected, RedirectLoop, TooManyRedirects}
	// What ends a hop before its head.
	hopFaults = []Class{DNSNotFound, DNSFailure, ConnectRefused, ConnectTimeout, ConnectFailure,
		ConnectionReset, TLSHandshake, TLSCertificate, ResponseTimeout, WriteTimeout, Protocol}
	// What only a status says; as faults they stand for an unknown one.
	statusFaults = []Class{HTTPServerError, RateLimited, AuthRequired, Forbidden, RequestTimeout,
		HTTPClientError, UnexpectedNotModified}
	// After the head of any response.
	timeFaults = []Class{Deadline, AttemptTimeout}
	// In a body that is delivered, after the time faults.
	bodyFaults = []Class{BodyInterrupted, BodyTimeout, Undecodable, BodyTooLarge, EmptyBody, Integrity}
)

// Decide says what the observation means under the policy and what follows. It
// is a total function, allocates nothing (a Retry-After or Date that looks like
// a date and is none aside), and is safe for concurrent use.
//
// It asks in this order: which class holds (spec §3), whether the redirect is
// followed (§6), whether the class is retried and why not (§5, I7), and how
// long to wait (§4).
func Decide(p *Policy, o *Observation) Decision {
	class, rule := o.class(p)
	if class != NoClass {
		return decideFailure(p, o, class, rule)
	}
	switch {
	case o.Status >= 200 && o.Status <= 299:
		return Decision{Kind: Success, Verdict: Done, Rule: "H0"}
	case o.Status == 304:
		return Decision{Kind: NotModified, Verdict: Done, Rule: "H7"}
	case o.followed(p):
		return Decision{Follow: true}
	}
	return Decision{Kind: Redirect, Verdict: Done, Rule: "H9"}
}

// class finds what went wrong, and by which rule.
func (o *Observation) class(p *Policy) (Class, Rule) {
	if c := o.Faults.first(ownFaults); c != NoClass {
		return c, classes[c].rule
	}
	if c := o.redirectClass(p); c != NoClass {
		return c, classes[c].rule
	}
	if c := o.Faults.first(hopFaults); c != NoClass {
		return c, classes[c].rule
	}
	if c := o.statusClass(); c != NoClass {
		if c == AuthRequired && o.Auth == NotAsked && o.Faults.Has(Deadline) {
			return Deadline, classes[Deadline].rule // A2: the time passed during the refresh
		}
		return c, p.statusRule(c, o.Status)
	}
	c := o.responseFault()
	return c, classes[c].rule
}

// redirectClass finds P1, R3, R2 and R1.
func (o *Observation) redirectClass(p *Policy) Class {
	redirect := o.Status >= 300 && o.Status <= 399 && o.Status != 304
	if redirect && !o.followed(p) {
		return NoClass
	}
	if c := o.Faults.first(redirectFaults); c != NoClass {
		return c
	}
	if redirect && o.Redirects >= p.MaxRedirects {
		return TooManyRedirects
	}
	return NoClass
}

// followed tells whether a response is a redirect that is to be followed, as
// far as the status, the policy and the Location say (H9).
func (o *Observation) followed(p *Policy) bool {
	switch o.Status {
	case 301, 302, 303, 307, 308:
		return p.Follow && o.Location == InScope
	}
	return false
}

// statusClass finds N10 and H1 to H8, from the status or, without one, from a
// fault that stands for it.
func (o *Observation) statusClass() Class {
	switch s := o.Status; {
	case s == 0:
		return o.Faults.first(statusFaults)
	case s < 200 || s > 599:
		return Protocol
	case s >= 500:
		return HTTPServerError
	case s == 429:
		return RateLimited
	case s == 401:
		return AuthRequired
	case s == 403:
		return Forbidden
	case s == 408:
		return RequestTimeout
	case s >= 400:
		return HTTPClientError
	case s == 304 && !o.Conditional:
		return UnexpectedNotModified
	}
	return NoClass
}

// statusRule is the class's rule, or H10 where only that retries the status.
func (p *Policy) statusRule(c Class, status int) Rule {
	without := *p
	without.Additional, without.Excluded = nil, nil
	if was, _ := without.retries(c, status); was {
		return classes[c].rule
	}
	if now, _ := p.retries(c, status); now {
		return "H10"
	}
	return classes[c].rule
}

// responseFault finds what went wrong after the head: C1, then the time, then
// the body. Only the body of a 2xx can fail, for no other is delivered.
func (o *Observation) responseFault() Class {
	delivered := o.Status == 0 || o.Status <= 299
	if delivered && o.Faults.Has(ContentType) {
		return ContentType
	}
	if c := o.Faults.first(timeFaults); c != NoClass {
		return c
	}
	if delivered {
		if c := o.Faults.first(bodyFaults); c != NoClass {
			return c
		}
	}
	if o.Status == 0 {
		return Internal // nothing was observed: a fault of the caller of Decide
	}
	return NoClass
}

// decideFailure settles a failure: stop or retry, and when.
func decideFailure(p *Policy, o *Observation, class Class, rule Rule) Decision {
	retried, failure := p.retries(class, o.Status)
	d := Decision{Kind: Failed, Class: class, FailureType: failure, ClassRule: rule}
	if o.Status == 429 || o.Status == 503 { // W2
		d.RetryAfter, d.HasRetryAfter = RetryAfter(o.RetryAfter, o.Date, o.Observed)
	}
	refresh := class == AuthRequired && (o.Auth == Refreshed || o.Auth == NotAsked)
	d.wait(p, o, refresh)
	d.Verdict, d.Rule = d.verdict(p, o, retried || refresh, refresh)
	d.Retryable = d.retryable() && p.Repeatable(o.Method)
	if d.Verdict != Retry {
		d.Delay, d.DelaySource = 0, NoDelay
		return d
	}
	d.NextAttempt, d.Start = o.attempt()+1, FirstURL
	if !p.Repeatable(o.Method) && o.hopIsGET() {
		d.Start = FailedHop // I3
	}
	return d
}

// wait sets the delay and its source (W1, W2, A2).
func (d *Decision) wait(p *Policy, o *Observation, refresh bool) {
	switch {
	case refresh:
		d.Delay, d.DelaySource = 0, FromAuthRefresh
	case d.HasRetryAfter:
		d.Delay, d.DelaySource = d.RetryAfter, FromRetryAfter
	default:
		n := o.attempt()
		d.Delay, d.DelaySource = addSaturating(p.Backoff(n), p.Jitter(n)), FromBackoff
	}
}

// verdict takes the first stop that holds, in the order of I7.
func (d *Decision) verdict(p *Policy, o *Observation, retried, refresh bool) (Verdict, Rule) {
	switch {
	case d.Class == Cancelled || d.Class == Shutdown || d.Class == OutOfMemory:
		return Stopped, d.ClassRule
	case d.Class == Deadline:
		return DeadlinePassed, d.ClassRule
	case d.Class == AuthRequired && (o.Auth == RefreshFailed || o.Auth == RefusedAgain):
		return AuthFailed, "A2"
	case !retried:
		return NotRetryable, d.ClassRule
	case !refresh && !p.Repeatable(o.Method) && !o.hopIsGET():
		return NotIdempotent, "I2"
	case o.BodyCommitted:
		return BodyCommitted, "B3"
	case o.attempt() >= p.MaxAttempts:
		return AttemptsExhausted, "I4"
	case o.Exchanges >= MaxExchanges:
		return ExchangeLimit, "I6"
	case d.DelaySource == FromRetryAfter && d.Delay > p.MaxRetryAfter:
		return RetryAfterTooLong, "W3"
	case d.Delay >= o.TimeLeft:
		return NoTime, "W4"
	}
	return Retry, sourceRule(d.DelaySource)
}

func sourceRule(s DelaySource) Rule {
	switch s {
	case FromRetryAfter:
		return "W2"
	case FromAuthRefresh:
		return "A2"
	}
	return "W1"
}

// retryable tells whether a later fetch may succeed, effects aside (spec §3).
func (d *Decision) retryable() bool {
	switch d.Verdict {
	case Retry, AttemptsExhausted, NoTime, RetryAfterTooLong, ExchangeLimit, BodyCommitted, DeadlinePassed:
		return true
	case Stopped:
		return d.Class == Shutdown || d.Class == OutOfMemory
	case NotRetryable:
		return d.Class == RequestTimeout // H5
	}
	return false
}

func (o *Observation) attempt() int { return max(o.Attempt, 1) }

// hopIsGET tells whether the last hop was a GET, whatever the fetch's method.
func (o *Observation) hopIsGET() bool { return o.HopMethod == "GET" }
