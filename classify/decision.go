package classify

import "time"

// Kind is the kind of a fetch's outcome. Its numbers are those of
// fetchd.v1.OutcomeKind.
type Kind uint8

// The kinds of outcome.
const (
	NoKind      Kind = iota // No outcome yet: a redirect is followed.
	Success                 // H0: a complete 2xx response that meets the request's conditions; also a 206.
	NotModified             // H7: a 304 to a conditional request.
	Redirect                // H9: a 3xx that is not followed.
	Failed                  // Anything else.
)

// String returns the name in lower_snake_case, and "" for [NoKind].
func (k Kind) String() string {
	return name([]string{"", "success", "not_modified", "redirect", "failed"}, int(k))
}

// Verdict is whether another attempt follows and, if not, why. Its numbers are
// those of fetchd.v1.StopReason, which has no value for [Retry].
type Verdict uint8

// The verdicts. All except Retry are stop reasons.
const (
	NoVerdict         Verdict = iota
	NoFailure                 // The attempt needs no retry.
	Retry                     // Another attempt follows after the delay.
	NotRetried                // Failures of this class are not retried.
	AttemptsExhausted         // I4: max_attempts is reached.
	NoTime                    // W4: the wait would exceed the deadline.
	RetryAfterTooLong         // W3: Retry-After is longer than max_retry_after.
	NotIdempotent             // I2: repeating the request could repeat its effect.
	BodyCommitted             // B3: part of the body was delivered and can be neither resumed nor restarted.
	AuthFailed                // A2: the credential could not be refreshed, or was rejected again.
	Stopped                   // P4, P5, P7: cancelled, shutting down, or out of memory.
	DeadlinePassed            // P3: the time limit of the fetch passed during the attempt.
)

// String returns the name in lower_snake_case, and "" for [NoVerdict].
func (v Verdict) String() string {
	return name([]string{"", "no_failure", "retry", "not_retried", "attempts_exhausted", "no_time",
		"retry_after_too_long", "not_idempotent", "body_committed", "auth_failed", "stopped",
		"deadline"}, int(v))
}

// DelaySource is the origin of a delay before a retry. Its numbers are those of
// fetchd.v1.DelaySource.
type DelaySource uint8

// The sources of a delay.
const (
	NoDelay           DelaySource = iota
	FromBackoff                   // W1: the backoff formula.
	FromRetryAfter                // W2: the origin's Retry-After.
	FromAuthRefresh               // A2: a credential was refreshed; the delay is zero.
	FromNewConnection             // H11: the next attempt uses new connections; the delay is zero.
)

// String returns the name in lower_snake_case, and "" for [NoDelay].
func (s DelaySource) String() string {
	return name([]string{"", "backoff", "retry_after", "auth_refresh", "new_connection"}, int(s))
}

// AuthResult is what an auth provider did about a 401, or about a 403 that asks for a signature (A8). Its
// numbers are those of fetchd.v1.AuthResult.
type AuthResult uint8

// The results of asking an auth provider.
const (
	NoProvider    AuthResult = iota // No provider covers the origin: a 401 is H3.
	Refreshed                       // The credential was refreshed, now or by another fetch.
	RefreshFailed                   // The refresh failed.
	RefusedAgain                    // The origin rejected a refreshed credential earlier in this fetch.
	NotAsked                        // A provider covers the origin but has not been asked yet.
	_                               // fetchd.v1 has NO_PROVIDER as a value other than zero.
	Challenged                      // A8: the response asks for a signature, and the next request has it.
)

// RequestState is what is known about the requests of a fetch that failed. Its numbers are those of
// fetchd.v1.RequestState. A larger one says less.
type RequestState uint8

// The states. The zero value means [Unknown].
const (
	_            RequestState = iota
	NotSent                   // No origin can have read a byte of a request.
	NotProcessed              // Each request that was sent was refused unprocessed (I6).
	Unknown                   // A request may have been processed.
)

// String returns the name in lower_snake_case, and "" for the zero value.
func (s RequestState) String() string {
	return name([]string{"", "not_sent", "not_processed", "unknown"}, int(s))
}

// Start is the URL at which the next attempt starts. Its numbers are those of
// fetchd.v1.RetryStart.
type Start uint8

// The places at which an attempt can start.
const (
	NoStart   Start = iota
	FirstURL        // The URL of the fetch.
	FailedHop       // I3: the hop that failed.
)

// Location is how the Location of a 3xx response is treated. If the redirect is
// followed, problems with the target are in the faults (P1, R2, R3).
type Location uint8

// The values of Location.
const (
	NoLocation Location = iota // The field is absent or empty (H9).
	OutOfScope                 // The target is outside the redirect scope (H9).
	InScope                    // The target is to be followed.
)

// Observation describes an attempt and what preceded it in the fetch.
type Observation struct {
	// Method is the method of the fetch; empty means GET. HopMethod is the method
	// of the last hop; empty means Method.
	Method, HopMethod string
	// Attempt is the number of the attempt that ended, starting at 1. Zero means 1.
	Attempt int
	// Redirects is the number of redirects followed in this attempt so far, and in
	// those before it if it began with the hop that failed (I3).
	Redirects int
	// Status is the status of the last response. Zero means none was read.
	Status int
	// RetryAfter, Date and Age are the values of the first field lines of these names.
	RetryAfter, Date, Age string
	// Exhausted is the longest time to the reset of a rate limit that has nothing
	// left. Zero means none.
	Exhausted time.Duration
	// Location is used only with a 3xx status.
	Location Location
	// Conditional reports whether the request had a condition that allows a 304.
	Conditional bool
	// Faults is what went wrong in addition to what the status says.
	Faults Faults
	// Auth is used only with a 401 or 403 status.
	Auth AuthResult
	// Request is the state of the requests of the fetch.
	Request RequestState
	// Reused reports whether the connection of the last hop had carried another request.
	Reused bool
	// BodyCommitted reports whether body bytes were delivered, and the body can be
	// neither resumed nor restarted.
	BodyCommitted bool
	// Observed is when the response arrived; see [RetryAfter].
	Observed time.Time
	// TimeLeft is the time left for the fetch. [Unbounded] means no limit, and
	// zero means no time is left.
	TimeLeft time.Duration
}

// Unbounded is the TimeLeft of a fetch without a deadline.
const Unbounded = time.Duration(1<<63 - 1)

// Decision is what an observation means and what happens next.
type Decision struct {
	// Follow reports whether the response is a redirect to follow. If it is, the
	// attempt continues and no other field is set.
	Follow bool
	// Kind is the kind of the outcome if the fetch ends here.
	Kind Kind
	// Class, FailureType and ClassRule describe the failure. They are zero if
	// there is none.
	Class       Class
	FailureType FailureType
	ClassRule   Rule
	// Retryable reports whether a later fetch of the same request may succeed, and may be sent.
	Retryable bool
	// RetryAfter is the wait that the origin asked for, with any status. It is valid
	// if HasRetryAfter is set.
	RetryAfter    time.Duration
	HasRetryAfter bool

	// Verdict is whether another attempt follows. Rule is the rule that decided it.
	Verdict Verdict
	Rule    Rule
	// Delay, DelaySource, NextAttempt and Start are set only if Verdict is [Retry].
	Delay       time.Duration
	DelaySource DelaySource
	NextAttempt int
	Start       Start
}

func name(names []string, i int) string {
	if i >= len(names) {
		return ""
	}
	return names[i]
}
