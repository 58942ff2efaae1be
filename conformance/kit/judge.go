package kit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"fetchd/client"
	"fetchd/conformance"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
)

// Mismatch is a difference between what was expected and what happened.
type Mismatch struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// judgement collects mismatches.
type judgement struct{ wrong []Mismatch }

func (j *judgement) same(what string, want, got any) {
	if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g {
		j.wrong = append(j.wrong, Mismatch{what, orNone(w), orNone(g)})
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Judge compares the result of a scenario with its expectations: first the service's reports,
// then the origin's requests, and then one with the other.
func (s *Scenario) Judge(o Origin, rec *Record) []Mismatch {
	j := new(judgement)
	if s.Want.Refused != "" {
		j.same("the call", "refused: InvalidArgument "+s.Want.Refused, "refused: "+refusal(rec.Err))
		j.requests(s, rec.Requests)
		return j.wrong
	}
	switch {
	case errors.Is(rec.Err, client.ErrContract):
		j.same("the stream", "as the contract requires", rec.Err)
		return j.wrong
	case rec.Err != nil:
		j.same("the call", "an outcome", rec.Err)
		return j.wrong
	}
	for _, breach := range rec.breaches {
		j.same("the stream", "as the contract requires", breach)
	}
	j.outcome(s, o, rec.Outcome)
	j.failure(s.outcome.GetError(), rec.Outcome)
	j.attempts(s, rec)
	j.body(s, o, rec)
	j.requests(s, rec.Requests)
	j.same("reported exchanges, and requests at the origin", rec.Outcome.GetExchangeCount(), len(rec.Requests))
	j.hops(rec)
	j.order(rec)
	return j.wrong
}

// refusal returns the status of a call and the fields that its BadRequest names.
func refusal(err error) string {
	st := status.Convert(err)
	text := st.Code().String()
	for _, detail := range st.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				text += " " + v.GetField()
			}
		}
	}
	return text
}

// neverStarted is the rule of a malformed task, which has no attempt and no URL.
const neverStarted = "P2"

// outcome compares the outcomes.
func (j *judgement) outcome(s *Scenario, o Origin, out *pb.FetchOutcome) {
	j.same("outcome", s.outcome.GetKind(), out.GetKind())
	j.same("rule of the outcome", s.outcome.GetDecisionRule(), out.GetDecisionRule())
	j.same("status", s.outcome.GetResponse().GetStatusCode(), out.GetResponse().GetStatusCode())
	if want := s.outcome.GetResponse(); want != nil && want.ContentLength != nil {
		j.same("length of the response", want.GetContentLength(), out.GetResponse().GetContentLength())
	}
	if want := s.outcome.GetResponseAttempt(); want > 0 {
		j.same("attempt of the response", want, out.GetResponseAttempt())
	}
	if s.outcome.GetDecisionRule() != neverStarted {
		j.same("final URL", s.finalURL(o), out.GetFinalUrl())
	}
	j.same("body truncated at the limit", s.outcome.GetBodySummary().GetTruncated(), out.GetBodySummary().GetTruncated())
	j.same("body that is only a part", s.outcome.GetBodySummary().GetPartialContent(), out.GetBodySummary().GetPartialContent())
	if out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		j.same("length of the body known", !s.Want.LengthUnknown, out.GetBodySummary().GetLengthKnown())
	}
	j.same("bytes of the stored object", s.Want.Stored, out.GetStoredObject().GetSizeBytes())
	j.same("digest of the stored object", storedDigest(out), out.GetStoredObject().GetSha256())
}

// storedDigest returns the digest that a stored object must have: that of the body.
func storedDigest(out *pb.FetchOutcome) string {
	if out.GetStoredObject() == nil {
		return ""
	}
	return out.GetBodySummary().GetSha256()
}

// failure compares the errors of the outcomes.
func (j *judgement) failure(want *pb.FetchError, out *pb.FetchOutcome) {
	got := out.GetError()
	switch unknown := pb.RequestState_REQUEST_STATE_UNKNOWN; {
	case want.GetRequestState() != 0:
		j.same("request state", want.GetRequestState(), got.GetRequestState())
	case got != nil:
		j.same("request state unknown", out.GetExchangeCount() > 0, got.GetRequestState() == unknown)
	}
	j.same("error class", want.GetErrorClass(), got.GetErrorClass())
	if want.GetReason() != "" {
		j.same("reason", want.GetReason(), got.GetReason())
	}
	j.same("rule of the class", want.GetClassRule(), got.GetClassRule())
	j.same("failure type", want.GetFailureType(), got.GetFailureType())
	j.same("retryable", want.GetRetryable(), got.GetRetryable())
	j.same("stop reason", want.GetStopReason(), got.GetStopReason())
	j.same("retry_after", want.GetRetryAfter().AsDuration(), got.GetRetryAfter().AsDuration())
}

// attempts compares the attempts and the waits between them.
func (j *judgement) attempts(s *Scenario, rec *Record) {
	attempts := len(s.waits) + 1
	if s.outcome.GetDecisionRule() == neverStarted {
		attempts = 0
	}
	j.same("attempts", attempts, rec.Outcome.GetAttemptCount())
	j.same("attempts reported when they ended", rec.Outcome.GetAttemptCount(), len(rec.Finished))
	var got []*pb.RetryDecision
	for _, f := range rec.Finished {
		if d := f.GetRetryDecision(); d.GetRetry() != nil {
			got = append(got, d)
		}
	}
	j.same("waits", waitText(s.waits), waitText(got))
	if len(s.Want.Answers) > 0 {
		answers := make([]int32, len(rec.Finished))
		for i, f := range rec.Finished {
			answers[i] = f.GetResponse().GetStatusCode()
		}
		j.same("statuses of the attempts", s.Want.Answers, answers)
	}
}

func waitText(waits []*pb.RetryDecision) string {
	texts := make([]string, len(waits))
	for i, w := range waits {
		source := strings.ToLower(strings.TrimPrefix(w.GetRetry().GetDelaySource().String(), "DELAY_SOURCE_"))
		texts[i] = fmt.Sprintf("%s %s (%s)", w.GetRetry().GetDelay().AsDuration(), source, w.GetRule())
	}
	return strings.Join(texts, ", ")
}

// body compares the delivered bytes with those of the origin, and with the digest that the service
// reported.
func (j *judgement) body(s *Scenario, o Origin, rec *Record) {
	want := o.Body(s.Want.Body)[min(s.Want.BodyFrom, s.Want.Body):]
	if !bytes.Equal(want, rec.Body) {
		j.same("body", bodyText(want), bodyText(rec.Body))
	}
	if s.request.GetBodyPolicy().GetAuto() != nil {
		j.same("body in the outcome", s.Want.Inline, rec.Inline)
	}
	if out := rec.Outcome; rec.Head != nil && out.GetKind() == pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		j.same("status before the body, and in the outcome", out.GetResponse().GetStatusCode(), rec.Head.GetResponse().GetStatusCode())
		j.same("URL before the body, and final URL", out.GetFinalUrl(), rec.Head.GetUrl())
	}
	sum := rec.Outcome.GetBodySummary().GetSha256()
	switch {
	case s.Want.Digest > 0:
		j.same("reported digest", fmt.Sprintf("%x", sha256.Sum256(o.Body(s.Want.Digest))), sum)
	case sum != "" && rec.Outcome.GetError() == nil:
		j.same("reported digest", fmt.Sprintf("%x", sha256.Sum256(rec.Body)), sum)
	}
}

func bodyText(b []byte) string {
	return fmt.Sprintf("%d bytes, sha256 %.6x…", len(b), sha256.Sum256(b))
}

// requests compares the requests at the origin.
func (j *judgement) requests(s *Scenario, got []origin.Request) {
	j.same("requests at the origin", s.Want.Requests, len(got))
	for i := range min(len(got), len(s.Want.Seen)) {
		j.sight(fmt.Sprintf(" of request %d", i+1), &s.Want.Seen[i], &got[i])
	}
}

// sight compares a request.
func (j *judgement) sight(which string, want *conformance.Sight, got *origin.Request) {
	if want.Method != "" {
		j.same("method"+which, want.Method, got.Method)
	}
	if want.Protocol != "" {
		j.same("protocol"+which, want.Protocol, got.Protocol)
	}
	if want.BodyBytes != nil {
		j.same("body bytes"+which, *want.BodyBytes, got.BodyBytes)
	}
	for name, value := range want.Has {
		j.same(name+which, value, strings.Join(got.Header.Values(name), ", "))
	}
	for _, name := range want.Lacks {
		j.same(name+which, "", strings.Join(got.Header.Values(name), ", "))
	}
}

// hops checks that the origin saw each hop that was sent, once and in this order, and nothing
// else.
func (j *judgement) hops(rec *Record) {
	var reported, seen []string
	for _, f := range rec.Finished {
		for _, hop := range sent(f) {
			path := hop.GetUrl()
			if u, err := url.Parse(path); err == nil {
				path = u.EscapedPath()
			}
			reported = append(reported, hop.GetMethod()+" "+path)
		}
	}
	for i := range rec.Requests {
		seen = append(seen, rec.Requests[i].Method+" "+rec.Requests[i].Path)
	}
	j.same("reported hops, and requests at the origin", strings.Join(reported, ", "), strings.Join(seen, ", "))
}

// order checks that no attempt reached the origin earlier after the previous one than the decided
// delay.
func (j *judgement) order(rec *Record) {
	next := 0 // index of the attempt's first request
	for i, f := range rec.Finished {
		first := next
		next += len(sent(f))
		if i == 0 || first == 0 || first >= len(rec.Requests) {
			continue
		}
		delay := rec.Finished[i-1].GetRetryDecision().GetRetry().GetDelay().AsDuration()
		gap := rec.Requests[first].Time.Sub(rec.Requests[first-1].Time)
		if gap < delay {
			j.same(fmt.Sprintf("wait before attempt %d", i+1), fmt.Sprintf("at least %s", delay), gap)
		}
	}
}

// sent returns the hops of an attempt whose requests reached the origin. That is each one,
// except a last one that failed before it had a connection, and those of a fetch of which nothing was processed.
func sent(f *pb.AttemptFinished) []*pb.Hop {
	hops := f.GetHops()
	if f.GetError().GetRequestState() == pb.RequestState_REQUEST_STATE_NOT_PROCESSED {
		return nil
	}
	switch f.GetError().GetPhase() {
	case pb.Phase_PHASE_POLICY, pb.Phase_PHASE_RESOLVE, pb.Phase_PHASE_CONNECT, pb.Phase_PHASE_TLS:
		if last := len(hops) - 1; last >= 0 && hops[last].GetStatusCode() == 0 {
			return hops[:last]
		}
	}
	return hops
}
