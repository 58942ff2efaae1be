package process

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time of a process, user and system, including threads that have ended.
// The kernel counts it in nanoseconds.
func CPU(pid int) (time.Duration, error) {
	if pid <= 0 || pid > math.MaxInt32 {
		return 0, fmt.Errorf("process %d: not a process ID", pid)
	}
	// The clock ID of a process has the inverted process ID in the upper bits, and
	// CPUCLOCK_SCHED of linux/posix-timers.h in the lower three.
	clock := ^int32(pid)<<3 | 2
	var at unix.Timespec
	if err := unix.ClockGettime(clock, &at); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}

// Resident returns the resident memory of a process now, and its peak since [ForgetPeak], in
// bytes.
func Resident(pid int) (now, peak int64, err error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	now, peak = field(string(status), "VmRSS:"), field(string(status), "VmHWM:")
	if now <= 0 || peak <= 0 {
		return 0, 0, fmt.Errorf("%s has no VmRSS and VmHWM: the process has ended", path)
	}
	return now, peak, nil
}

// field returns the value of a line of /proc/PID/status, which is in KiB, in bytes, or 0.
func field(status, name string) int64 {
	_, after, _ := strings.Cut(status, name)
	text, _, _ := strings.Cut(after, "kB")
	kib, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64) // 0 if it is not a number
	return kib << 10
}

// Files returns the hard limit of open files, including sockets. Go programs raise their own
// limit to it.
func Files() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Max, err
}

// ForgetPeak resets the peak of a process's memory.
func ForgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // proc(5)
}

// diesWithParent makes the kernel kill the child if this process is killed.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
