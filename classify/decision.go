package classify

import "time"

// Kind is what kind of end a fetch has. Its numbers are those of
// fetchd.v1.OutcomeKind.
type Kind uint8

// The kinds of outcome.
const (
	NoKind      Kind = iota // No end: a redirect is followed.
	Success                 // H0: a 2xx response, whole and as the request wants it.
	NotModified             // H7: a 304 to a conditional request.
	Redirect                // H9: a 3xx that was not to be followed.
	Failed                  // Anything else.
)

// String returns the name in lower_snake_case, and "" for [NoKind].
func (k Kind) String() string {
	return name([]string{"", "success", "not_modified", "redirect", "failed"}, int(k))
}

// Verdict says whether another attempt follows, and if not, why. Its numbers
// are those of fetchd.v1.RetryVerdict.
type Verdict uint8

// The verdicts. All but Done and Retry are stop reasons.
const (
	NoVerdict         Verdict = iota
	Done                      // The attempt needs no retry.
	Retry                     // Another attempt follows, after the delay.
	NotRetryable              // The failure is not one that is retried.
	AttemptsExhausted         // I4: max_attempts reached.
	NoTime                    // W4: the wait would pass the deadline.
	RetryAfterTooLong         // W3: Retry-After is longer than max_retry_after.
	NotIdempotent             // I2: repeating could repeat an effect.
	BodyCommitted             // B3: part of the body was delivered and cannot be continued.
	AuthFailed                // A2: the credential could not be refreshed, or was refused again.
	Stopped                   // P4, P5: cancelled, or the server is shutting down.
	DeadlinePassed            // P3: the time for the fetch passed during the attempt.
	ExchangeLimit             // I6: the fetch has made as many requests as one may.
)

// String returns the name in lower_snake_case, and "" for [NoVerdict].
func (v Verdict) String() string {
	return name([]string{"", "done", "retry", "not_retryable", "attempts_exhausted", "no_time",
		"retry_after_too_long", "not_idempotent", "body_committed", "auth_failed", "stopped",
		"deadline", "exchange_limit"}, int(v))
}

// DelaySource says where a wait comes from. Its numbers are those of
// fetchd.v1.DelaySource.
type DelaySource uint8

// The sources of a delay.
const (
	NoDelay         DelaySource = iota
	FromBackoff                 // W1: the backoff formula.
	FromRetryAfter              // W2: the origin's Retry-After.
	FromAuthRefresh             // A2: a credential was refreshed; there is no wait.
)

// String returns the name in lower_snake_case, and "" for [NoDelay].
func (s DelaySource) String() string {
	return name([]string{"", "backoff", "retry_after", "auth_refresh"}, int(s))
}

// AuthResult says what an auth provider did about a 401. Its numbers are those
// of fetchd.v1.AuthResult.
type AuthResult uint8

// What a provider can have done.
const (
	NoProvider    AuthResult = iota // There is none for this origin: a 401 is H3.
	Refreshed                       // The credential was refreshed, or had been already.
	RefreshFailed                   // The refresh failed.
	RefusedAgain                    // A refreshed credential was refused before in this fetch.
	NotAsked                        // There is one, and it has not been asked yet.
)

// Start says where the next attempt begins. Its numbers are those of
// fetchd.v1.RetryStart.
type Start uint8

// Where an attempt can begin.
const (
	NoStart   Start = iota
	FirstURL        // At the URL of the fetch.
	FailedHop       // I3: at the hop that failed.
)

// Location says what the Location of a 3xx response is good for. What is wrong
// with one that is to be followed stands in the faults (P1, R2, R3).
type Location uint8

// What a Location can be.
const (
	NoLocation Location = iota // There is none, or it is empty (H9).
	OutOfScope                 // It leads outside the redirect scope (H9).
	InScope                    // It is to be followed.
)

// Observation is what was seen of an attempt, and what preceded it.
type Observation struct {
	// Method is the fetch's and HopMethod that of the last hop. Empty: GET for
	// the first, the fetch's for the second.
	Method, HopMethod string
	// Attempt is the number of the attempt that ended, from 1.
	Attempt int
	// Redirects were followed in it so far.
	Redirects int
	// Exchanges were made in the whole fetch so far.
	Exchanges int
	// Status of the last response; 0 where none was read.
	Status int
	// RetryAfter and Date are the values of the first such field lines.
	RetryAfter, Date string
	// Location is looked at for a 3xx only.
	Location Location
	// Conditional tells that the request had a condition a 304 answers.
	Conditional bool
	// Faults are what went wrong besides what the status says.
	Faults Faults
	// Auth is looked at for a 401 only.
	Auth AuthResult
	// BodyCommitted tells that body bytes were delivered and cannot be continued.
	BodyCommitted bool
	// Observed is when the response came; see [RetryAfter].
	Observed time.Time
	// TimeLeft for the fetch. [Unbounded] means enough; zero means none.
	TimeLeft time.Duration
}

// Unbounded is a TimeLeft that no wait passes.
const Unbounded = time.Duration(1<<63 - 1)

// Decision is what an observation means and what follows from it.
type Decision struct {
	// Follow tells that the response is a redirect to be followed. Then the
	// attempt goes on, and no other field is set.
	Follow bool
	// Kind is the kind of outcome, if the fetch ends here.
	Kind Kind
	// Class, FailureType and ClassRule say what went wrong; zero for no failure.
	Class       Class
	FailureType FailureType
	ClassRule   Rule
	// Retryable: a later fetch of the same request may succeed.
	Retryable bool
	// RetryAfter is what the origin asked for, if HasRetryAfter.
	RetryAfter    time.Duration
	HasRetryAfter bool

	// Verdict says whether another attempt follows, and Rule which rule says so.
	Verdict Verdict
	Rule    Rule
	// Delay, DelaySource, NextAttempt and Start are set with verdict [Retry].
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
