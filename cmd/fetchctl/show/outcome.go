package show

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// outcome prints how a fetch ended, such as
//
//	success  200  https://…  12.3 KiB  sha256 …  2 attempts  340 ms
func (r *Reporter) outcome(o *pb.FetchOutcome) {
	spent := Took(o.GetTotalDuration().AsDuration())
	made := cli.Count(int(o.GetAttempts()), "attempt")
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
	text := Size(b.GetSizeBytes())
	if b.GetTruncated() {
		text += " (truncated at the limit)"
	}
	if b.GetPartialContent() {
		text += " (only a part of the body)"
	}
	if b.GetUnrequestedBytes() {
		text += " (may be the body of another response: bytes followed it on a reused connection)"
	}
	if sum := b.GetSha256(); sum != "" && !r.Brief {
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
	if o.GetResponseAttempt() != o.GetAttempts() && code != "" {
		code += fmt.Sprintf(" (of attempt %d)", o.GetResponseAttempt())
	}
	r.Line(r.Paint.Paint(cli.Red, "failed"), code, r.url(o.GetFinalUrl()), r.failure(e),
		Label(e.GetFailureType())+", "+retryable(e.GetRetryable()), made, spent)
	r.Line("  "+cli.Escape(e.GetMessage())+"; "+r.stop(e), askedFor(e))
	r.detail(e)
	if hops := o.GetHops(); len(hops) > 0 && e.GetErrorClass() == pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE {
		r.certificate(hops[len(hops)-1].GetExchange())
	}
	if target := RedirectTarget(o); target != "" && !r.Brief {
		r.Line("  " + r.Paint.Paint(cli.Dim, "the redirect leads to "+cli.Escape(target)))
	}
	for _, text := range firstLines(o.GetErrorBody()) {
		r.Line("  " + r.Paint.Paint(cli.Dim, "| "+text))
	}
	if rule := e.GetRule(); rule != "" && !r.Brief {
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

func retryable(yes bool) string {
	if yes {
		return "retryable"
	}
	return "not retryable"
}

// stop returns why no further attempt was made.
func (r *Reporter) stop(e *pb.FetchError) string {
	text := "stopped: " + Label(e.GetStopReason())
	if r.Stopped != "" && r.Stopped != e.GetRule() {
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

// cut shortens s to width characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

// PolicyText formats a retry policy for people.
func PolicyText(p *pb.RetryPolicy) string {
	text := fmt.Sprintf("%s: %s, backoff from %s by %g to %s", Label(p.GetProfile()), cli.Count(int(p.GetMaxAttempts()), "attempt"),
		p.GetBaseDelay().AsDuration(), p.GetMultiplier(), p.GetMaxDelay().AsDuration())
	if jitter := p.GetMaxJitter().AsDuration(); jitter > 0 {
		text += fmt.Sprintf(" plus jitter to %s", jitter)
	}
	return text + fmt.Sprintf(", Retry-After to %s", p.GetMaxRetryAfter().AsDuration().Round(time.Millisecond))
}

// ExitCode returns the exit code of a fetch that ended. For a failure type that this
// program does not know, it depends on whether the failure is retryable.
func ExitCode(out *pb.FetchOutcome) int {
	switch out.GetKind() {
	case pb.OutcomeKind_OUTCOME_KIND_SUCCESS, pb.OutcomeKind_OUTCOME_KIND_NOT_MODIFIED, pb.OutcomeKind_OUTCOME_KIND_REDIRECT:
		return cli.ExitOK
	}
	switch out.GetError().GetFailureType() {
	case pb.FailureType_FAILURE_TYPE_TRANSIENT:
		return cli.ExitTransient
	case pb.FailureType_FAILURE_TYPE_PERMANENT:
		return cli.ExitPermanent
	case pb.FailureType_FAILURE_TYPE_RATE_LIMITED:
		return cli.ExitRateLimited
	case pb.FailureType_FAILURE_TYPE_NEEDS_AUTH:
		return cli.ExitNeedsAuth
	}
	if out.GetError().GetRetryable() {
		return cli.ExitTransient
	}
	return cli.ExitPermanent
}
