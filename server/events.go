package server

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/classify"
	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
)

// replacement stands for bytes of an origin that are not UTF-8.
const replacement = "\uFFFD"

// text makes bytes of an origin fit for a proto string: one byte that is not
// UTF-8 would fail the whole call.
func text(s string) string { return strings.ToValidUTF8(s, replacement) }

// headerLines sorts a header by name and gives each line its bytes where they
// are no text.
func headerLines(h http.Header) []*pb.Header {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	all, lines := make([]pb.Header, n), make([]*pb.Header, 0, n)
	for name, values := range h {
		for _, value := range values {
			line := &all[len(lines)]
			line.Name, line.Value = text(name), value
			if !utf8.ValidString(value) {
				line.Value, line.RawValue = text(value), []byte(value)
			}
			lines = append(lines, line)
		}
	}
	slices.SortStableFunc(lines, byName)
	return lines
}

func byName(a, b *pb.Header) int { return cmp.Compare(a.Name, b.Name) }

// event converts an event of package fetch into resp.
func event(resp *pb.FetchResponse, e fetch.Event) {
	switch e := e.(type) {
	case fetch.AttemptStarted:
		resp.Event = &pb.FetchResponse_AttemptStarted{AttemptStarted: &pb.AttemptStarted{
			Attempt: int32(e.Attempt), Url: text(e.URL)}}
	case fetch.RedirectFollowed:
		resp.Event = &pb.FetchResponse_RedirectFollowed{RedirectFollowed: &pb.RedirectFollowed{
			Attempt: int32(e.Attempt), Hop: hop(&e.Hop)}}
	case fetch.ResponseStarted:
		resp.Event = &pb.FetchResponse_ResponseStarted{ResponseStarted: &pb.ResponseStarted{
			Attempt: int32(e.Attempt), Response: response(e.Response),
			BodyOffsetBytes: e.BodyOffset, HoldBackBytes: e.HoldBack}}
	case fetch.BodyChunk:
		resp.Event = &pb.FetchResponse_BodyChunk{BodyChunk: &pb.BodyChunk{
			Attempt: int32(e.Attempt), OffsetBytes: e.Offset, Data: e.Data}}
	case fetch.AttemptFinished:
		resp.Event = &pb.FetchResponse_AttemptFinished{AttemptFinished: attemptFinished(&e)}
	}
}

func attemptFinished(e *fetch.AttemptFinished) *pb.AttemptFinished {
	m := &pb.AttemptFinished{
		Attempt: int32(e.Attempt), Response: response(e.Response), Error: failure(e.Failure),
		RetryDecision: decision(&e.Decision), Hops: hops(e.Hops),
	}
	if n := len(e.Hops); n > 0 {
		m.Exchange = m.Hops[n-1].Exchange
	}
	return m
}

func decision(d *classify.Decision) *pb.RetryDecision {
	m := &pb.RetryDecision{Verdict: pb.RetryVerdict(d.Verdict), Rule: string(d.Rule),
		DelaySource: pb.DelaySource(d.DelaySource), NextAttempt: int32(d.NextAttempt), Start: pb.RetryStart(d.Start)}
	if d.Verdict == classify.Retry {
		m.Delay = durationpb.New(d.Delay)
	}
	return m
}

func response(r *fetch.Response) *pb.HttpResponse {
	if r == nil {
		return nil
	}
	m := &pb.HttpResponse{StatusCode: int32(r.StatusCode), Protocol: r.Protocol, Headers: headerLines(r.Header)}
	if r.ContentLength >= 0 {
		m.ContentLength = &r.ContentLength
	}
	return m
}

func failure(f *fetch.Failure) *pb.FetchError {
	if f == nil {
		return nil
	}
	m := &pb.FetchError{
		ErrorClass: pb.ErrorClass(f.Class), FailureType: pb.FailureType(f.FailureType), Rule: string(f.Rule),
		Reason: f.Reason, Message: f.Message, Phase: pb.Phase(f.Phase), Retryable: f.Retryable, Url: text(f.URL),
	}
	if f.HasRetryAfter {
		m.RetryAfter = durationpb.New(f.RetryAfter)
	}
	return m
}

func hops(in []fetch.Hop) []*pb.Hop {
	out := make([]*pb.Hop, len(in))
	for i := range in {
		out[i] = hop(&in[i])
	}
	return out
}

func hop(h *fetch.Hop) *pb.Hop {
	d := make(durations, 1+happened(&h.Exchange))
	m := &pb.Hop{Url: text(h.URL), Method: h.Method, StatusCode: int32(h.StatusCode), LocationUrl: text(h.LocationURL),
		Exchange: exchange(&h.Exchange, &d), StartOffset: d.of(h.Start)}
	if h.Header != nil {
		m.Headers = headerLines(h.Header)
	}
	return m
}

func exchange(x *fetch.Exchange, d *durations) *pb.Exchange {
	return &pb.Exchange{
		RemoteAddress: x.RemoteAddress, Protocol: x.Protocol, TlsVersion: x.TLSVersion,
		ConnectionReused: x.Reused, TransportResendCount: int32(x.Resends),
		ResolveDuration: d.happened(x.Resolve), ConnectDuration: d.happened(x.Connect), TlsDuration: d.happened(x.TLS),
		ProcessingDuration: d.happened(x.Processing), TransferDuration: d.happened(x.Transfer),
		BackpressureDuration: d.happened(x.Backpressure),
	}
}

// happened is how many phases of an exchange have a duration.
func happened(x *fetch.Exchange) (n int) {
	for _, v := range [...]time.Duration{x.Resolve, x.Connect, x.TLS, x.Processing, x.Transfer, x.Backpressure} {
		if v != 0 {
			n++
		}
	}
	return n
}

// durations are messages for durations, several made in one allocation.
type durations []durationpb.Duration

func (d *durations) of(v time.Duration) *durationpb.Duration {
	if len(*d) == 0 {
		*d = make(durations, 4)
	}
	m := &(*d)[0]
	*d = (*d)[1:]
	m.Seconds, m.Nanos = int64(v/time.Second), int32(v%time.Second)
	return m
}

// happened leaves out the duration of a phase that did not happen.
func (d *durations) happened(v time.Duration) *durationpb.Duration {
	if v == 0 {
		return nil
	}
	return d.of(v)
}

// outcome converts how a fetch of r ended. Where last tells of its last attempt, or
// any, what both hold is converted once.
func outcome(o *fetch.Outcome, r *fetch.Request, last *pb.AttemptFinished) *pb.FetchOutcome {
	m := &pb.FetchOutcome{
		Kind: pb.OutcomeKind(o.Kind), FinalUrl: text(o.FinalURL),
		ResponseAttempt: int32(o.ResponseAttempt), Error: failure(o.Failure),
		Attempts: int32(o.Attempts), Exchanges: int32(o.Exchanges),
		InlineBody: o.InlineBody, ErrorBody: o.ErrorBody,
		BodySummary: &pb.BodySummary{SizeBytes: o.Body.Size, Sha256: o.Body.SHA256, Truncated: o.Body.Truncated,
			EncodedSizeBytes: o.Body.EncodedSize, LengthKnown: o.Body.LengthKnown},
		TotalDuration: durationpb.New(o.Total), IdempotencyKey: r.IdempotencyKey, FetchId: r.ID,
		Rule: string(o.Rule),
	}
	if last != nil && int(last.Attempt) == o.Attempts {
		m.Hops = last.Hops
	} else {
		m.Hops = hops(o.Hops)
	}
	if last != nil && int(last.Attempt) == o.ResponseAttempt {
		m.Response = last.Response
	} else {
		m.Response = response(o.Response)
	}
	if m.Error != nil {
		m.Error.StopReason = pb.RetryVerdict(o.StopReason)
	}
	return m
}
