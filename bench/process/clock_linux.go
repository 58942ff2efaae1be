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

// CPU is the time that a process has computed, in user and system mode, its threads
// that have ended included. The kernel counts it in nanoseconds.
func CPU(pid int) (time.Duration, error) {
	if pid <= 0 || pid > math.MaxInt32 {
		return 0, fmt.Errorf("process %d: give the id of one", pid)
	}
	// The clock of a process has its id in the upper bits, inverted, and in the lower
	// three CPUCLOCK_SCHED of linux/posix-timers.h.
	clock := ^int32(pid)<<3 | 2
	var at unix.Timespec
	if err := unix.ClockGettime(clock, &at); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}

// Resident is what a process holds of memory now, and the most that it has held
// since [ForgetPeak], both in bytes.
func Resident(pid int) (now, peak int64, err error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	now, peak = field(string(status), "VmRSS:"), field(string(status), "VmHWM:")
	if now <= 0 || peak <= 0 {
		return 0, 0, fmt.Errorf("%s tells no VmRSS and VmHWM: the process has ended", path)
	}
	return now, peak, nil
}

// field is the number of bytes that a line of /proc/PID/status tells in KiB, or 0.
func field(status, name string) int64 {
	_, after, _ := strings.Cut(status, name)
	text, _, _ := strings.Cut(after, "kB")
	kib, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64) // 0 where it is no number
	return kib << 10
}

// Files is how many files, sockets included, a process of this one's may open. Programs
// in Go raise their own limit to it.
func Files() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return limit.Max, err
}

// ForgetPeak has the peak of a process's memory begin anew.
func ForgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // proc(5)
}

// diesWithParent has the child of a program that is killed end as well.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
