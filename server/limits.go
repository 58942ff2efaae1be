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
	defaultFetches  = 10_000
)

// Limits bound what callers may ask for. They can be changed while the server
// runs ([Server.SetLimits]); what is under way keeps those it began with.
type Limits struct {
	// MaxTotalTimeout is the longest a fetch may take; zero means 15 min.
	MaxTotalTimeout time.Duration
	// MaxBodyBytes is the largest max_size_bytes; zero means 1 TiB.
	MaxBodyBytes int64
	// MaxFetches may be under way at once; zero means 10,000. MaxFetchesPerCaller
	// of them for one caller, which is who an [Authenticator] names, or else an
	// address; zero means no limit of its own. What is over is refused with
	// RESOURCE_EXHAUSTED before its first event; the tasks of FetchMany wait.
	MaxFetches, MaxFetchesPerCaller int
	// CallerMaxFetches takes the place of MaxFetchesPerCaller for callers by name.
	CallerMaxFetches map[string]int
}

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

// whole returns the limits with every zero filled in.
func (l Limits) whole() *Limits {
	l.MaxTotalTimeout = orDefault(l.MaxTotalTimeout, defaultMaxTotal)
	l.MaxBodyBytes = orDefault(l.MaxBodyBytes, int64(defaultMaxBody))
	l.MaxFetches = orDefault(l.MaxFetches, defaultFetches)
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
