package conversion

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
)

// explainURL is the URL of the fetch if the request sets none.
const explainURL = "http://origin.example/"

// explanation validates and converts an ExplainRequest.
type explanation struct {
	violations
	in     *pb.ExplainRequest
	policy classify.Policy
	seen   classify.Observation
	step   fetch.Step
}

// Explain returns the decision about an observation. It fetches nothing.
func Explain(in *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	x := &explanation{in: in}
	x.readPolicy()
	x.readState()
	x.readObservation()
	if err := x.Err(); err != nil {
		return nil, err
	}
	d := classify.Decide(&x.policy, &x.seen)
	out := &pb.ExplainResponse{EffectiveRetryPolicy: new(pb.RetryPolicy)}
	effectiveRetry(out.EffectiveRetryPolicy, &x.policy, in.GetRetryPolicy().GetIdempotencyKey(), new(durations))
	if d.Follow {
		out.Next = &pb.ExplainResponse_Redirect{Redirect: &pb.RedirectStep{Url: x.step.URL.String(), Method: x.step.Method,
			BodyKept: x.step.BodyKept, CrossOrigin: x.step.CrossOrigin}}
		return out, nil
	}
	out.Kind, out.Next = pb.OutcomeKind(d.Kind).Enum(), &pb.ExplainResponse_RetryDecision{RetryDecision: decision(new(decisionMessages), &d)}
	if d.Class != classify.NoClass {
		out.Error = failure(&fetch.Failure{Class: d.Class, FailureType: d.FailureType, Rule: d.ClassRule, Reason: x.reason(d.Class),
			Retryable: d.Retryable, Request: x.seen.Request, RetryAfter: d.RetryAfter, HasRetryAfter: d.HasRetryAfter})
	}
	return out, nil
}

// reason returns the reason that a fetch would give for a failure of a redirect. Explain is not told
// the reasons of other failures.
func (x *explanation) reason(c classify.Class) string {
	switch c {
	case classify.TooManyRedirects, classify.RedirectLoop:
		return c.String()
	case classify.RedirectRejected:
		return x.step.Reason // empty if the class is in the faults only
	}
	return ""
}

func (x *explanation) readPolicy() {
	profile := enum(&x.violations, "retry_policy.profile", x.in.GetRetryPolicy().GetProfile(), profiles)
	x.policy = profile.Policy()
	x.retryPolicy(x.in.GetRetryPolicy(), &x.policy)
	x.redirectPolicy(x.in.GetRedirectPolicy(), &x.policy)
}

func (x *explanation) readState() {
	in := x.in
	x.seen.Method = cmp.Or(in.GetMethod(), "GET")
	x.method("method", x.seen.Method)
	x.seen.HopMethod = cmp.Or(in.GetHopMethod(), x.seen.Method)
	if in.GetHopMethod() != "" {
		x.method("hop_method", x.seen.HopMethod)
	}
	x.seen.Attempt = int(badrequest.Integer(&x.Violations, "attempt", &in.Attempt, 0, 0, 1<<31-1))
	x.seen.Redirects = int(badrequest.Integer(&x.Violations, "redirect_count", &in.RedirectCount, 0, 0, 1<<31-1))
	x.seen.TimeLeft = x.Duration("remaining_duration", in.GetRemainingDuration(), classify.Unbounded, 0, classify.Unbounded)
	x.seen.BodyCommitted, x.seen.Conditional, x.seen.Reused = in.GetBodyCommitted(), in.GetConditional(), in.GetConnectionReused()
	if _, known := pb.AuthResult_name[int32(in.GetAuthResult())]; !known {
		x.Add("auth_result", "is %s, which this server does not know", in.GetAuthResult())
	}
	if r := in.GetAuthResult(); r != pb.AuthResult_AUTH_RESULT_NO_PROVIDER { // which is the zero value in package classify
		x.seen.Auth = classify.AuthResult(r)
	}
	x.seen.Request = cmp.Or(classify.RequestState(in.GetRequestState()), classify.Unknown)
	if _, known := pb.RequestState_name[int32(in.GetRequestState())]; !known {
		x.Add("request_state", "is %s, which this server does not know", in.GetRequestState())
	}
	x.seen.Observed = time.Now()
	if t := in.GetObserveTime(); t != nil {
		if t.CheckValid() != nil {
			x.Add("observe_time", "is not a valid time")
		}
		x.seen.Observed = t.AsTime()
	}
}

func (x *explanation) readObservation() {
	if x.in.GetResponse() == nil && len(x.in.GetErrorClasses()) == 0 {
		x.Add("response", "is not set, and error_classes is empty: give what was observed")
	}
	for i, c := range x.in.GetErrorClasses() {
		if _, known := pb.ErrorClass_name[int32(c)]; !known || c == pb.ErrorClass_ERROR_CLASS_UNSPECIFIED {
			x.Add(badrequest.Indexed("error_classes", i), "is %s: give a class that this server knows", c)
			continue
		}
		x.seen.Faults = x.seen.Faults.With(classify.Class(c))
	}
	r := x.in.GetResponse()
	if r == nil {
		return
	}
	if s := r.GetStatusCode(); s < 1 || s > 999 {
		x.Add("response.status_code", "is %d: give 1 to 999", s)
	}
	x.seen.Status = int(r.GetStatusCode())
	x.seen.RetryAfter, x.seen.Date, x.seen.Age = first(r, "Retry-After"), first(r, "Date"), first(r, "Age")
	x.seen.Exhausted = fetch.Exhausted(fetch.RateLimits(headerOf(r), x.seen.Observed))
	x.readRedirect(first(r, "Location"))
}

// readRedirect resolves a Location as the fetch would.
func (x *explanation) readRedirect(location string) {
	start := x.url("url", x.in.GetUrl(), explainURL)
	from := x.url("hop_url", x.in.GetHopUrl(), cmp.Or(x.in.GetUrl(), explainURL))
	scope := enum(&x.violations, "redirect_policy.scope", x.in.GetRedirectPolicy().GetScope(), scopes)
	if start == nil || from == nil {
		return
	}
	rules := fetch.RedirectRules{Scope: scope, ForbidDowngrade: x.in.GetRedirectPolicy().GetForbidDowngrade()}
	x.step = fetch.ResolveRedirect(rules, start, from, x.seen.HopMethod, x.seen.Status, location)
	x.seen.Location = x.step.Location
	x.seen.Faults = x.seen.Faults.With(x.step.Fault)
}

func (x *explanation) url(field, raw, fallback string) *url.URL {
	u, err := urls.Parse(cmp.Or(raw, fallback))
	if err != nil {
		x.Add(field, "%s", err)
		return nil
	}
	return u
}

// headerOf returns the header of a response. As in first, raw values come before others.
func headerOf(r *pb.HttpResponse) http.Header {
	h := make(http.Header)
	for _, l := range r.GetHeaders() {
		h.Add(l.GetName(), cmp.Or(string(l.GetRawValue()), l.GetValue()))
	}
	return h
}

// first returns the value of the first header line with that name.
func first(r *pb.HttpResponse, name string) string {
	for _, h := range r.GetHeaders() {
		if strings.EqualFold(h.GetName(), name) {
			return cmp.Or(string(h.GetRawValue()), h.GetValue())
		}
	}
	return ""
}
