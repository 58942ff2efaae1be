//go:build linux

package process_test

import (
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"fetchd/test/bench/process"
	"fetchd/test/must"
)

// shell starts a shell script.
func shell(t *testing.T, script string, stderr func(string)) *process.Child {
	t.Helper()
	c, err := process.Start(t.Context(), process.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"GIVEN=yes"}, Stderr: stderr})
	must.Succeed(t, err)
	return c
}

func TestLines(t *testing.T) {
	var lines []string
	c := shell(t, `echo one; echo "$GIVEN$PATH_OF_OTHERS"; echo problem >&2; echo >&2`, func(line string) { lines = append(lines, line) })
	for _, want := range []string{"one", "yes"} {
		if got, err := c.Line(t.Context()); got != want || err != nil {
			t.Errorf("line %q, %v, want %q", got, err, want)
		}
	}
	if _, err := c.Line(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v, want %v", err, io.EOF)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if got := strings.Join(lines, "|"); got != "problem|" || c.LastWords() != "problem" {
		t.Errorf("standard error %q with the last words %q, want problem", got, c.LastWords())
	}
}

func TestFailure(t *testing.T) {
	c := shell(t, `echo why >&2; exit 3`, nil)
	err := c.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 {
		t.Errorf("error %v, want exit code 3", err)
	}
	if _, err := process.Start(t.Context(), process.Spec{Path: "/nothing/here"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: %v, want %v", err, os.ErrNotExist)
	}
}

// TestStop ends a program that handles the signal, and one that does not.
func TestStop(t *testing.T) {
	for name, script := range map[string]string{
		"caught":     `trap 'exit 0' TERM; echo ready; while :; do read -r line || sleep 0.01; done`,
		"not caught": `echo ready; exec cat /dev/zero >/dev/null`,
	} {
		t.Run(name, func(t *testing.T) {
			c := shell(t, script, nil)
			if _, err := c.Line(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClocks reads the CPU time and memory of a child.
func TestClocks(t *testing.T) {
	c := shell(t, `echo ready; while :; do :; done`, nil)
	if _, err := c.Line(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := process.CPU(c.PID())
	must.Succeed(t, err)
	for after := before; after <= before; { // the child computes
		if after, err = process.CPU(c.PID()); err != nil {
			t.Fatal(err)
		}
	}
	now, peak, err := process.Resident(c.PID())
	if err != nil || now < 4<<10 || peak < now/2 || peak > 1<<30 {
		t.Errorf("resident %d, peak %d, %v, want the memory of a shell", now, peak, err)
	}
	if files, err := process.Files(); err != nil || files < 64 {
		t.Errorf("%d files, %v, want at least 64", files, err)
	}
	if err := process.ForgetPeak(c.PID()); err != nil {
		t.Error(err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range []int{0, -1, c.PID(), math.MaxInt} {
		if _, err := process.CPU(pid); err == nil {
			t.Errorf("process %d has a CPU clock", pid)
		}
	}
	if _, _, err := process.Resident(c.PID()); err == nil {
		t.Error("a process that has ended has memory")
	}
}
