package fetch

import (
	"fmt"
	"time"

	"fetchd/classify"
)

// Setter identifies who set a limit.
type Setter uint8

// The setters. The zero value is ByProfile.
const (
	ByProfile Setter = iota // The profile: the request does not set the limit.
	ByCaller                // The request.
	ByServer                // The operator: the request exceeds the server's maximum.
	ByService               // The service: the request exceeds a fixed limit.
	ByCall                  // The deadline of the gRPC or HTTP call, which is earlier.
)

// SetBy records who set the limits of a [Request], for the messages of failures.
type SetBy struct {
	MaxBodyBytes, MaxAttempts, MaxRedirects, MaxRetryAfter, TotalTimeout, AttemptTimeout Setter
}

// limit returns a field with its value and who set it. flag is the operator's flag for it.
func (r *Request) limit(field string, value any, by Setter, flag string) string {
	text := fmt.Sprintf("%s %v, ", field, value)
	switch by {
	case ByCaller:
		return text + "set by the request"
	case ByServer:
		return text + "the server's maximum, set by its operator with " + flag
	default:
		if r.Policy.Profile == classify.Download {
			return text + "the default of DOWNLOAD"
		}
		return text + "the default of STANDARD"
	}
}

// bodyLimitText returns the limit that a body exceeds.
func (r *Request) bodyLimitText() string {
	if r.Delivery == Inline && (r.MaxBodyBytes > MaxInlineBytes || r.SetBy.MaxBodyBytes == ByService) {
		return fmt.Sprintf("the %d bytes that the service delivers inline: call Fetch with delivery STREAM for more", MaxInlineBytes)
	}
	return r.limit("max_size_bytes", r.MaxBodyBytes, r.SetBy.MaxBodyBytes, "--max-body-bytes")
}

// timeText returns the limit of the time of the fetch.
func (r *run) timeText() string {
	limit, by := r.deadline.Sub(r.start), r.req.SetBy.TotalTimeout
	if d, ok := r.caller.Deadline(); ok && d.Equal(r.deadline) {
		by = ByCall
	}
	if by == ByCall {
		return fmt.Sprintf("the deadline of the call, set by the caller, left %s", max(limit, 0).Round(time.Millisecond))
	}
	return r.req.limit("total_timeout", limit, by, "--max-total-timeout")
}

// message returns what went wrong. It includes the value of a limit and who set it.
func (r *run) message(d *classify.Decision, reason string) string {
	text, req := message(d.Class, reason), r.req
	switch d.Class {
	case classify.BodyTooLarge:
		switch reason {
		case "content_length":
			text = messages[d.Class] + ": Content-Length is over " + req.bodyLimitText()
		case "max_size_bytes":
			text = messages[d.Class] + ": it is longer than " + req.bodyLimitText()
		}
	case classify.TooManyRedirects:
		text = "there were more redirects than " + req.limit("max_redirects", req.Policy.MaxRedirects, req.SetBy.MaxRedirects, "")
	case classify.AttemptTimeout:
		text += ": " + req.limit("attempt_timeout", req.AttemptTimeout, req.SetBy.AttemptTimeout, "--max-total-timeout")
	case classify.Deadline:
		return text + ": " + r.timeText()
	}
	switch d.Verdict {
	case classify.AttemptsExhausted:
		text += "; no attempt is left of " + req.limit("max_attempts", req.Policy.MaxAttempts, req.SetBy.MaxAttempts, "")
	case classify.RetryAfterTooLong:
		text += fmt.Sprintf("; Retry-After of %s is over %s", d.RetryAfter, req.limit("max_retry_after", req.Policy.MaxRetryAfter, req.SetBy.MaxRetryAfter, ""))
	case classify.NoTime:
		text += "; the wait before the next attempt is too long for " + r.timeText()
	}
	return text
}
