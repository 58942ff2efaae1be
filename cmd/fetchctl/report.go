package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// reporter tells of a fetch's events in lines for people. It writes nothing of
// an origin's unescaped.
type reporter struct {
	out     *cli.Printer
	paint   cli.Painter
	bar     progress
	verbose bool
	brief   bool   // leaves out URL and digest of the outcome
	indent  string // before every line

	began   time.Duration // of the attempt under way
	stopped string        // rule of the last decision
}

// event tells of one message.
func (r *reporter) event(m *pb.FetchResponse) {
	switch e := m.GetEvent().(type) {
	case *pb.FetchResponse_Admitted:
		r.admitted(e.Admitted)
	case *pb.FetchResponse_AttemptStarted:
		r.began = m.GetElapsedOffset().AsDuration()
		r.bar.say(fmt.Sprintf("attempt %d …", e.AttemptStarted.GetAttempt()))
	case *pb.FetchResponse_RedirectFollowed:
		if r.verbose { // --har and --trace ask for them too
			r.redirect(e.RedirectFollowed)
		}
	case *pb.FetchResponse_ResponseStarted:
		r.response(e.ResponseStarted)
	case *pb.FetchResponse_BodyChunk:
		r.bar.chunk(e.BodyChunk, m.GetElapsedOffset().AsDuration())
	case *pb.FetchResponse_AttemptFinished:
		r.attempt(e.AttemptFinished, m.GetElapsedOffset().AsDuration()-r.began)
	case *pb.FetchResponse_Outcome:
		r.outcome(e.Outcome)
	}
}

// line writes one line: fields that are not empty, two spaces between them.
func (r *reporter) line(fields ...string) {
	r.bar.clear()
	kept := make([]string, 0, len(fields))
	for _, f := range fields {
		if f != "" {
			kept = append(kept, f)
		}
	}
	r.out.Printf("%s%s\n", r.indent, strings.Join(kept, "  "))
}

func (r *reporter) admitted(a *pb.Admitted) {
	if fields := a.GetClampedFields(); len(fields) > 0 {
		r.line(r.paint.Paint(cli.Yellow, "note"), "cut to the service's limit: "+cli.Escape(strings.Join(fields, ", ")))
	}
	if r.verbose {
		r.line(r.paint.Paint(cli.Dim, "fetch "+cli.Escape(a.GetFetchId())), "policy "+policyText(a.GetEffectiveRequest().GetRetryPolicy()))
	}
}

func (r *reporter) redirect(e *pb.RedirectFollowed) {
	hop := e.GetHop()
	r.line(fmt.Sprintf("attempt %d", e.GetAttempt()), r.paint.Paint(cli.Dim, statusLine(hop.GetStatusCode())),
		cli.Escape(hop.GetMethod()+" "+hop.GetUrl()), "→ "+cli.Escape(hop.GetLocationUrl()))
	r.headers(hop.GetHeaders())
}

func (r *reporter) response(e *pb.ResponseStarted) {
	r.bar.start(e.GetResponse())
	if r.verbose && e.GetBodyOffsetBytes() > 0 && e.GetResponse().GetStatusCode()/100 == 2 { // the head was shown when the body began
		r.line(fmt.Sprintf("attempt %d", e.GetAttempt()), r.paint.Paint(cli.Dim, "the body goes on at byte "+strconv.FormatInt(e.GetBodyOffsetBytes(), 10)))
		return
	}
	if r.verbose {
		r.line(fmt.Sprintf("attempt %d", e.GetAttempt()), r.paint.Paint(cli.Dim, "response "+statusLine(e.GetResponse().GetStatusCode())))
		r.headers(e.GetResponse().GetHeaders())
	}
}

func (r *reporter) headers(headers []*pb.Header) {
	if !r.verbose {
		return
	}
	for _, h := range headers {
		r.line("  " + r.paint.Paint(cli.Dim, headerText(h)))
	}
}

// headerText is a field line, escaped.
func headerText(h *pb.Header) string {
	value := h.GetValue()
	if raw := h.GetRawValue(); len(raw) > 0 {
		value = string(raw)
	}
	return cli.Escape(h.GetName()) + ": " + cli.Escape(value)
}

// attempt tells how an attempt ended and what follows, such as
//
//	attempt 1  503 Service Unavailable  http_server_error (H1)  3 ms  retry in 200ms (W1 backoff)
func (r *reporter) attempt(e *pb.AttemptFinished, spent time.Duration) {
	r.stopped = e.GetRetryDecision().GetRule()
	status := ""
	if resp := e.GetResponse(); resp != nil {
		status = statusLine(resp.GetStatusCode())
	}
	r.line(fmt.Sprintf("attempt %d", e.GetAttempt()), status, r.failure(e.GetError()),
		hopCount(e.GetHops()), took(spent), r.decision(e.GetRetryDecision()))
	if e.GetRetryDecision().GetVerdict() == pb.RetryVerdict_RETRY_VERDICT_RETRY { // else the outcome has it
		r.detail(e.GetError())
	}
	if r.verbose {
		r.line("  " + r.paint.Paint(cli.Dim, exchangeText(e.GetExchange())))
	}
}

// failure is a class with its rule and finer cause, such as
// "body_too_large (C4, content_length)".
func (r *reporter) failure(e *pb.FetchError) string {
	if e == nil {
		return ""
	}
	rule := cli.Escape(e.GetRule())
	if reason := e.GetReason(); reason != "" && reason != label(e.GetErrorClass()) {
		rule += ", " + cli.Escape(reason)
	}
	return r.paint.Paint(cli.Red, label(e.GetErrorClass())) + " (" + rule + ")"
}

func hopCount(hops []*pb.Hop) string {
	if len(hops) < 2 {
		return ""
	}
	return "after " + cli.Count(len(hops)-1, "redirect")
}

// decision says what follows an attempt; nothing where it needs nothing.
func (r *reporter) decision(d *pb.RetryDecision) string {
	switch d.GetVerdict() {
	case pb.RetryVerdict_RETRY_VERDICT_DONE, pb.RetryVerdict_RETRY_VERDICT_UNSPECIFIED:
		return ""
	case pb.RetryVerdict_RETRY_VERDICT_RETRY:
		where := ""
		if d.GetStart() == pb.RetryStart_RETRY_START_FAILED_HOP {
			where = " at the failed hop"
		}
		return r.paint.Paint(cli.Yellow, fmt.Sprintf("retry in %s%s (%s %s)", d.GetDelay().AsDuration(), where,
			cli.Escape(d.GetRule()), words(d.GetDelaySource())))
	}
	return fmt.Sprintf("no retry: %s (%s)", words(d.GetVerdict()), cli.Escape(d.GetRule()))
}

// exchangeText tells the connection and the phases of a hop.
func exchangeText(x *pb.Exchange) string {
	parts := []string{cli.Escape(x.GetRemoteAddress()), cli.Escape(x.GetProtocol()), cli.Escape(x.GetTlsVersion())}
	if x.GetConnectionReused() {
		parts = append(parts, "reused")
	}
	if n := x.GetTransportResendCount(); n > 0 {
		parts = append(parts, cli.Count(int(n), "resend"))
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
			text += fmt.Sprintf(", %s %s", phase.name, took(phase.d.AsDuration()))
		}
	}
	return strings.TrimPrefix(text, ", ")
}
