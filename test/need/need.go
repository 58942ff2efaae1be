// Package need skips the tests that a machine or a run cannot do. It is the only package that may:
// each of its functions names what to install, to run or to set.
//
// All functions take the test that calls them. In a subtest that is the test of the subtest.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Program returns the path of a program. Without it the test is skipped, or fails, as [Missing] says.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "install the Debian package "+debian, "%s is not on the PATH", name)
	}
	return path
}

// Tool returns the path of a program that tools/go.mod pins.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "run PATH=$(.ci/tools "+name+"):$PATH", "%s is not on the PATH", name)
	}
	return path
}

// SmallDisk mounts a disk in memory, with options such as size=32m, until the test ends.
func SmallDisk(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=0700,"+options, "tmpfs", dir).CombinedOutput(); err != nil {
		Missing(t, "run it as root on Linux", "cannot mount a small disk: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// Linux skips the test on other systems.
func Linux(t testing.TB, why string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		Missing(t, "run it on Linux", "%s", why)
	}
}

// Missing skips a test that this machine cannot run, and says what is missing and what to do about
// it. The remedy begins with "install", "run" or "set". With CI=true the test fails instead: in
// the gate a skipped test would look like one that passed.
func Missing(t testing.TB, remedy, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: %s", fmt.Sprintf(format, args...), remedy)
	}
	skip(t, remedy, fmt.Sprintf(format, args...))
}

// Long skips the test unless FETCHD_LONG is 1.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("FETCHD_LONG") != "1" {
		Request(t, "set FETCHD_LONG=1, or run the step of .ci/run", "it is a long test")
	}
}

// Request skips a test that runs only on request, and says how to request it. It is skipped in the gate too.
func Request(t testing.TB, remedy, format string, args ...any) {
	t.Helper()
	skip(t, remedy, fmt.Sprintf(format, args...))
}

// folder is the folder of the package under test, from the top of the module, such as ./frontier/store.
var folder = func() string {
	dir, err := os.Getwd()
	if err != nil {
		return "?"
	}
	for top := dir; top != filepath.Dir(top); top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, "go.mod")); err == nil {
			return "." + strings.TrimPrefix(dir, top)
		}
	}
	return dir
}()

// skip skips the test. If TEST_SKIPS names a file, it appends a line to it: go test prints skips
// only with -v.
func skip(t testing.TB, remedy, why string) {
	t.Helper()
	why = strings.Join(strings.Fields(why), " ") // the output of a program has several lines
	if name := os.Getenv("TEST_SKIPS"); name != "" {
		if err := record(name, fmt.Sprintf("%s\t%s %s\t%s\n", remedy, folder, t.Name(), why)); err != nil {
			t.Fatal(err)
		}
	}
	t.Skipf("%s: %s", why, remedy)
}

func record(name, line string) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line) // one write, because the tests of many packages append at once
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}
