package conformance

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Observation is an attempt that ended, and what preceded it in the fetch. What is absent has the value
// that README.md names.
type Observation struct {
	RetryPolicy    *RetryPolicy    `json:"retry_policy,omitempty"`
	RedirectPolicy *RedirectPolicy `json:"redirect_policy,omitempty"`
	// Method and URL are those of the fetch. HopMethod and HopURL are those of the last hop.
	Method    string `json:"method,omitempty"`
	URL       string `json:"url,omitempty"`
	HopMethod string `json:"hop_method,omitempty"`
	HopURL    string `json:"hop_url,omitempty"`
	// Attempt is the number of the attempt, and Redirects how many redirects were followed in it.
	Attempt   int `json:"attempt,omitempty"`
	Redirects int `json:"redirects,omitempty"`
	// Response is the last response. Nil means that none was read.
	Response *Response `json:"response,omitempty"`
	// Failures are the classes of what went wrong in addition to what the response says.
	Failures []string `json:"failures,omitempty"`
	// Conditional reports whether the request had a condition that allows a 304.
	Conditional bool `json:"conditional,omitempty"`
	// BodyCommitted reports whether bytes of the body were delivered, and it can be neither continued nor
	// started again.
	BodyCommitted bool `json:"body_committed,omitempty"`
	// RequestState is not_sent, not_processed or unknown (empty): what is known about the requests of the fetch.
	RequestState string `json:"request_state,omitempty"`
	// Reused reports whether the connection of the last hop had carried another request.
	Reused     bool       `json:"reused,omitempty"`
	ObservedAt *time.Time `json:"observed_at,omitempty"`
	TimeLeft   *Duration  `json:"time_left,omitempty"`
	// Credential is what was done about a 401 or 403 so far: not_asked, refreshed, refresh_failed,
	// refused_again or challenged. Empty means that there is nothing to ask.
	Credential string `json:"credential,omitempty"`
}

// Response is the head of a response. Headers are pairs of a name and a value.
type Response struct {
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers,omitempty"`
}

// RetryPolicy says when a fetch is repeated. A field that is nil or empty has the default of the profile.
type RetryPolicy struct {
	Profile            string    `json:"profile,omitempty"` // standard (empty) or download
	MaxAttempts        *int      `json:"max_attempts,omitempty"`
	BaseDelay          *Duration `json:"base_delay,omitempty"`
	MaxDelay           *Duration `json:"max_delay,omitempty"`
	Multiplier         *float64  `json:"multiplier,omitempty"`
	MaxJitter          *Duration `json:"max_jitter,omitempty"`
	JitterSeed         *Seed     `json:"jitter_seed,omitempty"`
	MaxRetryAfter      *Duration `json:"max_retry_after,omitempty"`
	RetryTLSHandshake  *bool     `json:"retry_tls_handshake,omitempty"`
	AdditionalStatuses []int     `json:"additional_status_codes,omitempty"`
	ExcludedStatuses   []int     `json:"excluded_status_codes,omitempty"`
	IdempotencyKey     string    `json:"idempotency_key,omitempty"`
	AllowNonIdempotent bool      `json:"allow_non_idempotent,omitempty"`
}

// RedirectPolicy says which redirects are followed. A field that is nil or empty has the default of the
// profile.
type RedirectPolicy struct {
	Follow             *bool  `json:"follow,omitempty"`
	MaxRedirects       *int   `json:"max_redirects,omitempty"`
	Scope              string `json:"scope,omitempty"` // any (empty), same_host or same_origin
	ForbidDowngrade    bool   `json:"forbid_downgrade,omitempty"`
	ForwardCredentials bool   `json:"forward_credentials,omitempty"`
}

// Verdict is what an observation means and what follows. Either Redirect or Decision is set.
type Verdict struct {
	// Outcome is success, not_modified, redirect or failed: that of the fetch if it ends here. It is empty
	// if a redirect is followed.
	Outcome string `json:"outcome,omitempty"`
	// Failure is nil if nothing failed.
	Failure  *Failure  `json:"failure,omitempty"`
	Redirect *Redirect `json:"redirect,omitempty"`
	Decision *Decision `json:"decision,omitempty"`
}

// Failure is what went wrong.
type Failure struct {
	// Class, Type and Rule are the class, its failure type, and the rule that says so.
	Class     string `json:"class"`
	Type      string `json:"type"`
	Rule      string `json:"rule"`
	Retryable bool   `json:"retryable"`
	// RetryAfter is the wait that the origin asked for. Nil means none.
	RetryAfter *Duration `json:"retry_after,omitempty"`
	// Reason is compared only if the vector has one, and RequestState if the scenario has one.
	Reason       string `json:"reason,omitempty"`
	RequestState string `json:"request_state,omitempty"`
}

// Redirect is the request that follows a redirect.
type Redirect struct {
	URL         string `json:"url"`
	Method      string `json:"method"`
	BodyKept    bool   `json:"body_kept"`
	CrossOrigin bool   `json:"cross_origin"`
}

// Decision is whether another attempt follows, and the rule that decides. Either Retry or Stop is set.
type Decision struct {
	Rule  string `json:"rule"`
	Retry *Retry `json:"retry,omitempty"`
	// Stop is why no attempt follows, such as not_retried.
	Stop string `json:"stop,omitempty"`
}

// Retry is the next attempt.
type Retry struct {
	Attempt int      `json:"attempt"`
	Delay   Duration `json:"delay"`
	Source  string   `json:"source"` // of the delay: backoff, retry_after, auth_refresh or new_connection
	Start   string   `json:"start"`  // first_url or failed_hop
}

// Duration is a time span. In JSON it is a decimal number of seconds with at most nine decimals and an s,
// such as "0.200s".
type Duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	digits, ok := strings.CutSuffix(text, "s")
	span, err := time.ParseDuration(text)
	if !ok || err != nil || strings.Trim(digits, "0123456789.") != "" {
		return fmt.Errorf("%q: give seconds, such as 0.200s", text)
	}
	*d = Duration(span)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// String returns the seconds, with as few decimals as it takes.
func (d Duration) String() string {
	text := fmt.Sprintf("%d.%09d", d/1e9, d%1e9)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "s"
}

// Seed is a number of 64 bits. In JSON it is a string, because many programs round such numbers.
type Seed uint64

// UnmarshalJSON implements json.Unmarshaler.
func (s *Seed) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	*s = Seed(n)
	return err
}

// MarshalJSON implements json.Marshaler.
func (s Seed) MarshalJSON() ([]byte, error) { return json.Marshal(strconv.FormatUint(uint64(s), 10)) }
