package fetch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// logAttempt logs what follows an attempt (spec §10): INFO "retrying fetch" and DEBUG "waiting
// before retry", or DEBUG "not retrying".
func (r *run) logAttempt(a *attempt) {
	d := &r.decision
	if d.Verdict != classify.Retry {
		if d.Verdict != classify.NoFailure && r.logEnabled(slog.LevelDebug) {
			r.log(slog.LevelDebug, "not retrying", slog.String("fetch_id", r.req.ID), slog.Int("attempt", a.number),
				slog.String("stop_reason", d.Verdict.String()), slog.String("decision_rule", string(d.Rule)))
		}
		return
	}
	if !r.logEnabled(slog.LevelInfo) {
		return
	}
	r.logLine(slog.LevelInfo, "retrying fetch", r.failedHop.attrs([]slog.Attr{slog.String("fetch_id", r.req.ID),
		slog.String("url", r.redactedURL()), slog.Int("attempt", a.number),
		slog.Int("max_attempts", r.req.Policy.MaxAttempts), slog.Float64("delay_seconds", d.Delay.Seconds()),
		slog.String("reason", d.Class.String())}), false)
	r.log(slog.LevelDebug, "waiting before retry", slog.String("fetch_id", r.req.ID), slog.Float64("delay_seconds", d.Delay.Seconds()))
}

// hopError returns the failed hop for the log.
func (a *attempt) hopError() hopError {
	if a.run.failure == nil || len(a.hops) == 0 || !a.run.logEnabled(slog.LevelInfo) {
		return hopError{}
	}
	e := hopError{text: a.run.failure.Message, url: a.hop.redactedURL(), address: a.address(), status: a.hops[len(a.hops)-1].StatusCode}
	switch class := a.run.failure.Class; {
	case a.note.ofStore && a.note.class == class:
		return hopError{text: a.note.logText, url: e.url}
	case !a.faults.Has(class):
		e.text = string(appendStatus(nil, e.status))
	case a.note.class == class:
		e.text = a.note.logText
	}
	if target := a.redirectTarget(); target != nil && a.run.failure.Phase == classify.PhasePolicy {
		e.text = fault.Printable(e.text+": redirect to "+urls.Redact(target), maxLoggedBytes)
	}
	if a.refreshError != "" {
		e.text += ": refresh of the credential: " + a.refreshError
	}
	return e
}

// attrs appends the known fields to the attributes of a log line.
func (e *hopError) attrs(to []slog.Attr) []slog.Attr {
	if e.url == "" {
		return to
	}
	to = append(to, slog.String("error", e.text), slog.String("error_url", e.url))
	if e.status != 0 {
		to = append(to, slog.Int("error_status", e.status))
	}
	if e.address != "" {
		to = append(to, slog.String("error_address", e.address))
	}
	return to
}

// logEnd writes the only line about the end of a fetch.
func (r *run) logEnd(out *Outcome) {
	if !r.logEnabled(slog.LevelInfo) {
		return
	}
	room, _ := endAttrs.Get().(*[24]slog.Attr)
	attrs := append(room[:0],
		slog.String("fetch_id", r.req.ID), slog.String("url", r.redactedURL()), slog.String("method", r.req.Method),
		slog.String("outcome", out.Kind.String()), slog.String("decision_rule", string(out.Rule)),
		slog.Int("attempt_count", out.Attempts), slog.Int("exchange_count", out.Exchanges),
		slog.Int64("body_bytes", out.Body.Size), slog.Float64("duration_seconds", out.Total.Round(time.Microsecond).Seconds()))
	if r.req.Caller != "" {
		attrs = append(attrs, slog.String("caller", r.req.Caller))
	}
	policy := r.req.CallerPolicy
	if out.Response != nil {
		attrs = append(attrs, slog.Int("status", out.Response.StatusCode))
	}
	if f := out.Failure; f != nil {
		attrs = append(attrs, slog.String("error_class", f.Class.String()),
			slog.String("failure_type", f.FailureType.String()), slog.String("reason", f.Reason),
			slog.String("stop_reason", out.StopReason.String()), slog.Bool("retryable", f.Retryable))
		attrs = r.failedHop.attrs(attrs)
		if f.Policy != "" {
			policy = f.Policy
			attrs = append(attrs, slog.String("policy_rule", f.PolicyRule))
		}
	}
	if policy != "" {
		attrs = append(attrs, slog.String("policy", policy))
	}
	if route := r.req.Route; route != nil {
		attrs = append(attrs, slog.String("route", route.Name))
	}
	if len(r.req.Labels) > 0 {
		attrs = append(attrs, slog.Any("labels", r.req.Labels))
	}
	r.logLine(slog.LevelInfo, "fetch finished", attrs, out.Failure != nil)
	clear(room[:])
	endAttrs.Put(room)
}

// endAttrs has the attributes of lines about the end of a fetch.
var endAttrs = sync.Pool{New: func() any { return new([24]slog.Attr) }}

// redactedURL returns the URL of the fetch for the log. Most URLs have nothing to remove, and their
// text exists already.
func (r *run) redactedURL() string {
	if r.initialHop.url == nil { // the fetch was refused
		return urls.Redact(r.req.URL)
	}
	return r.initialHop.redactedURL()
}

func (h *hopRequest) redactedURL() string {
	if u := h.url; u != nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == "" {
		return h.urlText()
	}
	return urls.Redact(h.url)
}

func (r *run) logEnabled(level slog.Level) bool {
	return r.client.config.Logger.Enabled(context.Background(), level)
}

func (r *run) log(level slog.Level, msg string, attrs ...slog.Attr) {
	if r.logEnabled(level) {
		r.logLine(level, msg, attrs, false)
	}
}

// logLine writes a line. Unlike [slog.Logger] it does not look up the caller's position in the
// source, which takes more than a tenth of the time of a line. A handler with a method Line, such as that of
// fetchd, needs no record. It may write the line a little later, unless atOnce is set.
func (r *run) logLine(level slog.Level, msg string, attrs []slog.Attr, atOnce bool) {
	handler := r.client.config.Logger.Handler()
	if h, ok := handler.(interface {
		Line(level slog.Level, msg string, attrs []slog.Attr, atOnce bool)
	}); ok {
		h.Line(level, msg, attrs, atOnce)
		return
	}
	line := slog.NewRecord(time.Now(), level, msg, 0)
	line.AddAttrs(attrs...)
	_ = handler.Handle(context.Background(), line) // a Logger ignores the error too; the context of the fetch may have ended
}
