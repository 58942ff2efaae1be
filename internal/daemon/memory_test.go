package daemon

import (
	"errors"
	"math"
	"testing"
)

func TestLimitFrom(t *testing.T) {
	t.Parallel()
	const mib, gib, unset = 1 << 20, 1 << 30, math.MaxInt64
	for _, row := range []struct {
		name           string
		set            int64
		cgroup, system uint64 // 0: an error
		want           MemoryLimit
	}{
		{"GOMEMLIMIT", 900 * mib, 0, 16 * gib, MemoryLimit{900 * mib, "GOMEMLIMIT"}},
		{"GOMEMLIMIT below the cgroup's limit", 900 * mib, gib, 16 * gib, MemoryLimit{900 * mib, "GOMEMLIMIT"}},
		{"GOMEMLIMIT beyond the cgroup's limit", 900 * mib, 250 * mib, 16 * gib, MemoryLimit{225 * mib, "cgroup"}},
		{"a cgroup", unset, 1000 * mib, 16 * gib, MemoryLimit{900 * mib, "cgroup"}},
		{"a cgroup without a limit", unset, math.MaxUint64, 16 * gib, MemoryLimit{2 * gib, "system"}},
		{"a large machine", unset, 0, 16 * gib, MemoryLimit{2 * gib, "system"}},
		{"a small machine", unset, 0, gib, MemoryLimit{512 * mib, "system"}},
		{"nothing is known", unset, 0, 0, MemoryLimit{2 * gib, "system"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			reads := func(n uint64) func() (uint64, error) {
				return func() (uint64, error) {
					if n == 0 {
						return 0, errors.New("not known")
					}
					return n, nil
				}
			}
			if got := limitFrom(row.set, reads(row.cgroup), reads(row.system)); got != row.want {
				t.Errorf("limitFrom = %v, want %v", got, row.want)
			}
		})
	}
}

// TestCollected checks that garbage leaves a part of a cgroup free, and that an explicit limit is obeyed.
func TestCollected(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, row := range []struct {
		limit MemoryLimit
		want  int64
	}{
		{MemoryLimit{900 * mib, "cgroup"}, 702 * mib},
		{MemoryLimit{225 * mib, "cgroup"}, 139*mib + mib/2},
		{MemoryLimit{90 * mib, "cgroup"}, 50 * mib},
		{MemoryLimit{900 * mib, "GOMEMLIMIT"}, 900 * mib},
		{MemoryLimit{512 * mib, "system"}, 512 * mib},
	} {
		if got := row.limit.collected(); got != row.want {
			t.Errorf("%v: %d, want %d", row.limit, got, row.want)
		}
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ limit, want int64 }{
		{232 << 20, 100 << 20}, {1 << 30, 496 << 20}, {16 << 20, 8 << 20}, {0, 8 << 20},
	} {
		if got := (MemoryLimit{Bytes: row.limit}).Budget(); got != row.want {
			t.Errorf("the budget of %d is %d, want %d", row.limit, got, row.want)
		}
	}
}
