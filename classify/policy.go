package classify

import (
	"math"
	"slices"
	"time"
)

// Profile is a set of rules and defaults (spec §2). Its numbers are those of
// fetchd.v1.RetryProfile.
type Profile uint8

// The profiles.
const (
	Standard Profile = iota + 1 // Short waits without jitter: for crawlers and services.
	Download                    // Longer waits with jitter; retries 408: for downloads.
)

// Policy controls which failures are retried, and when. Start with
// [Profile.Policy] and change single fields; the zero value retries nothing.
// This package only reads a Policy, so one may be shared.
type Policy struct {
	// Profile controls what has no field: the exponent of the backoff, and
	// whether a 408 is retried (spec §2, H5).
	Profile Profile
	// MaxAttempts is the maximum number of attempts, the first included. Both 0
	// and 1 mean no retry.
	MaxAttempts int
	// BaseDelay, MaxDelay and Multiplier define the backoff; see [Policy.Backoff].
	// A zero BaseDelay or MaxDelay means no wait.
	BaseDelay, MaxDelay time.Duration
	Multiplier          float64
	// MaxJitter is the maximum jitter, in addition to MaxDelay. Zero means none.
	MaxJitter time.Duration
	// JitterSeed makes the jitter repeatable. Zero is a valid seed.
	JitterSeed uint64
	// MaxRetryAfter is the longest Retry-After to wait for (W3). Zero means that
	// only a Retry-After of zero is obeyed.
	MaxRetryAfter time.Duration
	// Additional lists 4xx statuses to retry in addition to the profile's (H10).
	Additional []int
	// Excluded lists statuses not to retry even if the profile does.
	Excluded []int
	// RepeatUnsafe allows retries of POST and PATCH. It requires that the caller
	// set allow_non_idempotent and an idempotency key (I2).
	RepeatUnsafe bool
	// RetryTLSHandshake controls whether a failed TLS handshake is retried (N5).
	RetryTLSHandshake bool
	// Follow controls whether redirects are followed. If not, a 3xx is H9.
	Follow bool
	// MaxRedirects is the maximum number of redirects that an attempt follows.
	// One more fails with R1.
	MaxRedirects int
}

// Policy returns the defaults of the profile (spec §2). An unknown profile has
// those of [Standard].
func (p Profile) Policy() Policy {
	if p == Download {
		return Policy{
			Profile: Download, MaxAttempts: 4,
			BaseDelay: time.Second, MaxDelay: 32 * time.Second, Multiplier: 2,
			MaxJitter: 500 * time.Millisecond, MaxRetryAfter: 60 * time.Second,
			Follow: true, MaxRedirects: 20,
		}
	}
	return Policy{
		Profile: Standard, MaxAttempts: 3,
		BaseDelay: 100 * time.Millisecond, MaxDelay: 2 * time.Second, Multiplier: 2,
		MaxRetryAfter: 30 * time.Second, RetryTLSHandshake: true,
		Follow: true, MaxRedirects: 5,
	}
}

// Idempotent reports whether a method may be repeated without a second effect
// (spec §1, RFC 9110 §9.2.2). The empty method means GET.
func Idempotent(method string) bool {
	switch method {
	case "", "GET", "HEAD", "PUT", "DELETE", "OPTIONS":
		return true
	}
	return false
}

// Repeatable reports whether the policy allows sending a request with this
// method more than once (I1, I2).
func (p *Policy) Repeatable(method string) bool {
	return p.RepeatUnsafe || Idempotent(method)
}

// retries reports whether a class is retried, and returns its failure type. The
// status is 0 if none was read. What the request adds to the profile's retries is
// transient. What it takes away keeps its type, because the failure is the same.
func (p *Policy) retries(c Class, status int) (bool, FailureType) {
	retried, failure := classes[c].retried, classes[c].failure
	switch {
	case c == TLSHandshake && !p.RetryTLSHandshake:
		retried = false
		if p.Profile == Download {
			failure = Permanent // N5
		}
	case c == RequestTimeout && p.Profile == Download:
		retried = true // H5
	}
	if !slices.Contains(statusFaults, c) || status == 0 {
		return retried, failure // the lists are about statuses that decide
	}
	if slices.Contains(p.Additional, status) {
		if !retried {
			failure = Transient // H10
		}
		retried = true
	}
	if slices.Contains(p.Excluded, status) {
		retried = false
	}
	return retried, failure
}

// Backoff returns the wait after attempt n, without jitter. It is
// min(base·mult^n, max) in STANDARD and min(base·mult^(n-1), max) in DOWNLOAD,
// computed in float64 nanoseconds and truncated (spec §2). For all values of the
// fields it is at least zero and at most MaxDelay.
func (p *Policy) Backoff(n int) time.Duration {
	if p.Profile == Download {
		n--
	}
	limit, power := max(p.MaxDelay, 0), 1.0
	for range min(n, 1024) { // more than any policy of the contract needs
		power *= p.Multiplier // not math.Pow, which other languages round in another way
	}
	d := float64(max(p.BaseDelay, 0)) * power
	switch {
	case d >= float64(limit):
		return limit
	case d > 0:
		return time.Duration(d)
	}
	return 0 // also for NaN, from 0 times infinity
}

// Jitter returns what is added to the backoff after attempt n:
// splitmix64(seed + n) mod (MaxJitter in ms + 1) milliseconds (spec §2).
func (p *Policy) Jitter(n int) time.Duration {
	limit := p.MaxJitter.Milliseconds()
	if limit <= 0 {
		return 0
	}
	ms := splitmix64(p.JitterSeed+uint64(n)) % (uint64(limit) + 1)
	return time.Duration(ms) * time.Millisecond
}

// splitmix64 is the finalizer of Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators" (2014). It is easy to implement in any language.
func splitmix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// addSaturating returns a+b, or the maximum duration if that overflows. Neither
// may be negative.
func addSaturating(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
