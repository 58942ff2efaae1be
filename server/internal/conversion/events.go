package conversion

import (
	"cmp"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/markdown"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/policies"
)

// headerLines returns the lines of a header, sorted by name. A value that is not UTF-8 is given in
// raw_value, too.
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

// Events converts the events of one fetch.
type Events struct {
	Attempts bool                // AttemptFinished events are sent
	Last     *pb.AttemptFinished // the attempt that ended the fetch
	// The response that was converted last, and its message. ResponseStarted and
	// AttemptFinished usually hold the same response.
	response *fetch.Response
	message  *pb.HttpResponse
}

// Event converts an event of package fetch into m.
func (t *Events) Event(m *pb.FetchEvent, e fetch.Event) {
	switch e := e.(type) {
	case fetch.AttemptStarted:
		all := &startedMessages{started: pb.AttemptStarted{Attempt: int32(e.Attempt), Url: text(e.URL)}}
		all.event.AttemptStarted = &all.started
		m.Event = &all.event
	case fetch.RedirectFollowed:
		m.Event = &pb.FetchEvent_RedirectFollowed{RedirectFollowed: &pb.RedirectFollowed{
			Attempt: int32(e.Attempt), Hop: new(hopMessages).set(&e.Hop)}}
	case fetch.ResponseStarted:
		all := &headMessages{started: pb.ResponseStarted{
			Attempt: int32(e.Attempt), Response: t.convertResponse(e.Response), Url: text(e.URL),
			BodyOffsetBytes: e.BodyOffset, HoldBackBytes: e.HoldBack}}
		all.event.ResponseStarted = &all.started
		m.Event = &all.event
	case fetch.BodyChunk:
		all := &chunkMessages{chunk: pb.BodyChunk{Attempt: int32(e.Attempt), OffsetBytes: e.Offset, Data: e.Data}}
		all.event.BodyChunk = &all.chunk
		m.Event = &all.event
	case fetch.AttemptFinished:
		all := attemptFinished(&e, t.convertResponse(e.Response))
		all.event.AttemptFinished = &all.finished
		finished := &all.finished
		m.Event = &all.event
		t.Last, t.message, t.response = nil, nil, nil
		if e.Decision.Verdict != classify.Retry { // before a retry nothing is kept, because it waits
			t.Last = finished
		}
	}
}

func (t *Events) convertResponse(r *fetch.Response) *pb.HttpResponse {
	if !t.Attempts { // no AttemptFinished would use or release the message
		return response(r)
	}
	if t.response != r {
		t.message, t.response = response(r), r
	}
	return t.message
}

// These hold messages that are sent together, to make them in one allocation.
type (
	startedMessages struct {
		event   pb.FetchEvent_AttemptStarted
		started pb.AttemptStarted
	}
	headMessages struct {
		event   pb.FetchEvent_ResponseStarted
		started pb.ResponseStarted
	}
	chunkMessages struct {
		event pb.FetchEvent_BodyChunk
		chunk pb.BodyChunk
	}
	attemptMessages struct {
		event    pb.FetchEvent_AttemptFinished
		finished pb.AttemptFinished
		decision decisionMessages
		hop      hopMessages
	}
)

// decisionMessages holds the messages of a decision.
type decisionMessages struct {
	decision pb.RetryDecision
	stop     pb.RetryDecision_StopReason
}

// Attempt converts e.
func Attempt(e *fetch.AttemptFinished) *pb.AttemptFinished {
	return &attemptFinished(e, response(e.Response)).finished
}

// attemptFinished converts e. head is its response, converted already.
func attemptFinished(e *fetch.AttemptFinished, head *pb.HttpResponse) *attemptMessages {
	all := &attemptMessages{finished: pb.AttemptFinished{
		Attempt: int32(e.Attempt), Response: head, Error: failure(e.Failure)}}
	all.finished.Hops = hops(e.Hops, &all.hop)
	m := &all.finished
	m.RetryDecision = decision(&all.decision, &e.Decision)
	if n := len(e.Hops); n > 0 {
		m.Exchange = m.Hops[n-1].Exchange
	}
	return all
}

// decision converts d into all.
func decision(all *decisionMessages, d *classify.Decision) *pb.RetryDecision {
	m := &all.decision
	m.Rule = string(d.Rule)
	if d.Verdict == classify.Retry {
		m.Next = &pb.RetryDecision_Retry{Retry: &pb.Retry{Attempt: int32(d.NextAttempt), Delay: durationpb.New(d.Delay),
			DelaySource: pb.DelaySource(d.DelaySource), Start: pb.RetryStart(d.Start)}}
		return m
	}
	all.stop.StopReason = pb.StopReason(d.Verdict)
	m.Next = &all.stop
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
		ErrorClass: pb.ErrorClass(f.Class), FailureType: pb.FailureType(f.FailureType), ClassRule: string(f.Rule),
		Reason: f.Reason, Message: f.Message, Detail: f.Detail, Policy: f.Policy, PolicyRule: f.PolicyRule, Retryable: f.Retryable, Url: text(f.URL),
		RequestState: pb.RequestState(f.Request),
	}
	if f.Phase != classify.NoPhase {
		m.Phase = pb.Phase(f.Phase).Enum()
	}
	if f.HasRetryAfter {
		m.RetryAfter = durationpb.New(f.RetryAfter)
	}
	return m
}

// hops converts hops. It uses one, if that is not nil, for the only hop.
func hops(in []fetch.Hop, one *hopMessages) []*pb.Hop {
	if len(in) == 1 {
		if one == nil {
			one = new(hopMessages)
		}
		one.list[0] = one.set(&in[0])
		return one.list[:]
	}
	out := make([]*pb.Hop, len(in))
	for i := range in {
		out[i] = new(hopMessages).set(&in[i])
	}
	return out
}

type hopMessages struct {
	hop       pb.Hop
	exchange  pb.Exchange
	durations [4]durationpb.Duration // enough for a hop on a reused connection
	list      [1]*pb.Hop             // of this one alone
}

// set converts a hop. all is zero.
func (all *hopMessages) set(h *fetch.Hop) *pb.Hop {
	x := &h.Exchange
	d, m, to := durations(all.durations[:]), &all.hop, &all.exchange
	m.Url, m.Method, m.StatusCode, m.LocationUrl = text(h.URL), h.Method, int32(h.StatusCode), text(h.LocationURL)
	to.RemoteAddress, to.Protocol, to.TlsVersion, to.ConnectionReused = x.RemoteAddress, x.Protocol, x.TLSVersion, x.Reused
	m.StartOffset, m.Exchange = d.of(h.Start), to
	to.ResolveDuration, to.ConnectDuration, to.TlsDuration = d.happened(x.Resolve), d.happened(x.Connect), d.happened(x.TLS)
	to.ProcessingDuration, to.TransferDuration, to.BackpressureDuration = d.happened(x.Processing), d.happened(x.Transfer), d.happened(x.Backpressure)
	if details := x.TLSDetails; details != nil {
		to.TlsCipherSuite, to.AlpnProtocol, to.Certificate = details.CipherSuite, details.ALPN, certificate(&details.Certificate)
	}
	if h.Header != nil {
		m.Headers = headerLines(h.Header)
	}
	return m
}

func certificate(c *fetch.Certificate) *pb.Certificate {
	return &pb.Certificate{Subject: c.Subject, Issuer: c.Issuer, NotAfter: timestamppb.New(c.NotAfter), Sha256: c.SHA256}
}

// durations holds messages for durations, to make several in one allocation.
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

// happened returns nil for a phase that did not happen.
func (d *durations) happened(v time.Duration) *durationpb.Duration {
	if v == 0 {
		return nil
	}
	return d.of(v)
}

type outcomeMessages struct {
	event   pb.FetchEvent
	of      pb.FetchEvent_Outcome // event
	outcome pb.FetchOutcome
	inline  pb.FetchOutcome_InlineBody
	body    pb.BodySummary
	total   [1]durationpb.Duration
}

// Outcome converts the outcome of a fetch of r. last is the event of its last attempt, or nil. The
// outcome shares its hops and its response, if they are the same.
func Outcome(o *fetch.Outcome, r *fetch.Request, last *pb.AttemptFinished) *pb.FetchOutcome {
	return &outcome(o, r, last).outcome
}

func outcome(o *fetch.Outcome, r *fetch.Request, last *pb.AttemptFinished) *outcomeMessages {
	all := &outcomeMessages{
		outcome: pb.FetchOutcome{
			Kind: pb.OutcomeKind(o.Kind), FinalUrl: text(o.FinalURL),
			ResponseAttempt: int32(o.ResponseAttempt), Error: failure(o.Failure),
			AttemptCount: int32(o.Attempts), ExchangeCount: int32(o.Exchanges),
			ErrorBody:      o.ErrorBody,
			IdempotencyKey: r.IdempotencyKey, FetchId: r.ID, DecisionRule: string(o.Rule)},
		body: pb.BodySummary{SizeBytes: o.Body.Size, Sha256: o.Body.SHA256, Truncated: o.Body.Truncated,
			EncodedSizeBytes: o.Body.EncodedSize, LengthKnown: o.Body.LengthKnown, PartialContent: o.Body.PartialContent,
			UnrequestedData: o.Body.UnrequestedData},
	}
	m, total := &all.outcome, durations(all.total[:])
	m.Records, m.PolicyReports, m.RateLimits = records(o.Records), policyReports(r), rateLimits(o.RateLimits)
	m.TextSummary = textSummary(o.Text)
	if stored := storedObject(o, r); stored != nil {
		m.Body = &pb.FetchOutcome_StoredObject{StoredObject: stored}
	} else if o.InlineBody != nil {
		all.inline.InlineBody = o.InlineBody
		m.Body = &all.inline
	}
	m.BodySummary, m.TotalDuration = &all.body, total.of(o.Total)
	if last != nil && int(last.Attempt) == o.Attempts {
		m.Hops = last.Hops
	} else {
		m.Hops = hops(o.Hops, nil)
	}
	if last != nil && int(last.Attempt) == o.ResponseAttempt {
		m.Response = last.Response
	} else {
		m.Response = response(o.Response)
	}
	if m.Error != nil {
		m.Error.StopReason = pb.StopReason(o.StopReason).Enum()
	}
	return all
}

// policyReports converts what the policy of the caller would have forbidden.
func policyReports(r *fetch.Request) (all []*pb.PolicyReport) {
	judge, ok := r.Egress.(*policies.Judge)
	if !ok {
		return nil
	}
	for _, d := range judge.Reported() {
		all = append(all, &pb.PolicyReport{Policy: d.Policy, Reason: d.Reason, PolicyRule: d.Rule, Host: text(d.Host)})
	}
	return all
}

func rateLimits(limits []fetch.RateLimit) (all []*pb.RateLimit) {
	for i := range limits {
		l := &limits[i]
		m := &pb.RateLimit{Name: text(l.Name), Source: pb.RateLimitSource(l.Source)}
		if l.Remaining >= 0 {
			m.Remaining = &l.Remaining
		}
		if l.Quota >= 0 {
			m.Quota = &l.Quota
		}
		if l.Reset >= 0 {
			m.ResetDuration = durationpb.New(l.Reset)
		}
		if l.Window >= 0 {
			m.WindowDuration = durationpb.New(l.Window)
		}
		all = append(all, m)
	}
	return all
}

// textSummary converts what became of a text.
func textSummary(t *fetch.TextSummary) *pb.TextSummary {
	if t == nil {
		return nil
	}
	m := &pb.TextSummary{MediaType: t.MediaType, Title: text(t.Title), SizeBytes: t.Bytes, CharacterCount: t.Characters, Truncated: t.Truncated, LeftOut: t.LeftOut}
	if t.Fallback != markdown.NoFallback {
		m.Fallback = textFallbacks.wire(t.Fallback)
	}
	return m
}

// OutcomeEvent returns the last event of a fetch.
func OutcomeEvent(out *fetch.Outcome, req *fetch.Request, last *pb.AttemptFinished) *pb.FetchEvent {
	all := outcome(out, req, last)
	all.of.Outcome = &all.outcome
	all.event.Event = &all.of
	return &all.event
}

// storedObject converts where a body is.
func storedObject(o *fetch.Outcome, r *fetch.Request) *pb.StoredObject {
	to, ok := r.Destination.(*destination)
	if o.Stored == nil || !ok {
		return nil
	}
	return &pb.StoredObject{Store: to.store.Name(), Key: o.Stored.Key, SizeBytes: o.Body.Size, Sha256: o.Body.SHA256,
		Etag: text(o.Stored.ETag), Version: text(o.Stored.Version)}
}

// Shorten returns an attempt without headers and hops. It does not change a, which the
// outcome may share. The decision is copied: it is in one allocation with a, which keeps the headers.
func Shorten(a *pb.AttemptFinished) *pb.AttemptFinished {
	return &pb.AttemptFinished{Attempt: a.Attempt, Error: a.Error, RetryDecision: proto.CloneOf(a.RetryDecision), Response: ShortResponse(a.Response)}
}

// ShortResponse returns a response without its headers.
func ShortResponse(r *pb.HttpResponse) *pb.HttpResponse {
	if r == nil {
		return nil
	}
	m := &pb.HttpResponse{StatusCode: r.StatusCode, Protocol: r.Protocol}
	if r.ContentLength != nil { // it is in one allocation with the headers
		m.ContentLength = new(*r.ContentLength)
	}
	return m
}

// ShortenOutcome removes the optional parts of an outcome. It is needed for heads that use
// more memory as a message than before.
func ShortenOutcome(o *pb.FetchOutcome) {
	o.Response, o.Hops, o.ErrorBody = ShortResponse(o.Response), nil, nil
}

// ShortenEvent removes the headers and hops of an event, and reports whether it may have had any.
func ShortenEvent(m *pb.FetchEvent) bool {
	switch e := m.Event.(type) {
	case *pb.FetchEvent_BodyChunk, *pb.FetchEvent_Heartbeat:
		return false
	case *pb.FetchEvent_ResponseStarted:
		e.ResponseStarted.Response = ShortResponse(e.ResponseStarted.Response)
	case *pb.FetchEvent_RedirectFollowed:
		e.RedirectFollowed.Hop.Headers = nil // no other message shares it
	case *pb.FetchEvent_AttemptFinished:
		e.AttemptFinished = Shorten(e.AttemptFinished)
	}
	return true
}
