//go:build linux

package load

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"fetchd/fetch"
)

// long skips a test that was not asked for, and bounds one that was.
func long(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("FETCHD_LONG") != "1" {
		t.Skip("takes up to a minute and wants the machine for itself: set FETCHD_LONG=1, or .ci/run load")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// await takes one value from c.
func await[T any](ctx context.Context, c <-chan T) (T, error) {
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
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
	return fmt.Sprintf("p50 %5.1f ms, p99 %5.1f ms, max %5.1f ms", ms(50), ms(99), ms(100))
}

// loopback opens the ports of addresses on loopback.
func loopback(addresses ...string) (fetch.Egress, error) {
	open := fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, address := range addresses {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return open, err
		}
		open.AllowPorts = append(open.AllowPorts, at.Port())
	}
	return open, nil
}

// descriptors counts what this process has open.
func descriptors() (int, error) {
	open, err := os.ReadDir("/proc/self/fd")
	return len(open), err
}

// within holds a figure against its goal, which is told where it is missed, and
// against its limit, which it must not pass.
func within[T cmp.Ordered](t *testing.T, what string, got, goal, limit T) {
	t.Helper()
	switch {
	case got > limit:
		t.Errorf("%s: %v, want %v at most", what, got, limit)
	case got > goal:
		t.Logf("%s: %v misses the goal of %v, and is within the limit of %v", what, got, goal, limit)
	}
}
