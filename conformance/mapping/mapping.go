// Package mapping maps the data of package conformance to the messages of fetchd.v1. It is the only place
// that knows both.
package mapping

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/conformance"
	pb "fetchd/gen/fetchd/v1"
)

// enum returns the number of a value of an enum, given its name in the data.
func enum[E ~int32](values map[string]int32, prefix, name string) E {
	if name == "" {
		return 0
	}
	n, ok := values[prefix+strings.ToUpper(name)]
	if !ok {
		return -1 // no service sends or accepts it
	}
	return E(n)
}

// ExplainRequest returns the request of Explain for an observation.
func ExplainRequest(o *conformance.Observation) *pb.ExplainRequest {
	in := &pb.ExplainRequest{RetryPolicy: retryPolicy(o.RetryPolicy), RedirectPolicy: redirectPolicy(o.RedirectPolicy), Url: o.URL, Method: o.Method, HopUrl: o.HopURL, HopMethod: o.HopMethod,
		Attempt: int32(o.Attempt), RedirectCount: int32(o.Redirects), Conditional: o.Conditional, BodyCommitted: o.BodyCommitted,
		RemainingDuration: duration(o.TimeLeft), AuthResult: enum[pb.AuthResult](pb.AuthResult_value, "AUTH_RESULT_", o.Credential),
		RequestState: enum[pb.RequestState](pb.RequestState_value, "REQUEST_STATE_", o.RequestState), ConnectionReused: o.Reused}
	if o.ObservedAt != nil {
		in.ObserveTime = timestamppb.New(*o.ObservedAt)
	}
	if r := o.Response; r != nil {
		in.Response = &pb.HttpResponse{StatusCode: int32(r.Status), Headers: headers(r.Headers)}
	}
	for _, class := range o.Failures {
		in.ErrorClasses = append(in.ErrorClasses, enum[pb.ErrorClass](pb.ErrorClass_value, "ERROR_CLASS_", class))
	}
	return in
}

// ExplainResponse returns the response of Explain that a verdict on an observation demands.
func ExplainResponse(o *conformance.Observation, v *conformance.Verdict) *pb.ExplainResponse {
	out := new(pb.ExplainResponse)
	if v.Outcome != "" {
		out.Kind = new(enum[pb.OutcomeKind](pb.OutcomeKind_value, "OUTCOME_KIND_", v.Outcome))
	}
	if v.Failure != nil {
		out.Error = failure(v.Failure)
		out.Error.RequestState = cmp.Or(ExplainRequest(o).GetRequestState(), pb.RequestState_REQUEST_STATE_UNKNOWN)
	}
	if r := v.Redirect; r != nil {
		out.Next = &pb.ExplainResponse_Redirect{Redirect: &pb.RedirectStep{Url: r.URL, Method: r.Method, BodyKept: r.BodyKept, CrossOrigin: r.CrossOrigin}}
	}
	if d := v.Decision; d != nil {
		out.Next = &pb.ExplainResponse_RetryDecision{RetryDecision: decision(d)}
	}
	return out
}

// Verdict returns what a response of Explain says, as a verdict.
func Verdict(in *pb.ExplainResponse) *conformance.Verdict {
	out := new(conformance.Verdict)
	if in.Kind != nil {
		out.Outcome = name(in.GetKind(), "OUTCOME_KIND_")
	}
	if e := in.GetError(); e != nil {
		out.Failure = &conformance.Failure{Class: name(e.GetErrorClass(), "ERROR_CLASS_"), Type: name(e.GetFailureType(), "FAILURE_TYPE_"), Rule: e.GetClassRule(), Retryable: e.GetRetryable(), Reason: e.GetReason()}
		if e.GetRetryAfter() != nil {
			out.Failure.RetryAfter = new(conformance.Duration(e.GetRetryAfter().AsDuration()))
		}
	}
	if r := in.GetRedirect(); r != nil {
		out.Redirect = &conformance.Redirect{URL: r.GetUrl(), Method: r.GetMethod(), BodyKept: r.GetBodyKept(), CrossOrigin: r.GetCrossOrigin()}
	}
	if d := in.GetRetryDecision(); d != nil {
		out.Decision = &conformance.Decision{Rule: d.GetRule()}
		if r := d.GetRetry(); r != nil {
			out.Decision.Retry = &conformance.Retry{Attempt: int(r.GetAttempt()), Delay: conformance.Duration(r.GetDelay().AsDuration()),
				Source: name(r.GetDelaySource(), "DELAY_SOURCE_"), Start: name(r.GetStart(), "RETRY_START_")}
		} else {
			out.Decision.Stop = name(d.GetStopReason(), "STOP_REASON_")
		}
	}
	return out
}

// name returns the name of a value of an enum in the data.
func name(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}

// FetchRequest returns the request for what a scenario asks for, without a URL.
func FetchRequest(f *conformance.Fetch) *pb.FetchRequest {
	in := &pb.FetchRequest{Method: f.Method, Headers: headers(f.Headers), Body: []byte(f.Body), RetryPolicy: retryPolicy(f.RetryPolicy), RedirectPolicy: redirectPolicy(f.RedirectPolicy),
		AuthProvider: f.Credential, BodyPolicy: bodyPolicy(f)}
	if l := f.TimeLimits; l != nil {
		in.TimeoutPolicy = &pb.TimeoutPolicy{TotalTimeout: duration(l.Total), AttemptTimeout: duration(l.Attempt), HeaderTimeout: duration(l.Header), IdleTimeout: duration(l.Idle)}
	}
	if c := f.Condition; c != nil {
		in.Precondition = &pb.Precondition{Etags: c.ETags}
		if c.LastModified != nil {
			in.Precondition.LastModifiedTime = timestamppb.New(*c.LastModified)
		}
	}
	if c := f.Content; c != nil {
		in.ContentPolicy = &pb.ContentPolicy{AcceptedMediaTypes: c.MediaTypes, RequireBody: c.RequireBody, RequireValidCharset: c.RequireCharset}
	}
	if c := f.Integrity; c != nil {
		in.Integrity = &pb.Integrity{Sha256: c.SHA256, SizeBytes: c.Size}
	}
	if f.Cookies {
		in.CookieMode = pb.CookieMode_COOKIE_MODE_WITHIN_FETCH
	}
	return in
}

func bodyPolicy(f *conformance.Fetch) *pb.BodyPolicy {
	if f.MaxBodyBytes == 0 && !f.Truncate && f.Delivery == nil {
		return nil
	}
	out := new(pb.BodyPolicy)
	if f.MaxBodyBytes != 0 {
		out.MaxSizeBytes = &f.MaxBodyBytes
	}
	if f.Truncate {
		out.OversizeAction = pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE
	}
	d := f.Delivery
	if d == nil {
		return out
	}
	stream := &pb.StreamDelivery{MaxHoldBackBytes: d.HoldBackBytes, Recovery: enum[pb.BodyRecovery](pb.BodyRecovery_value, "BODY_RECOVERY_", d.Recovery)}
	if p := d.ResumePoint; p != nil {
		stream.ResumePoint = &pb.ResumePoint{OffsetBytes: p.Offset, Validator: p.Validator}
	}
	switch d.How {
	case "stream":
		out.Delivery = &pb.BodyPolicy_Stream{Stream: stream}
	case "auto":
		out.Delivery = &pb.BodyPolicy_Auto{Auto: stream}
	case "digest":
		out.Delivery = &pb.BodyPolicy_Digest{Digest: new(pb.DigestDelivery)}
	case "store":
		out.Delivery = &pb.BodyPolicy_Store{Store: &pb.StoreDelivery{Store: d.Store, Key: d.Key}}
	}
	return out
}

// Outcome returns the outcome that a scenario demands.
func Outcome(o *conformance.Outcome) *pb.FetchOutcome {
	out := &pb.FetchOutcome{Kind: enum[pb.OutcomeKind](pb.OutcomeKind_value, "OUTCOME_KIND_", o.Kind), DecisionRule: o.Rule, ResponseAttempt: int32(o.ResponseAttempt),
		BodySummary: &pb.BodySummary{Truncated: o.Truncated, PartialContent: o.PartialContent}}
	if o.Status != 0 {
		out.Response = &pb.HttpResponse{StatusCode: int32(o.Status), ContentLength: o.ContentLength}
	}
	if o.Failure != nil {
		out.Error = failure(o.Failure)
		if o.Stop != "" {
			out.Error.StopReason = new(enum[pb.StopReason](pb.StopReason_value, "STOP_REASON_", o.Stop))
		}
	}
	return out
}

// Wait returns the decision for a wait that a scenario demands, as far as it is compared.
func Wait(w *conformance.Wait) *pb.RetryDecision {
	return decision(&conformance.Decision{Rule: w.Rule, Retry: &conformance.Retry{Delay: w.Delay, Source: w.Source}})
}

func failure(f *conformance.Failure) *pb.FetchError {
	return &pb.FetchError{ErrorClass: enum[pb.ErrorClass](pb.ErrorClass_value, "ERROR_CLASS_", f.Class), FailureType: enum[pb.FailureType](pb.FailureType_value, "FAILURE_TYPE_", f.Type),
		ClassRule: f.Rule, Retryable: f.Retryable, RetryAfter: duration(f.RetryAfter), Reason: f.Reason,
		RequestState: enum[pb.RequestState](pb.RequestState_value, "REQUEST_STATE_", f.RequestState)}
}

func decision(d *conformance.Decision) *pb.RetryDecision {
	out := &pb.RetryDecision{Rule: d.Rule}
	if d.Stop != "" {
		out.Next = &pb.RetryDecision_StopReason{StopReason: enum[pb.StopReason](pb.StopReason_value, "STOP_REASON_", d.Stop)}
	}
	if r := d.Retry; r != nil {
		out.Next = &pb.RetryDecision_Retry{Retry: &pb.Retry{Attempt: int32(r.Attempt), Delay: duration(&r.Delay),
			DelaySource: enum[pb.DelaySource](pb.DelaySource_value, "DELAY_SOURCE_", r.Source), Start: enum[pb.RetryStart](pb.RetryStart_value, "RETRY_START_", r.Start)}}
	}
	return out
}

func retryPolicy(p *conformance.RetryPolicy) *pb.RetryPolicy {
	if p == nil {
		return nil
	}
	out := &pb.RetryPolicy{Profile: enum[pb.RetryProfile](pb.RetryProfile_value, "RETRY_PROFILE_", p.Profile), MaxAttempts: number(p.MaxAttempts), BaseDelay: duration(p.BaseDelay),
		MaxDelay: duration(p.MaxDelay), Multiplier: p.Multiplier, MaxJitter: duration(p.MaxJitter), MaxRetryAfter: duration(p.MaxRetryAfter), RetryTlsHandshake: p.RetryTLSHandshake,
		AdditionalStatusCodes: numbers(p.AdditionalStatuses), ExcludedStatusCodes: numbers(p.ExcludedStatuses), IdempotencyKey: p.IdempotencyKey, AllowNonIdempotent: p.AllowNonIdempotent}
	seed := uint64(0) // without one the service draws one
	if p.JitterSeed != nil {
		seed = uint64(*p.JitterSeed)
	}
	out.JitterSeed = &seed
	return out
}

func redirectPolicy(p *conformance.RedirectPolicy) *pb.RedirectPolicy {
	if p == nil {
		return nil
	}
	return &pb.RedirectPolicy{Follow: p.Follow, MaxRedirects: number(p.MaxRedirects), Scope: enum[pb.RedirectScope](pb.RedirectScope_value, "REDIRECT_SCOPE_", p.Scope),
		ForbidDowngrade: p.ForbidDowngrade, ForwardCredentials: p.ForwardCredentials}
}

func headers(pairs [][2]string) []*pb.Header {
	var all []*pb.Header
	for _, p := range pairs {
		all = append(all, &pb.Header{Name: p[0], Value: p[1]})
	}
	return all
}

func duration(d *conformance.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(time.Duration(*d))
}

func number(n *int) *int32 {
	if n == nil {
		return nil
	}
	return new(int32(*n))
}

func numbers(all []int) []int32 {
	var out []int32
	for _, n := range all {
		out = append(out, int32(n))
	}
	return out
}
