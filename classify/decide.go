package classify

import (
	"cmp"
	"slices"
)

// The order of precedence if an attempt has several faults (spec §3).
var (
	// Faults that come before anything the origin did.
	ownFaults = []Class{Internal, InvalidRequest, Cancelled, Shutdown, OutOfMemory, StoreFailure}
	// Faults of a redirect's target. They are ignored if a 3xx is not followed.
	redirectFaults = []Class{TargetBlocked, RedirectRejected, RedirectLoop, TooManyRedirects}
	// Faults that end a hop before its response head.
	hopFaults = []Class{DNSNotFound, DNSFailure, ConnectRefused, ConnectTimeout, ConnectFailure,
		ConnectionReset, TLSHandshake, TLSCertificate, ResponseTimeout, WriteTimeout, Protocol}
	// Faults that a status implies. They are used if the status is unknown.
	statusFaults = []Class{HTTPServerError, RateLimited, AuthRequired, Forbidden, RequestTimeout,
		HTTPClientError, UnexpectedNotModified}
	// Faults of the head of a response whose body is delivered. The time faults come after them.
	contentFaults = []Class{ContentType}
	// Faults after the head of any response.
	timeFaults = []Class{Deadline, AttemptTimeout}
	// Faults in a body that is delivered. The time faults take precedence.
	bodyFaults = []Class{BodyInterrupted, BodyTimeout, Undecodable, BodyTooLarge, EmptyBody, Integrity}

	// listed has the classes of all lists.
	listed = FaultsOf(slices.Concat(ownFaults, redirectFaults, hopFaults, statusFaults, contentFaults, timeFaults, bodyFaults)...)
)

// Decide returns what the observation means under the policy and what happens
// next. It accepts any arguments, never panics on them, and is safe for
// concurrent use. It allocates only if a Retry-After or Date looks like a date
// but cannot be parsed.
//
// It determines, in this order: the class (spec §3), whether a redirect is
// followed (§6), whether the class is retried, and if not, why (§5, I7), and how
// long to wait (§4).
func Decide(p *Policy, o *Observation) Decision {
	class, rule := o.class(p)
	if class != NoClass {
		return decideFailure(p, o, class, rule)
	}
	switch {
	case o.Status >= 200 && o.Status <= 299:
		return Decision{Kind: Success, Verdict: NoFailure, Rule: "H0"}
	case o.Status == 304:
		return Decision{Kind: NotModified, Verdict: NoFailure, Rule: "H7"}
	case o.followed(p):
		return Decision{Follow: true}
	}
	return Decision{Kind: Redirect, Verdict: NoFailure, Rule: "H9"}
}

// class returns what went wrong, and the rule that says so.
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
		if o.Auth != Refreshed && o.Faults.Has(Deadline) && o.answered(p, c) {
			return Deadline, classes[Deadline].rule // A2: the deadline passed during the refresh
		}
		return c, p.statusRule(c, o.Status)
	}
	if o.Status >= 300 && !o.followed(p) { // H7 and H9: nothing after the head counts
		return NoClass, ""
	}
	c := o.responseFault()
	return c, classes[c].rule
}

// redirectClass applies P1, R3, R2 and R1.
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

// followed reports whether the response is a redirect to follow, by its status,
// the policy and the Location (H9).
func (o *Observation) followed(p *Policy) bool {
	switch o.Status {
	case 301, 302, 303, 307, 308:
		return p.Follow && o.Location == InScope
	}
	return false
}

// statusClass applies N10 and H1 to H8 to the status. Without a status it uses
// the fault that implies one.
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

// statusRule returns the rule of the class, or H10 if the status is retried only
// because the policy lists it.
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

// responseFault returns what went wrong after the head: C1, then a time limit,
// then the body. Only the body of a 2xx can fail, because no other is delivered.
func (o *Observation) responseFault() Class {
	delivered := o.Status == 0 || o.Status <= 299
	bodiless := o.Status == 204 || o.Status == 205
	if delivered && !bodiless {
		if c := o.Faults.first(contentFaults); c != NoClass {
			return c
		}
	}
	if c := o.Faults.first(timeFaults); c != NoClass {
		return c
	}
	if delivered {
		faults := o.Faults
		if bodiless || o.Status != 0 && cmp.Or(o.HopMethod, o.Method) == "HEAD" {
			faults = faults.without(EmptyBody)
		}
		if c := faults.first(bodyFaults); c != NoClass {
			return c
		}
	}
	if o.Status == 0 || o.Faults&^listed != 0 {
		return Internal // nothing was observed, or a fault that no list has: this is a bug
	}
	return NoClass
}

// decideFailure decides whether a failure is retried, and when.
func decideFailure(p *Policy, o *Observation, class Class, rule Rule) Decision {
	retried, failure := p.retries(class, o.Status)
	if class == HTTPClientError && o.Status == 421 && o.Reused { // the connection was the wrong one
		retried, failure, rule = true, Transient, "H11"
	}
	d := Decision{Kind: Failed, Class: class, FailureType: failure, ClassRule: rule}
	d.RetryAfter, d.HasRetryAfter = RetryAfter(o.RetryAfter, o.Date, o.Age, o.Observed)
	if o.Status == 429 && !d.HasRetryAfter && o.Exhausted > 0 { // W2
		d.RetryAfter, d.HasRetryAfter = o.Exhausted, true
	}
	refresh := o.answered(p, class)
	d.wait(p, o, refresh)
	d.Verdict, d.Rule = d.verdict(p, o, retried || refresh, refresh)
	d.Retryable = (refresh || d.passes()) && o.MaySendAgain(p)
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

// answered reports whether the credential of the next attempt may be right: after a 401 (A2), and after a 403
// that asks for a signature if the request may be sent again (A8).
func (o *Observation) answered(p *Policy, c Class) bool {
	switch o.Auth {
	case Refreshed, NotAsked:
		return c == AuthRequired
	case Challenged:
		return c == AuthRequired || c == Forbidden && (p.Repeatable(o.Method) || o.hopIsGET())
	}
	return false
}

// MaySendAgain reports whether a later fetch may send the request again: the policy allows it, or no origin
// can have processed it (spec §3, `retryable`).
func (o *Observation) MaySendAgain(p *Policy) bool {
	return p.Repeatable(o.Method) || o.Request == NotSent || o.Request == NotProcessed
}

// wait sets the delay and its source (W1, W2, A2, H11).
func (d *Decision) wait(p *Policy, o *Observation, refresh bool) {
	switch {
	case refresh:
		d.Delay, d.DelaySource = 0, FromAuthRefresh
	case d.HasRetryAfter && (o.Status == 429 || o.Status == 503):
		d.Delay, d.DelaySource = d.RetryAfter, FromRetryAfter
	case d.ClassRule == "H11":
		d.Delay, d.DelaySource = 0, FromNewConnection
	default:
		n := o.attempt()
		d.Delay, d.DelaySource = addSaturating(p.Backoff(n), p.Jitter(n)), FromBackoff
	}
}

// verdict returns the first stop reason that applies, in the order of I7, or Retry.
func (d *Decision) verdict(p *Policy, o *Observation, retried, refresh bool) (Verdict, Rule) {
	switch {
	case d.Class == Cancelled || d.Class == Shutdown || d.Class == OutOfMemory || d.Class == StoreFailure:
		return Stopped, d.ClassRule
	case d.Class == Deadline:
		return DeadlinePassed, d.ClassRule
	case d.Class == AuthRequired && (o.Auth == RefreshFailed || o.Auth == RefusedAgain):
		return AuthFailed, "A2"
	case !retried:
		return NotRetried, d.ClassRule
	case !refresh && !p.Repeatable(o.Method) && !o.hopIsGET():
		return NotIdempotent, "I2"
	case o.BodyCommitted:
		return BodyCommitted, "B3"
	case o.attempt() >= p.MaxAttempts:
		return AttemptsExhausted, "I4"
	case d.DelaySource == FromRetryAfter && d.Delay > p.MaxRetryAfter:
		return RetryAfterTooLong, "W3"
	case d.Delay >= o.TimeLeft || o.Faults.Has(Deadline):
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
	case FromNewConnection:
		return "H11"
	}
	return "W1"
}

// passes reports whether the failure may go away by itself (spec §3, `retryable`). An internal
// error of this server is transient, but whoever fetches again may meet the same bug.
func (d *Decision) passes() bool {
	return (d.FailureType == Transient || d.FailureType == RateLimit) && d.Class != Internal
}

func (o *Observation) attempt() int { return max(o.Attempt, 1) }

// hopIsGET reports whether the last hop was a GET. A redirect can change the method.
func (o *Observation) hopIsGET() bool { return o.HopMethod == "GET" }
