// Package show formats fetches for people: events as they happen, outcomes, sizes and times.
package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"

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
func (r *Reporter) Event(m *pb.FetchResponse) {
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_Admitted:
		r.admitted(e.Admitted)
	case *pb.FetchResponse_AttemptStarted:
		r.Began = m.GetElapsedOffset().AsDuration()
		r.Progress.say(fmt.Sprintf("attempt %d …", e.AttemptStarted.GetAttempt()))
	case *pb.FetchResponse_RedirectFollowed:
		if r.Verbose { // --har and --trace ask for them too
			r.redirect(e.RedirectFollowed)
		}
	case *pb.FetchResponse_ResponseStarted:
		r.response(e.ResponseStarted)
	case *pb.FetchResponse_BodyChunk:
		r.Progress.chunk(e.BodyChunk, m.GetElapsedOffset().AsDuration())
	case *pb.FetchResponse_AttemptFinished:
		r.Attempt(e.AttemptFinished, m.GetElapsedOffset().AsDuration()-r.Began)
	case *pb.FetchResponse_Outcome:
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
		r.Line(r.Paint.Paint(cli.Dim, "fetch "+cli.Escape(a.GetFetchId())), "policy "+PolicyText(a.GetEffectiveRequest().GetRetryPolicy()))
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
	if !r.Verbose {
		return
	}
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
	if e.GetRetryDecision().GetVerdict() == pb.RetryVerdict_RETRY_VERDICT_RETRY { // otherwise the outcome has it
		r.detail(e.GetError())
	}
	if r.Verbose {
		r.Line("  " + r.Paint.Paint(cli.Dim, exchangeText(e.GetExchange())))
		if e.GetError().GetErrorClass() != pb.ErrorClass_ERROR_CLASS_TLS_CERTIFICATE { // otherwise the outcome has it
			r.certificate(e.GetExchange())
		}
	}
}

// failure returns the class of an error with its rule and reason, such as "body_too_large (C4,
// content_length)".
func (r *Reporter) failure(e *pb.FetchError) string {
	if e == nil {
		return ""
	}
	rule := cli.Escape(e.GetRule())
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
	switch d.GetVerdict() {
	case pb.RetryVerdict_RETRY_VERDICT_DONE, pb.RetryVerdict_RETRY_VERDICT_UNSPECIFIED:
		return ""
	case pb.RetryVerdict_RETRY_VERDICT_RETRY:
		return r.Paint.Paint(cli.Yellow, Decision(d))
	}
	return Decision(d)
}

// Decision formats a decision for or against a retry, such as "retry in 200ms (W1 backoff)".
func Decision(d *pb.RetryDecision) string {
	if d.GetVerdict() != pb.RetryVerdict_RETRY_VERDICT_RETRY {
		return fmt.Sprintf("no retry: %s (%s)", Label(d.GetVerdict()), cli.Escape(d.GetRule()))
	}
	where := ""
	if d.GetStart() == pb.RetryStart_RETRY_START_FAILED_HOP {
		where = " at the failed hop"
	}
	return fmt.Sprintf("retry in %s%s (%s %s)", d.GetDelay().AsDuration(), where, cli.Escape(d.GetRule()), Label(d.GetDelaySource()))
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
