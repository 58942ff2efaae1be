// Package show formats fetches for people: events as they happen, outcomes, sizes and times.
package show

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// Reporter prints the events of a fetch as lines for people. It escapes everything that comes
// from an origin.
type Reporter struct {
	Out      *cli.Printer
	Paint    cli.Painter
	Progress Progress
	Verbose  bool
	Brief    bool   // leave out the URL and the digest of the outcome
	Indent   string // before every line

	Began   time.Duration // of the current attempt, from the start of the fetch
	Stopped string        // rule of the last decision
}

// Event prints one event.
func (r *Reporter) Event(m *pb.FetchEvent) {
	switch e := m.GetEvent().(type) {
	case *pb.FetchEvent_Admitted:
		r.admitted(e.Admitted)
	case *pb.FetchEvent_AttemptStarted:
		r.Began = m.GetElapsedOffset().AsDuration()
		r.Progress.say(fmt.Sprintf("attempt %d …", e.AttemptStarted.GetAttempt()))
	case *pb.FetchEvent_RedirectFollowed:
		if r.Verbose {
			r.redirect(e.RedirectFollowed)
		}
	case *pb.FetchEvent_ResponseStarted:
		r.response(e.ResponseStarted)
	case *pb.FetchEvent_BodyChunk:
		r.Progress.chunk(e.BodyChunk, m.GetElapsedOffset().AsDuration())
	case *pb.FetchEvent_AttemptFinished:
		r.Attempt(e.AttemptFinished, m.GetElapsedOffset().AsDuration()-r.Began)
	case *pb.FetchEvent_Outcome:
		r.outcome(e.Outcome)
	}
}

// Line prints a line: the fields that are not empty, separated by two spaces.
func (r *Reporter) Line(fields ...string) {
	r.Progress.Clear()
	kept := make([]string, 0, len(fields))
	for _, f := range fields {
		if f != "" {
			kept = append(kept, f)
		}
	}
	r.Out.Printf("%s%s\n", r.Indent, strings.Join(kept, "  "))
}

func (r *Reporter) admitted(a *pb.Admitted) {
	if fields := a.GetClampedFields(); len(fields) > 0 {
		r.Line(r.Paint.Paint(cli.Yellow, "note"), "reduced to the service's limit: "+cli.Escape(strings.Join(fields, ", ")))
	}
	if r.Verbose {
		r.Line(r.Paint.Paint(cli.Dim, "fetch "+cli.Escape(a.GetFetchId())), "policy "+policyText(a.GetEffectiveRequest().GetRetryPolicy()))
	}
}

func (r *Reporter) redirect(e *pb.RedirectFollowed) {
	hop := e.GetHop()
	r.Line(fmt.Sprintf("attempt %d", e.GetAttempt()), r.Paint.Paint(cli.Dim, StatusLine(hop.GetStatusCode())),
		cli.Escape(hop.GetMethod()+" "+hop.GetUrl()), "→ "+cli.Escape(hop.GetLocationUrl()))
	r.headers(hop.GetHeaders())
}

func (r *Reporter) response(e *pb.ResponseStarted) {
	r.Progress.start(e.GetResponse())
	if r.Verbose && e.GetBodyOffsetBytes() > 0 && e.GetResponse().GetStatusCode()/100 == 2 { // the head was printed when the body began
		r.Line(fmt.Sprintf("attempt %d", e.GetAttempt()), r.Paint.Paint(cli.Dim, "the body continues at byte "+strconv.FormatInt(e.GetBodyOffsetBytes(), 10)))
		return
	}
	if r.Verbose {
		r.Line(fmt.Sprintf("attempt %d", e.GetAttempt()), r.Paint.Paint(cli.Dim, "response "+StatusLine(e.GetResponse().GetStatusCode())))
		r.headers(e.GetResponse().GetHeaders())
	}
}

func (r *Reporter) headers(headers []*pb.Header) {
	for _, h := range headers {
		r.Line("  " + r.Paint.Paint(cli.Dim, HeaderText(h)))
	}
}

// HeaderText returns a header line, escaped.
func HeaderText(h *pb.Header) string {
	value := h.GetValue()
	if raw := h.GetRawValue(); len(raw) > 0 {
		value = string(raw)
	}
	return cli.Escape(h.GetName()) + ": " + cli.Escape(value)
}

// Attempt prints how an attempt ended and what follows, such as
//
//	attempt 1  503 Service Unavailable  http_server_error (H1)  3 ms  retry in 200ms (W1 backoff)
func (r *Reporter) Attempt(e *pb.AttemptFinished, spent time.Duration) {
	r.Stopped = e.GetRetryDecision().GetRule()
	status := ""
	if resp := e.GetResponse(); resp != nil {
		status = StatusLine(resp.GetStatusCode())
	}
	r.Line(fmt.Sprintf("attempt %d", e.GetAttempt()), status, r.failure(e.GetError()),
		hopCount(e.GetHops()), Took(spent), r.decision(e.GetRetryDecision()))
	if e.GetRetryDecision().GetRetry() != nil { // otherwise the outcome has it
		r.detail(e.GetError())
	}
	if r.Verbose {
		r.Line("  " + r.Paint.Paint(cli.Dim, exchangeText(e.GetExchange())))
		if e.GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE { // otherwise the outcome has it
			r.certificate(e.GetExchange())
		}
	}
}

// Ended says in one line how an attempt ended and what follows, such as "503 Service Unavailable, http_server_error
// (H1), retry in 200ms (W1 backoff)".
func Ended(e *pb.AttemptFinished) string {
	var fields []string
	if resp := e.GetResponse(); resp != nil {
		fields = append(fields, StatusLine(resp.GetStatusCode()))
	}
	if failure := new(Reporter).failure(e.GetError()); failure != "" {
		fields = append(fields, failure)
	}
	return strings.Join(append(fields, Decision(e.GetRetryDecision())), ", ")
}

// failure returns the class of an error with its rule and reason, such as "body_too_large (C4,
// content_length)".
func (r *Reporter) failure(e *pb.FetchError) string {
	if e == nil {
		return ""
	}
	rule := cli.Escape(e.GetClassRule())
	if reason := e.GetReason(); reason != "" && reason != Label(e.GetErrorClass()) {
		rule += ", " + cli.Escape(reason)
	}
	return r.Paint.Paint(cli.Red, Label(e.GetErrorClass())) + " (" + rule + ")"
}

func hopCount(hops []*pb.Hop) string {
	if len(hops) < 2 {
		return ""
	}
	return "after " + cli.Count(len(hops)-1, "redirect")
}

// decision returns what follows an attempt, or "" if nothing does.
func (r *Reporter) decision(d *pb.RetryDecision) string {
	switch {
	case d.GetRetry() != nil:
		return r.Paint.Paint(cli.Yellow, Decision(d))
	case d.GetStopReason() == pb.StopReason_STOP_REASON_NO_FAILURE, d.GetNext() == nil:
		return ""
	}
	return Decision(d)
}

// Decision formats a decision for or against a retry, such as "retry in 200ms (W1 backoff)".
func Decision(d *pb.RetryDecision) string {
	retry := d.GetRetry()
	if retry == nil {
		return fmt.Sprintf("no retry: %s (%s)", Label(d.GetStopReason()), cli.Escape(d.GetRule()))
	}
	where := ""
	if retry.GetStart() == pb.RetryStart_RETRY_START_FAILED_HOP {
		where = " at the failed hop"
	}
	return fmt.Sprintf("retry in %s%s (%s %s)", retry.GetDelay().AsDuration(), where, cli.Escape(d.GetRule()), Label(retry.GetDelaySource()))
}

// exchangeText returns the connection and the phases of a hop.
func exchangeText(x *pb.Exchange) string {
	parts := []string{cli.Escape(x.GetRemoteAddress()), cli.Escape(x.GetProtocol()), cli.Escape(x.GetTlsVersion()), cli.Escape(x.GetTlsCipherSuite())}
	if x.GetConnectionReused() {
		parts = append(parts, "reused")
	}
	text := strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
	for _, phase := range []struct {
		name string
		d    interface{ AsDuration() time.Duration }
		set  bool
	}{
		{"lookup", x.GetResolveDuration(), x.GetResolveDuration() != nil},
		{"connect", x.GetConnectDuration(), x.GetConnectDuration() != nil},
		{"tls", x.GetTlsDuration(), x.GetTlsDuration() != nil},
		{"first byte", x.GetProcessingDuration(), x.GetProcessingDuration() != nil},
		{"transfer", x.GetTransferDuration(), x.GetTransferDuration() != nil},
	} {
		if phase.set {
			text += fmt.Sprintf(", %s %s", phase.name, Took(phase.d.AsDuration()))
		}
	}
	return strings.TrimPrefix(text, ", ")
}

// outcome prints how a fetch ended, such as
//
//	success  200  https://…  12.3 KiB  sha256 …  2 attempts  340 ms
func (r *Reporter) outcome(o *pb.FetchOutcome) {
	spent := Took(o.GetTotalDuration().AsDuration())
	made := cli.Count(int(o.GetAttemptCount()), "attempt")
	if o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_FAILED {
		r.Failed(o, made, spent)
		r.recorded(o.GetRecords())
		return
	}
	r.Line(r.Paint.Paint(cli.Green, Label(o.GetKind())), outcomeCode(o), r.url(o.GetFinalUrl()),
		r.body(o), location(o), made, spent)
	r.stored(o.GetStoredObject())
	r.recorded(o.GetRecords())
}

// recorded prints where the last record is, or with Verbose where each one is.
func (r *Reporter) recorded(records []*pb.WarcRecord) {
	for i, record := range records {
		of, exchange := "", ""
		switch {
		case r.Verbose:
			exchange = fmt.Sprintf("attempt %d, hop %d", record.GetAttempt(), record.GetHop())
		case i < len(records)-1:
			continue
		case i > 0:
			of = fmt.Sprintf("the last of %d records", len(records))
		}
		r.Line(fmt.Sprintf("  recorded in %s at %d", cli.Escape(record.GetFile()), record.GetOffsetBytes()),
			Label(record.GetType())+" "+cli.Escape(record.GetRecordId()), exchange, of)
	}
}

// stored prints where a body is.
func (r *Reporter) stored(s *pb.StoredObject) {
	if s == nil {
		return
	}
	etag, version := "", ""
	if s.GetEtag() != "" {
		etag = "etag " + cli.Escape(s.GetEtag())
	}
	if s.GetVersion() != "" {
		version = "version " + cli.Escape(s.GetVersion())
	}
	r.Line("  stored in "+cli.Escape(s.GetStore())+" as "+cli.Escape(s.GetKey()), etag, version)
}

func outcomeCode(o *pb.FetchOutcome) string {
	if o.GetResponse() == nil {
		return ""
	}
	return fmt.Sprint(o.GetResponse().GetStatusCode())
}

func (r *Reporter) url(u string) string {
	if r.Brief {
		return ""
	}
	return cli.Escape(u)
}

func (r *Reporter) body(o *pb.FetchOutcome) string {
	if o.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		return ""
	}
	b := o.GetBodySummary()
	text, sum := Size(b.GetSizeBytes()), b.GetSha256()
	if t := o.GetTextSummary(); t != nil { // the digest is that of other bytes
		text, sum = Size(t.GetSizeBytes())+" of text, from "+text, ""
	}
	if b.GetTruncated() {
		text += " (truncated at the limit)"
	}
	if b.GetPartialContent() {
		text += " (only a part of the body)"
	}
	if b.GetUnrequestedData() {
		text += " (may be the body of another response: bytes followed it on a reused connection)"
	}
	if sum != "" && !r.Brief {
		text += "  sha256 " + cli.Escape(sum)
	}
	return text
}

// location returns the target of a redirect that is the result.
func location(o *pb.FetchOutcome) string {
	if target := RedirectTarget(o); target != "" && o.GetKind() == pb.OutcomeKind_OUTCOME_KIND_REDIRECT {
		return "→ " + cli.Escape(target)
	}
	return ""
}

// RedirectTarget returns the target of the last redirect if it was not followed, or an empty text.
// Details of errors do not name it.
func RedirectTarget(o *pb.FetchOutcome) string {
	if hops := o.GetHops(); len(hops) > 0 {
		return hops[len(hops)-1].GetLocationUrl()
	}
	return ""
}

// Failed prints what failed, why there was no further attempt, and the beginning of the error
// page.
func (r *Reporter) Failed(o *pb.FetchOutcome, made, spent string) {
	e := o.GetError()
	code := outcomeCode(o)
	if o.GetResponseAttempt() != o.GetAttemptCount() && code != "" {
		code += fmt.Sprintf(" (of attempt %d)", o.GetResponseAttempt())
	}
	r.Line(r.Paint.Paint(cli.Red, "failed"), code, r.url(o.GetFinalUrl()), r.failure(e),
		whatNext(e), made, spent)
	r.Line("  "+cli.Escape(e.GetMessage())+"; "+r.stop(e), askedFor(e))
	r.detail(e)
	if hops := o.GetHops(); len(hops) > 0 && e.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE {
		r.certificate(hops[len(hops)-1].GetExchange())
	}
	if target := RedirectTarget(o); target != "" && (!r.Brief || e.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TARGET_BLOCKED) {
		r.Line("  " + r.Paint.Paint(cli.Dim, "the redirect leads to "+cli.Escape(target)))
	}
	for _, text := range firstLines(o.GetErrorBody()) {
		r.Line("  " + r.Paint.Paint(cli.Dim, "| "+text))
	}
	if rule := e.GetClassRule(); rule != "" && !r.Brief {
		r.Line("  " + r.Paint.Paint(cli.Dim, "what "+cli.Escape(rule)+" means: fetchctl explain --rule "+cli.Escape(rule)))
	}
}

// detail prints what happened, on a separate line.
func (r *Reporter) detail(e *pb.FetchError) {
	if e.GetDetail() != "" {
		r.Line("  " + r.Paint.Paint(cli.Dim, cli.Escape(e.GetDetail())))
	}
}

// certificate prints the certificate of an origin on a separate line, such as
//
//	certificate: CN=example.com, signed by CN=Example CA, valid until 2026-01-02 03:04:05 UTC, sha256 …
func (r *Reporter) certificate(x *pb.Exchange) {
	if c := x.GetCertificate(); c != nil {
		r.Line("  " + r.Paint.Paint(cli.Dim, fmt.Sprintf("certificate: %s, signed by %s, valid until %s, sha256 %s", nameOf(c.GetSubject()), nameOf(c.GetIssuer()),
			c.GetNotAfter().AsTime().Format("2006-01-02 15:04:05 UTC"), cli.Escape(c.GetSha256()))))
	}
}

func nameOf(name string) string {
	if name == "" {
		return "no name"
	}
	return cli.Escape(name)
}

func whatNext(e *pb.FetchError) string {
	switch {
	case isError(e, client.ErrNotIdempotent):
		return fmt.Sprint(client.ErrNotIdempotent)
	case e.GetRetryable():
		return Label(e.GetFailureType()) + ", retryable"
	}
	return Label(e.GetFailureType()) + ", not retryable"
}

// isError reports whether a failure matches an error of package client.
func isError(e *pb.FetchError, target error) bool {
	return (&client.Error{Outcome: &pb.FetchOutcome{Error: e}}).Is(target)
}

// stop returns why no further attempt was made.
func (r *Reporter) stop(e *pb.FetchError) string {
	text := "stopped: " + Label(e.GetStopReason())
	if r.Stopped != "" && r.Stopped != e.GetClassRule() {
		text += " (" + cli.Escape(r.Stopped) + ")"
	}
	return text
}

func askedFor(e *pb.FetchError) string {
	if e.GetRetryAfter() == nil {
		return ""
	}
	return fmt.Sprintf("the origin asked for %s", e.GetRetryAfter().AsDuration())
}

// firstLines returns the first lines of an error page, escaped and shortened.
func firstLines(body []byte) []string {
	const most, width = 3, 160
	if len(body) == 0 {
		return nil
	}
	if bytes.IndexByte(body, 0) >= 0 || !utf8.Valid(body[:WholeRunes(body)]) {
		return []string{fmt.Sprintf("%s of binary data", Size(int64(len(body))))}
	}
	var lines []string
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(lines) == most {
			return append(lines, "…")
		}
		lines = append(lines, cut(cli.Escape(line), width))
	}
	return lines
}

// policyText formats a retry policy for people.
func policyText(p *pb.RetryPolicy) string {
	text := fmt.Sprintf("%s: %s, backoff from %s by %g to %s", Label(p.GetProfile()), cli.Count(int(p.GetMaxAttempts()), "attempt"),
		p.GetBaseDelay().AsDuration(), p.GetMultiplier(), p.GetMaxDelay().AsDuration())
	if jitter := p.GetMaxJitter().AsDuration(); jitter > 0 {
		text += fmt.Sprintf(" plus jitter to %s", jitter)
	}
	return text + fmt.Sprintf(", Retry-After to %s", p.GetMaxRetryAfter().AsDuration().Round(time.Millisecond))
}

// ExitCode returns the exit code of a fetch that ended. Only a failure that is retryable has one
// that says that another try may succeed.
func ExitCode(out *pb.FetchOutcome) int {
	switch out.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS, pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED, pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		return cli.ExitOK
	}
	switch e := out.GetError(); {
	case isError(e, client.ErrNotIdempotent):
		return cli.ExitNotIdempotent
	case isError(e, client.ErrRateLimited):
		return cli.ExitRateLimited
	case isError(e, client.ErrNeedsAuth):
		return cli.ExitNeedsAuth
	case e.GetRetryable():
		return cli.ExitTransient
	}
	return cli.ExitPermanent
}
