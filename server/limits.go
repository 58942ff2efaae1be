package server

import (
	"cmp"
	"errors"
	"math"
	"time"
)

// Defaults of spec §9 and §12.
const (
	defaultMaxTotal   = 15 * time.Minute
	defaultMaxBody    = 1 << 40
	maxDefaultFetches = 10_000 // by default
)

// Limits limits what callers may request. [Server.SetLimits] changes the limits of a running
// server. Fetches in flight keep the limits that they started with.
type Limits struct {
	// MaxTotalTimeout is the maximum of total_timeout. A request for more is clamped. Zero
	// means 15 minutes.
	MaxTotalTimeout time.Duration
	// MaxBodyBytes is the maximum of max_size_bytes. A request for more is clamped. Zero
	// means 1 TiB.
	MaxBodyBytes int64
	// MaxFetches limits the fetches in flight. Zero means as many as the memory budget has
	// capacity for, but no more than 10,000. MaxFetchesPerCaller limits the fetches of one
	// caller, which is the name that an [Authenticator] returns, or else an address. Zero
	// means no separate limit. If MaxFetches is 8 or more, an eighth of the slots is reserved
	// for callers that have less than it, and another 64th for callers that have almost none.
	// So a single caller may have MaxFetches less these two. With fewer slots it may have all
	// of them, and callers take turns. A fetch over a limit is refused with RESOURCE_EXHAUSTED
	// before its first event. Tasks of FetchMany wait instead.
	MaxFetches, MaxFetchesPerCaller int
	// NonIdempotentRetries selects whether requests may set allow_non_idempotent (spec I2).
	// Zero means [NonIdempotentByRequest].
	NonIdempotentRetries NonIdempotentRetries
	// CallerMaxFetches overrides MaxFetchesPerCaller for named callers. Values must be
	// positive.
	CallerMaxFetches map[string]int

	memory int64 // the memory budget of the server, in bytes
}

// NonIdempotentRetries selects who may allow retries of POST and PATCH (spec I2).
type NonIdempotentRetries uint8

// Values of [NonIdempotentRetries].
const (
	NonIdempotentByRequest NonIdempotentRetries = iota // A request may, with allow_non_idempotent and a key.
	NonIdempotentForbidden                             // No one may: allow_non_idempotent is refused.
)

// check returns an error if a limit is invalid.
func (l *Limits) check() error {
	if l.MaxTotalTimeout < 0 || l.MaxBodyBytes < 0 || l.MaxFetches < 0 || l.MaxFetchesPerCaller < 0 {
		return errors.New("server: MaxTotalTimeout, MaxBodyBytes, MaxFetches and MaxFetchesPerCaller must not be negative")
	}
	for name, n := range l.CallerMaxFetches {
		if n <= 0 {
			return errors.New("server: CallerMaxFetches of " + name + " must be positive: remove the entry for no separate limit")
		}
	}
	return nil
}

// DefaultMaxFetches returns the default of MaxFetches for a memory budget in bytes. Zero means
// the default budget of [Config].
func DefaultMaxFetches(budget int64) int {
	return int(min(max(cmp.Or(budget, int64(defaultMemoryBudget))/(fetchBytes+callBytes), 1), maxDefaultFetches))
}

// withDefaults returns the limits with a default for each zero.
func (l Limits) withDefaults() *Limits {
	l.MaxTotalTimeout = cmp.Or(l.MaxTotalTimeout, defaultMaxTotal)
	l.MaxBodyBytes = cmp.Or(l.MaxBodyBytes, int64(defaultMaxBody))
	l.MaxFetches = cmp.Or(l.MaxFetches, DefaultMaxFetches(l.memory))
	l.MaxFetchesPerCaller = cmp.Or(l.MaxFetchesPerCaller, math.MaxInt)
	return &l
}

// maxFetchesOf returns how many fetches a caller may have in flight.
func (l *Limits) maxFetchesOf(caller string) int {
	if n, own := l.CallerMaxFetches[caller]; own {
		return n
	}
	return l.MaxFetchesPerCaller
}
