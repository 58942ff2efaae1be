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
	Standard Profile = iota + 1 // Short waits, no jitter: for crawlers and services.
	Download                    // Longer waits with jitter, 408 retried: for downloads.
)

// MaxExchanges is how many requests a whole fetch may make (spec I6).
const MaxExchanges = 256

// Policy says which failures are tried again, and when. Take one from
// [Profile.Policy] and change single fields; the zero value retries nothing.
// A Policy is only read here, so it may be shared.
type Policy struct {
	// Profile settles what no field does: the exponent of the backoff, and
	// whether a 408 is retried (spec §2, H5).
	Profile Profile
	// MaxAttempts counts the first attempt; 1 means no retry, and so does 0.
	MaxAttempts int
	// BaseDelay, MaxDelay and Multiplier make the backoff. Zero means no wait.
	BaseDelay, MaxDelay time.Duration
	Multiplier          float64
	// MaxJitter is the longest addition to a backoff, after MaxDelay; zero: none.
	MaxJitter time.Duration
	// JitterSeed makes the jitter repeatable. Zero is a seed like any other.
	JitterSeed uint64
	// MaxRetryAfter is the longest Retry-After that is waited for (W3).
	MaxRetryAfter time.Duration
	// Additional are 4xx statuses retried besides the profile's (H10).
	Additional []int
	// Excluded are statuses not retried, though the profile does.
	Excluded []int
	// RepeatUnsafe allows retries of POST and PATCH: the caller set
	// allow_non_idempotent and gave an idempotency key (I2).
	RepeatUnsafe bool
	// RetryTLSHandshake settles N5.
	RetryTLSHandshake bool
	// Follow tells whether redirects are followed; without it a 3xx is H9.
	Follow bool
	// MaxRedirects is how many redirects an attempt follows; one more is R1.
	MaxRedirects int
}

// Policy returns the defaults of the profile (spec §2). An unknown profile is
// taken as [Standard].
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

// Idempotent tells whether a method may be repeated without a second effect
// (spec §1, RFC 9110 §9.2.2). The empty method is GET.
func Idempotent(method string) bool {
	switch method {
	case "", "GET", "HEAD", "PUT", "DELETE", "OPTIONS":
		return true
	}
	return false
}

// Repeatable tells whether a request with this method may be sent more than
// once under the policy (I1, I2).
func (p *Policy) Repeatable(method string) bool {
	return p.RepeatUnsafe || Idempotent(method)
}

// retries tells whether a class is tried again, and as which failure type. The
// status is 0 where none was read.
func (p *Policy) retries(c Class, status int) (bool, FailureType) {
	retried, failure := classes[c].retried, classes[c].failure
	switch {
	case c == TLSHandshake && !p.RetryTLSHandshake:
		return false, Permanent // N5
	case c == RequestTimeout && p.Profile == Download:
		retried = true // H5
	}
	if status != 0 && slices.Contains(p.Additional, status) {
		if !retried {
			failure = Transient // H10
		}
		retried = true
	}
	if status != 0 && slices.Contains(p.Excluded, status) {
		retried = false
	}
	return retried, failure
}

// Backoff returns the wait before the retry that follows attempt n, without
// jitter: min(base·mult^n, max) in STANDARD and min(base·mult^(n-1), max) in
// DOWNLOAD, computed in float64 nanoseconds and truncated (spec §2). It is
// never negative and never over MaxDelay, whatever the fields hold.
func (p *Policy) Backoff(n int) time.Duration {
	if p.Profile == Download {
		n--
	}
	limit := max(p.MaxDelay, 0)
	d := float64(max(p.BaseDelay, 0)) * math.Pow(p.Multiplier, float64(max(n, 0)))
	switch {
	case d >= float64(limit):
		return limit
	case d > 0:
		return time.Duration(d)
	}
	return 0 // NaN too: 0 times infinity
}

// Jitter returns the addition to the backoff after attempt n: splitmix64(seed
// + n) mod (MaxJitter in ms + 1) milliseconds (spec §2).
func (p *Policy) Jitter(n int) time.Duration {
	limit := p.MaxJitter.Milliseconds()
	if limit <= 0 {
		return 0
	}
	ms := splitmix64(p.JitterSeed+uint64(n)) % (uint64(limit) + 1)
	return time.Duration(ms) * time.Millisecond
}

// splitmix64 is the finaliser of Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators" (2014): small enough for any language.
func splitmix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// addSaturating adds two waits that are not negative.
func addSaturating(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
