package heap

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// MemoryLimit is how much memory this process may use.
type MemoryLimit struct {
	Bytes  int64
	Source string // "GOMEMLIMIT", "cgroup" or "system"
}

const (
	// idle is what a process takes before it has a caller.
	idle = 32 << 20
	// leastBudget is the smallest budget, whatever the limit.
	leastBudget = 8 << 20
	// mostOfSystem is what a process takes of a machine where nothing limits it.
	mostOfSystem = 2 << 30
)

// Limit returns the memory limit, and sets it for Go's collector if GOMEMLIMIT has
// not: 90 % of the cgroup's limit, else half of the machine's memory or 2 GiB, if that
// is less. A GOMEMLIMIT beyond the cgroup's limit does not count: the kernel would end
// the process first. It is called once, before the process serves.
func Limit() MemoryLimit {
	limit := limitFrom(debug.SetMemoryLimit(-1), memlimit.FromCgroup, memlimit.FromSystem)
	debug.SetMemoryLimit(limit.Bytes)
	return limit
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
	limit := int64(mostOfSystem)
	if all, err := system(); err == nil && all > 0 {
		limit = int64(min(all/2, mostOfSystem))
	}
	return MemoryLimit{limit, "system"}
}

// Budget is how many bytes may be held for callers: half of what an idle process
// leaves, for Go may hold as much garbage as lives.
func (l MemoryLimit) Budget() int64 { return max((l.Bytes-idle)/2, leastBudget) }
