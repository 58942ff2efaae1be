package daemon

import (
	"math"
	"runtime/debug"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// MemoryLimit is the memory that this process may use.
type MemoryLimit struct {
	Bytes  int64
	Source string // "GOMEMLIMIT", "cgroup" or "system"
}

const (
	// idle is the memory of a process without callers.
	idle = 32 << 20
	// program is what a process holds that Go's collector does not count, such as the pages of its file.
	program = 48 << 20
	// minBudget is the smallest budget, whatever the limit.
	minBudget = 8 << 20
	// maxOfSystem is the maximum that a process uses of a machine without a limit.
	maxOfSystem = 2 << 30
)

// Memory returns the memory limit: GOMEMLIMIT, else 90 % of the cgroup's limit, else half of the
// machine's memory or 2 GiB, whichever is less. A GOMEMLIMIT above the cgroup's limit is ignored, because
// the kernel would kill the process first. The first call also sets the limit of Go's collector. Make it
// before the process works.
func Memory() MemoryLimit { return memory() }

var memory = sync.OnceValue(func() MemoryLimit {
	limit := limitFrom(debug.SetMemoryLimit(-1), memlimit.FromCgroup, memlimit.FromSystem)
	debug.SetMemoryLimit(limit.collected())
	return limit
})

// collected returns the limit of Go's collector. In a cgroup it is lower than that of the process: if callers use
// their whole budget, garbage may not take the rest. With what Go does not count it is three quarters of the
// cgroup's limit, and no less than half.
func (l MemoryLimit) collected() int64 {
	if l.Source != "cgroup" {
		return l.Bytes
	}
	group := l.Bytes / 9 * 10
	return max(group/4*3-program, group/2)
}

func limitFrom(set int64, cgroup, system func() (uint64, error)) MemoryLimit {
	group, err := cgroup()
	grouped := err == nil && group > 0 && group < math.MaxInt64
	switch {
	case set != math.MaxInt64 && (!grouped || uint64(set) <= group): //nolint:gosec // it is not negative
		return MemoryLimit{set, "GOMEMLIMIT"}
	case grouped:
		return MemoryLimit{int64(group / 10 * 9), "cgroup"}
	}
	limit := int64(maxOfSystem)
	if all, err := system(); err == nil && all > 0 {
		limit = int64(min(all/2, maxOfSystem))
	}
	return MemoryLimit{limit, "system"}
}

// Budget returns how many bytes may be held for callers: half of the limit less an idle
// process, because Go may hold as much garbage as live memory.
func (l MemoryLimit) Budget() int64 { return max((l.Bytes-idle)/2, minBudget) }
