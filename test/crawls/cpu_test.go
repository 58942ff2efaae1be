package crawls

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// cpuTime returns the CPU time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// profiled starts a CPU profile. The function that it returns stops it and returns the share
// of the CPU time, in percent, that functions of a package and their callees used.
func profiled(t *testing.T) func(pkg string) float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cpu.prof")
	f, err := os.Create(path)
	must(t, err)
	must(t, pprof.StartCPUProfile(f))
	return func(pkg string) float64 {
		pprof.StopCPUProfile()
		f.Close()
		if keep := os.Getenv("FETCHD_PROFILE"); keep != "" {
			data, _ := os.ReadFile(path)
			_ = os.WriteFile(keep, data, 0o600)
		}
		out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", "-focus="+regexp.QuoteMeta(pkg), path).Output()
		must(t, err)
		found := regexp.MustCompile(`(?m)^Showing nodes accounting for .*, ([0-9.]+)% of`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("no share in %.300s", out)
		}
		share, err := strconv.ParseFloat(string(found[1]), 64)
		must(t, err)
		return share
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
