package hostile

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"fetchd/conformance/space"
	"fetchd/test/need"
)

// insideVariable is set in the environment of the test inside the namespace.
const insideVariable = "FETCHD_HOSTILE_INSIDE"

// runInside runs this test again in a process with a new network namespace, and reports its
// result.
func runInside(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 { // some systems allow every user to be root in a namespace
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	all, err := cmd.CombinedOutput()
	var out strings.Builder
	for line := range strings.Lines(string(all)) {
		if word := strings.TrimSpace(line); testing.Verbose() || !strings.HasPrefix(word, "=== ") && !strings.HasPrefix(word, "--- PASS") {
			out.WriteString(line)
		}
	}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		need.Missing(t, "run it as root", "cannot create a network namespace: %v", err)
	}
	switch {
	case err != nil:
		t.Errorf("in the namespace: %v\n%s", err, &out)
	case strings.Contains(out.String(), "--- SKIP: "+t.Name()+" "):
		need.Missing(t, "run it as root", "the network namespace cannot be used:\n%s", &out)
	default:
		t.Logf("in the namespace:\n%s", &out)
	}
}

// opened returns how many TCP connections this namespace has opened.
func opened(t *testing.T) int {
	t.Helper()
	n, err := space.Opened()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
