package main

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fetchd/internal/cli"
)

// TestWithoutPermission changes a file that this user may only read. The capabilities of root would allow it.
func TestWithoutPermission(t *testing.T) {
	c := newCrawl(t)
	must(t, os.Chmod(c.db, 0o444))
	runtime.LockOSThread() // the thread ends with the test
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	must(t, unix.Capget(&head, &data[0]))
	data[0].Effective &^= 1 << unix.CAP_DAC_OVERRIDE
	must(t, unix.Capset(&head, &data[0]))
	if got := c.cli("pause"); got.code != cli.ExitDatabase || !strings.HasSuffix(got.err, c.db+": permission denied\n") {
		t.Errorf("pause: exit status %d, %q; want %d and that the permission is missing", got.code, got.err, cli.ExitDatabase)
	}
	if got := c.cli("status"); got.code != cli.ExitOK {
		t.Errorf("status: exit status %d, %q; want %d", got.code, got.err, cli.ExitOK)
	}
}
