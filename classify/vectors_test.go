package classify_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/classify"
	"fetchd/conformance"
	"fetchd/conformance/mapping"
	"fetchd/fetch"
	"fetchd/fetch/urls"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
)

// verdictOf is the part of an ExplainResponse that classify decides.
type verdictOf struct {
	Kind, Class, Failure, ClassRule string
	Retryable                       bool
	RetryAfter                      string
	Verdict, Rule, Delay, Source    string
	Next                            int32
	Start                           string
	Followed                        bool
}

// TestVectors compares Decide with every vector.
func TestVectors(t *testing.T) {
	t.Parallel()
	vectors, err := conformance.Vectors()
	must.Succeed(t, err)
	if len(vectors) < 250 {
		t.Fatalf("got %d vectors, want at least 250", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			policy, seen := observation(t, &v.Observation)
			got := told(classify.Decide(policy, seen))
			if diff := cmp.Diff(expected(&v.Verdict), got); diff != "" {
				t.Errorf("%s: %s\n%s\n(-want +got)\n%s", v.File, v.Rule, v.Why, diff)
			}
		})
	}
}

// TestDecideAllocatesNothing runs every vector except those whose Retry-After or
// Date looks like a date but is invalid: time.Parse allocates an error for them.
func TestDecideAllocatesNothing(t *testing.T) {
	vectors, err := conformance.Vectors()
	must.Succeed(t, err)
	for _, v := range vectors {
		policy, seen := observation(t, &v.Observation)
		if unreadable(seen.RetryAfter, seen) || unreadable(seen.Date, seen) {
			continue
		}
		if n := testing.AllocsPerRun(10, func() { classify.Decide(policy, seen) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", v.Name, n)
		}
	}
}

// unreadable reports whether a value is long enough for a date but is not one.
func unreadable(value string, seen *classify.Observation) bool {
	if len(value) < 24 {
		return false
	}
	now := seen.Observed.AddDate(-1000, 0, 0) // so that no date is in the past
	_, ok := classify.RetryAfter(value, "", "", now)
	return !ok
}

// observation converts a vector's observation to what an engine would have observed.
func observation(t *testing.T, o *conformance.Observation) (*classify.Policy, *classify.Observation) {
	t.Helper()
	in := mapping.ExplainRequest(o)
	policy := policyOf(in)
	seen := &classify.Observation{
		Method: in.GetMethod(), HopMethod: in.GetHopMethod(), Attempt: int(in.GetAttempt()),
		Redirects:   int(in.GetRedirectCount()),
		Conditional: in.GetConditional(), BodyCommitted: in.GetBodyCommitted(),
		Request: classify.RequestState(in.GetRequestState()), Reused: in.GetConnectionReused(),
		Auth: classify.AuthResult(in.GetAuthResult()), Observed: time.Now(), TimeLeft: classify.Unbounded,
	}
	if seen.HopMethod == "" {
		seen.HopMethod = or(seen.Method, "GET")
	}
	if in.GetObserveTime() != nil {
		seen.Observed = in.GetObserveTime().AsTime()
	}
	if in.GetRemainingDuration() != nil {
		seen.TimeLeft = in.GetRemainingDuration().AsDuration()
	}
	for _, c := range in.GetErrorClasses() {
		seen.Faults = seen.Faults.With(classify.Class(c))
	}
	if r := in.GetResponse(); r != nil {
		seen.Status = int(r.GetStatusCode())
		seen.RetryAfter, seen.Date, seen.Age = line(r, "Retry-After"), line(r, "Date"), line(r, "Age")
		header := make(http.Header)
		for _, h := range r.GetHeaders() {
			header.Add(h.GetName(), h.GetValue())
		}
		seen.Exhausted = fetch.Exhausted(fetch.RateLimits(header, seen.Observed))
		step := step(t, in, seen)
		seen.Location, seen.Faults = step.Location, seen.Faults.With(step.Fault)
	}
	return policy, seen
}

func step(t *testing.T, in *pb.ExplainRequest, seen *classify.Observation) fetch.Step {
	t.Helper()
	start := or(in.GetUrl(), "http://origin.example/")
	scope := map[pb.RedirectScope]fetch.Scope{
		pb.RedirectScope_REDIRECT_SCOPE_SAME_HOST:   fetch.SameHost,
		pb.RedirectScope_REDIRECT_SCOPE_SAME_ORIGIN: fetch.SameOrigin,
	}[in.GetRedirectPolicy().GetScope()]
	rules := fetch.RedirectRules{Scope: scope, ForbidDowngrade: in.GetRedirectPolicy().GetForbidDowngrade()}
	return fetch.ResolveRedirect(rules, parse(t, start), parse(t, or(in.GetHopUrl(), start)),
		seen.HopMethod, seen.Status, line(in.GetResponse(), "Location"))
}

func policyOf(in *pb.ExplainRequest) *classify.Policy {
	r, profile := in.GetRetryPolicy(), classify.Standard
	if r.GetProfile() == pb.RetryProfile_RETRY_PROFILE_DOWNLOAD {
		profile = classify.Download
	}
	p := profile.Policy()
	if r == nil {
		r = new(pb.RetryPolicy)
	}
	set(&p.MaxAttempts, r.MaxAttempts, func(n int32) int { return int(n) })
	set(&p.Multiplier, r.Multiplier, func(m float64) float64 { return m })
	set(&p.RetryTLSHandshake, r.RetryTlsHandshake, func(b bool) bool { return b })
	duration(&p.BaseDelay, r.BaseDelay)
	duration(&p.MaxDelay, r.MaxDelay)
	duration(&p.MaxJitter, r.MaxJitter)
	duration(&p.MaxRetryAfter, r.MaxRetryAfter)
	p.JitterSeed = r.GetJitterSeed()
	p.RepeatUnsafe = r.GetAllowNonIdempotent() && r.GetIdempotencyKey() != ""
	for _, s := range r.GetAdditionalStatusCodes() {
		p.Additional = append(p.Additional, int(s))
	}
	for _, s := range r.GetExcludedStatusCodes() {
		p.Excluded = append(p.Excluded, int(s))
	}
	if redirects := in.GetRedirectPolicy(); redirects != nil {
		set(&p.Follow, redirects.Follow, func(b bool) bool { return b })
		set(&p.MaxRedirects, redirects.MaxRedirects, func(n int32) int { return int(n) })
	}
	return &p
}

func set[T, P any](field *T, value *P, convert func(P) T) {
	if value != nil {
		*field = convert(*value)
	}
}

func duration(field *time.Duration, d *durationpb.Duration) {
	if d != nil {
		*field = d.AsDuration()
	}
}

func expected(want *conformance.Verdict) verdictOf {
	m := mapping.ExplainResponse(new(conformance.Observation), want)
	d, retry := m.GetRetryDecision(), m.GetRetryDecision().GetRetry()
	v := verdictOf{
		Kind:  lower(m.GetKind().String(), "OUTCOME_KIND_"),
		Class: lower(m.GetError().GetErrorClass().String(), "ERROR_CLASS_"), Failure: lower(m.GetError().GetFailureType().String(), "FAILURE_TYPE_"),
		ClassRule: m.GetError().GetClassRule(), Retryable: m.GetError().GetRetryable(),
		RetryAfter: written(m.GetError().GetRetryAfter()),
		Verdict:    lower(d.GetStopReason().String(), "STOP_REASON_"), Rule: d.GetRule(),
		Delay:  written(retry.GetDelay()),
		Source: lower(retry.GetDelaySource().String(), "DELAY_SOURCE_"),
		Next:   retry.GetAttempt(), Start: retry.GetStart().String(),
		Followed: m.GetRedirect() != nil,
	}
	if retry != nil {
		v.Verdict = "retry"
	}
	return v
}

func told(d classify.Decision) verdictOf {
	v := verdictOf{
		Kind: d.Kind.String(), Class: d.Class.String(), Failure: d.FailureType.String(), ClassRule: string(d.ClassRule),
		Retryable: d.Retryable, Verdict: d.Verdict.String(), Rule: string(d.Rule),
		Source: d.DelaySource.String(), Next: int32(d.NextAttempt), Start: pb.RetryStart(d.Start).String(), Followed: d.Follow,
	}
	if d.HasRetryAfter {
		v.RetryAfter = d.RetryAfter.String()
	}
	if d.Verdict == classify.Retry {
		v.Delay = d.Delay.String()
	}
	return v
}

func written(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return d.AsDuration().String()
}

func lower(name, prefix string) string {
	short := strings.ToLower(strings.TrimPrefix(name, prefix))
	if short == "unspecified" {
		return ""
	}
	return short
}

func line(r *pb.HttpResponse, name string) string {
	for _, h := range r.GetHeaders() {
		if strings.EqualFold(h.GetName(), name) {
			return h.GetValue()
		}
	}
	return ""
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func parse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := urls.Parse(raw)
	if err != nil {
		t.Fatalf("url %q: %v", raw, err)
	}
	return u
}
