//go:build linux

package replicas

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"
)

// long skips a test that was not asked for, and bounds one that was.
func long(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	if os.Getenv("FETCHD_LONG") != "1" {
		t.Skip("starts replicas, loads them and takes up to a minute or more: set FETCHD_LONG=1")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// cannot skips a test that was asked for, and that this machine cannot run. The
// gate must not take that for a pass.
func cannot(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// times are measured durations.
type times []time.Duration

// percentile is the least that p percent of the times do not exceed.
func (ts times) percentile(p float64) time.Duration {
	if len(ts) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ts))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func (ts times) String() string {
	ms := func(p float64) float64 { return ts.percentile(p).Seconds() * 1000 }
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, max %.1f ms", ms(50), ms(99), ms(100))
}

// within holds a figure against its goal, which is told where it is missed, and
// against its limit, which it must not pass: the machine may be busy.
func within[T cmp.Ordered](t *testing.T, what string, got, goal, limit T) {
	t.Helper()
	switch {
	case got > limit:
		t.Errorf("%s: %v, want %v at most", what, got, limit)
	case got > goal:
		t.Logf("%s: %v misses the goal of %v, and is within the limit of %v", what, got, goal, limit)
	}
}

// atLeast is the same for a figure that must not be too small.
func atLeast[T cmp.Ordered](t *testing.T, what string, got, want T) {
	t.Helper()
	if got < want {
		t.Errorf("%s: %v, want %v at least", what, got, want)
	}
}
