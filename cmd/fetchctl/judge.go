package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/origin"
)

// mismatch is one thing that did not hold.
type mismatch struct {
	what, want, got string
}

// judgement collects what did not hold.
type judgement struct{ wrong []mismatch }

func (j *judgement) same(what string, want, got any) {
	if w, g := fmt.Sprint(want), fmt.Sprint(got); w != g {
		j.wrong = append(j.wrong, mismatch{what, orNone(w), orNone(g)})
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// judge holds what came of a scenario against what must hold: first what the
// service told, then what the origin saw, then one against the other.
func (s *scenario) judge(o *origin.Origin, rec *record) []mismatch {
	j := new(judgement)
	if rec.err != nil {
		j.same("the call", "an outcome", rec.err)
		return j.wrong
	}
	j.outcome(s, o, rec)
	j.attempts(&s.want, rec)
	j.body(o.Body(s.want.body), rec)
	j.requests(&s.want, rec)
	j.order(rec)
	return j.wrong
}

// outcome compares how the fetch ended.
func (j *judgement) outcome(s *scenario, o *origin.Origin, rec *record) {
	out, want := rec.outcome, &s.want
	e := out.GetError()
	j.same("outcome", label(want.kind), label(out.GetKind()))
	j.same("error class", label(want.class), label(e.GetErrorClass()))
	j.same("rule of the class", want.rule, e.GetRule())
	j.same("failure type", label(want.failure), label(e.GetFailureType()))
	j.same("retryable", want.retryable, e.GetRetryable())
	j.same("stop reason", label(want.stop), label(e.GetStopReason()))
	j.same("retry_after", want.retryAfter, e.GetRetryAfter().AsDuration())
	final := want.final
	if final == "" {
		final = s.path
	}
	j.same("final URL", s.url(o, final), out.GetFinalUrl())
}

// attempts compares the attempts and the waits between them.
func (j *judgement) attempts(want *expectation, rec *record) {
	j.same("attempts", len(want.waits)+1, rec.outcome.GetAttempts())
	j.same("attempts told as they ended", rec.outcome.GetAttempts(), len(rec.finished))
	var got []wait
	for _, f := range rec.finished {
		if d := f.GetRetryDecision(); d.GetVerdict() == pb.RetryVerdict_RETRY_VERDICT_RETRY {
			got = append(got, wait{d.GetDelay().AsDuration(), d.GetDelaySource(), d.GetRule()})
		}
	}
	j.same("waits", waitText(want.waits), waitText(got))
}

func waitText(waits []wait) string {
	text := ""
	for i, w := range waits {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %s (%s)", w.delay, words(w.source), w.rule)
	}
	return text
}

// body compares the bytes that came with those that the origin meant to send,
// and with the digest that the service told.
func (j *judgement) body(want []byte, rec *record) {
	if !bytes.Equal(want, rec.body) {
		j.same("body", bodyText(want), bodyText(rec.body))
	}
	if sum := rec.outcome.GetBodySummary().GetSha256(); sum != "" && rec.outcome.GetError() == nil {
		j.same("digest told", fmt.Sprintf("%x", sha256.Sum256(rec.body)), sum)
	}
}

func bodyText(b []byte) string {
	return fmt.Sprintf("%d bytes, sha256 %.6x…", len(b), sha256.Sum256(b))
}

// requests compares what the origin saw, and its number with what was told.
func (j *judgement) requests(want *expectation, rec *record) {
	j.same("requests that the origin saw", want.requests, len(rec.requests))
	j.same("exchanges told, and requests that the origin saw", rec.outcome.GetExchanges(), len(rec.requests))
	for i, r := range rec.requests {
		j.same(fmt.Sprintf("Idempotency-Key of request %d", i+1), want.key, r.Header.Get("Idempotency-Key"))
	}
}

// order checks that no attempt reached the origin sooner after the one before
// than was decided.
func (j *judgement) order(rec *record) {
	next := 0 // index of the attempt's first request
	for i, f := range rec.finished {
		first := next
		next += requestsOf(f)
		if i == 0 || first == 0 || first >= len(rec.requests) {
			continue
		}
		delay := rec.finished[i-1].GetRetryDecision().GetDelay().AsDuration()
		gap := rec.requests[first].Time.Sub(rec.requests[first-1].Time)
		if gap < delay {
			j.same(fmt.Sprintf("wait before attempt %d", i+1), fmt.Sprintf("at least %s", delay), gap)
		}
	}
}

// requestsOf is how many requests an attempt says it made.
func requestsOf(f *pb.AttemptFinished) int {
	n := 0
	for _, hop := range f.GetHops() {
		n += 1 + int(hop.GetExchange().GetTransportResendCount())
	}
	return n
}
