package show

import (
	"fmt"
	"strings"

	"fetchd/client"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
	"fetchd/internal/rules"
)

// explanation is a table of what was decided and why.
type explanation struct {
	paint cli.Painter
	text  strings.Builder
}

// row adds a line, unless its value is empty.
func (x *explanation) row(name, format string, args ...any) {
	if value := fmt.Sprintf(format, args...); value != "" {
		fmt.Fprintf(&x.text, "%s %s\n", x.paint.Paint(cli.Bold, fmt.Sprintf("%-10s", name)), value)
	}
}

// rule adds a rule with its sentence.
func (x *explanation) rule(name string) {
	if name != "" {
		x.row("rule "+cli.Escape(name), "%s", rules.Sentence(name))
	}
}

// Explanation formats what was decided for an observation, and why, for people.
func Explanation(p cli.Painter, req *pb.ExplainRequest, resp *pb.ExplainResponse) string {
	x := &explanation{paint: p}
	x.observed(req)
	if step := resp.GetRedirect(); step != nil {
		x.redirect(step)
	} else {
		x.failure(resp.GetError())
		x.decision(resp)
	}
	x.row("policy", "%s", policyText(resp.GetEffectiveRetryPolicy()))
	return x.text.String()
}

func (x *explanation) observed(req *pb.ExplainRequest) {
	var seen []string
	if r := req.GetResponse(); r != nil {
		seen = append(seen, StatusLine(r.GetStatusCode()))
		for _, h := range r.GetHeaders() {
			seen = append(seen, HeaderText(h))
		}
	}
	for _, fault := range req.GetErrorClasses() {
		seen = append(seen, Label(fault))
	}
	x.row("observed", "%s, attempt %d", strings.Join(seen, ", "), max(req.GetAttempt(), 1))
}

func (x *explanation) redirect(step *pb.RedirectStep) {
	notes := []string{}
	if step.GetBodyKept() {
		notes = append(notes, "with the body")
	}
	if step.GetCrossOrigin() {
		notes = append(notes, "to another origin: credentials are dropped")
	}
	x.row("decision", "%s", x.paint.Paint(cli.Green, "follow the redirect"))
	x.row("next", "%s %s", cli.Escape(step.GetMethod()), cli.Escape(step.GetUrl()))
	x.row("", "%s", strings.Join(notes, ", "))
}

func (x *explanation) failure(e *pb.FetchError) {
	if e == nil {
		return
	}
	x.row("class", "%s, %s", x.paint.Paint(cli.Red, Label(e.GetErrorClass())), Label(e.GetFailureType()))
	x.rule(e.GetClassRule())
}

func (x *explanation) decision(resp *pb.ExplainResponse) {
	d := resp.GetRetryDecision()
	x.row("decision", "%s", x.next(d))
	if d.GetRule() != resp.GetError().GetClassRule() {
		x.rule(d.GetRule())
	}
	if retry := d.GetRetry(); retry != nil {
		x.row("delay", "%s, from %s", retry.GetDelay().AsDuration(), Label(retry.GetDelaySource()))
	} else if after := resp.GetError().GetRetryAfter(); after != nil {
		x.row("asked for", "%s by Retry-After", after.AsDuration())
	}
	x.row("outcome", "%s, if the fetch ended here", Label(resp.GetKind()))
	if e := resp.GetError(); e != nil {
		x.row("retryable", "%s", laterFetch(e))
	}
}

func laterFetch(e *pb.FetchError) string {
	switch {
	case e.GetRetryable():
		return "yes: a later fetch of the same request may succeed"
	case client.MayHaveTakenEffect(e):
		return fmt.Sprint("no: the request is ", client.ErrNotIdempotent)
	}
	return "no: a later fetch of the same request is not expected to succeed"
}

// next says what follows an attempt.
func (x *explanation) next(d *pb.RetryDecision) string {
	if retry := d.GetRetry(); retry != nil {
		where := "from the first URL"
		if retry.GetStart() == pb.RetryStart_RETRY_START_FAILED_HOP {
			where = "at the failed hop"
		}
		return x.paint.Paint(cli.Yellow, "retry") + fmt.Sprintf(": attempt %d follows, %s", retry.GetAttempt(), where)
	}
	ink := cli.Red
	if d.GetStopReason() == pb.StopReason_STOP_REASON_NO_FAILURE {
		ink = cli.Green
	}
	return x.paint.Paint(ink, "no retry") + ": " + Label(d.GetStopReason())
}
