package server

import (
	"errors"
	"math"
	"time"
)

// Defaults of spec §9 and §12.
const (
	defaultMaxTotal = 15 * time.Minute
	defaultMaxBody  = 1 << 40
	mostFetches     = 10_000 // by default
)

// Limits bound what callers may ask for. They can be changed while the server
// runs ([Server.SetLimits]); what is under way keeps those it began with.
type Limits struct {
	// MaxTotalTimeout is the longest a fetch may take; zero means 15 min.
	MaxTotalTimeout time.Duration
	// MaxBodyBytes is the largest max_size_bytes; zero means 1 TiB.
	MaxBodyBytes int64
	// MaxFetches is the number of fetches that may be in flight. Zero means as many as
	// the memory budget has capacity for, 10,000 at most. MaxFetchesPerCaller limits those
	// of one caller, which is the name that an [Authenticator] returns, or else an address;
	// zero means no separate limit. With 64 slots or more, the last eighth is for callers
	// with few, unless there is only one caller. A fetch over a limit is refused with
	// RESOURCE_EXHAUSTED before its first event; the tasks of FetchMany wait.
	MaxFetches, MaxFetchesPerCaller int
	// NonIdempotentRetries says whether requests may set allow_non_idempotent (spec I2);
	// zero means [NonIdempotentByRequest].
	NonIdempotentRetries NonIdempotentRetries
	// CallerMaxFetches takes the place of MaxFetchesPerCaller for callers by name.
	CallerMaxFetches map[string]int

	memory int64 // the memory budget of the server, in bytes
}

// NonIdempotentRetries says who allows retries of POST and PATCH (spec I2).
type NonIdempotentRetries uint8

// The values. The zero value is NonIdempotentByRequest.
const (
	NonIdempotentByRequest NonIdempotentRetries = iota // Each request, with allow_non_idempotent and a key.
	NonIdempotentForbidden                             // Nobody: allow_non_idempotent is refused.
)

// check tells what is not usable.
func (l *Limits) check() error {
	if l.MaxTotalTimeout < 0 || l.MaxBodyBytes < 0 || l.MaxFetches < 0 || l.MaxFetchesPerCaller < 0 {
		return errors.New("server: MaxTotalTimeout, MaxBodyBytes, MaxFetches and MaxFetchesPerCaller must not be negative")
	}
	for name, n := range l.CallerMaxFetches {
		if n <= 0 {
			return errors.New("server: CallerMaxFetches of " + name + " must be positive")
		}
	}
	return nil
}

// DefaultMaxFetches returns the default of MaxFetches with a memory budget of that many
// bytes; zero means the default budget of [Config].
func DefaultMaxFetches(budget int64) int {
	return int(min(max(orDefault(budget, int64(defaultMemoryBudget))/(fetchBytes+callBytes), 1), mostFetches))
}

// whole returns the limits with every zero filled in.
func (l Limits) whole() *Limits {
	l.MaxTotalTimeout = orDefault(l.MaxTotalTimeout, defaultMaxTotal)
	l.MaxBodyBytes = orDefault(l.MaxBodyBytes, int64(defaultMaxBody))
	l.MaxFetches = orDefault(l.MaxFetches, DefaultMaxFetches(l.memory))
	l.MaxFetchesPerCaller = orDefault(l.MaxFetchesPerCaller, math.MaxInt)
	return &l
}

// of is how many fetches a caller may have under way.
func (l *Limits) of(caller string) int {
	if n, own := l.CallerMaxFetches[caller]; own {
		return n
	}
	return l.MaxFetchesPerCaller
}
