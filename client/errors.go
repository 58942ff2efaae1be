package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	pb "fetchd/gen/fetchd/v1"
)

// The failure types, for errors.Is: what a scheduler does with a fetch that
// failed. An [*Error] matches one of them at most.
var (
	// ErrTransient may pass by itself.
	ErrTransient = errors.New("transient")
	// ErrPermanent will not pass by itself.
	ErrPermanent = errors.New("permanent")
	// ErrRateLimited is a target that limits the rate; see [Error.RetryAfter].
	ErrRateLimited = errors.New("rate limited")
	// ErrNeedsAuth is a target that wants credentials, or others.
	ErrNeedsAuth = errors.New("needs authorization")
)

// Error is a fetch that failed at its target: the service did its part. Errors of
// the service are gRPC statuses and never an Error.
type Error struct {
	// Outcome is all that is known. It is not nil, and its error is set.
	Outcome *pb.FetchOutcome
}

// Error returns the class, the rule, the URL and what happened. The service has escaped
// what it quotes of the origin.
func (e *Error) Error() string {
	f := e.Outcome.GetError()
	text := strings.TrimPrefix(f.GetErrorClass().String(), "ERROR_CLASS_")
	if code := e.StatusCode(); code != 0 {
		text += fmt.Sprintf(", status %d", code)
	}
	text = fmt.Sprintf("fetch %s: %s (rule %s, attempt %d): %s", f.GetUrl(), text, f.GetRule(), e.Outcome.GetAttempts(), f.GetMessage())
	if detail := f.GetDetail(); detail != "" {
		text += "; " + detail
	}
	return text
}

// Is makes errors.Is match the sentinel of the failure type.
func (e *Error) Is(target error) bool {
	switch e.Outcome.GetError().GetFailureType() {
	case pb.FailureType_FAILURE_TYPE_TRANSIENT:
		return target == ErrTransient
	case pb.FailureType_FAILURE_TYPE_PERMANENT:
		return target == ErrPermanent
	case pb.FailureType_FAILURE_TYPE_RATE_LIMITED:
		return target == ErrRateLimited
	case pb.FailureType_FAILURE_TYPE_NEEDS_AUTH:
		return target == ErrNeedsAuth
	}
	return false
}

// Retryable says that a later fetch of the same request may succeed.
func (e *Error) Retryable() bool { return e.Outcome.GetError().GetRetryable() }

// Class is why it failed, safe to switch on. Values may be added: treat an unknown
// one by its failure type.
func (e *Error) Class() pb.ErrorClass { return e.Outcome.GetError().GetErrorClass() }

// Reason is a finer cause in lower_snake_case, such as too_many_redirects. It may
// be empty, and values may be added.
func (e *Error) Reason() string { return e.Outcome.GetError().GetReason() }

// Rule is the number of the rule that classified it, such as "H2".
func (e *Error) Rule() string { return e.Outcome.GetError().GetRule() }

// StatusCode is the status of the last response, or 0 where none was read.
func (e *Error) StatusCode() int { return int(e.Outcome.GetResponse().GetStatusCode()) }

// RetryAfter is what the target asked for with Retry-After. It is false where it
// did not, or not in a form that counts.
func (e *Error) RetryAfter() (time.Duration, bool) {
	after := e.Outcome.GetError().GetRetryAfter()
	return after.AsDuration(), after != nil
}
