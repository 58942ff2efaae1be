//go:build unix

package cli_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"fetchd/internal/cli"
	"fetchd/test/must"
)

// asProgram in the environment has the test binary be a program that drains forever.
const asProgram = "RUN_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := cli.Interruptible()
		defer stop()
		_, _ = fmt.Fprintln(os.Stdout, "serving")
		<-ctx.Done()
		_, _ = fmt.Fprintln(os.Stdout, "draining")
		select {}
	}
	m.Run()
}

// TestInterruptible checks that the first signal cancels the context and the second one ends the
// process, even if the program was started with the signal ignored, as shells start the background
// jobs of a script.
func TestInterruptible(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, start   string
		first, second syscall.Signal
		end           syscall.WaitStatus
	}{
		{"SIGINT", `exec "$0"`, syscall.SIGINT, syscall.SIGINT, syscall.WaitStatus(syscall.SIGINT)},
		{"SIGTERM after SIGINT", `exec "$0"`, syscall.SIGINT, syscall.SIGTERM, syscall.WaitStatus(syscall.SIGTERM)},
		{"SIGINT, ignored at the start", `trap "" INT; exec "$0"`, syscall.SIGINT, syscall.SIGINT, cli.ExitInterrupted << 8},
		{"SIGINT after SIGTERM, ignored at the start", `trap "" INT; exec "$0"`, syscall.SIGTERM, syscall.SIGINT, cli.ExitInterrupted << 8},
		{"SIGTERM, ignored at the start", `trap "" TERM; exec "$0"`, syscall.SIGTERM, syscall.SIGTERM, syscall.WaitStatus(syscall.SIGTERM)}, // Go does not inherit that
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", row.start, os.Args[0])
			cmd.Env = append(os.Environ(), asProgram+"=1")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			must.Succeed(t, err)
			lines := bufio.NewScanner(out)
			for _, step := range []struct {
				line   string
				signal syscall.Signal
			}{{"serving", row.first}, {"draining", row.second}} {
				if !lines.Scan() || lines.Text() != step.line {
					t.Fatalf("line %q, %v, want %q", lines.Text(), lines.Err(), step.line)
				}
				must.Succeed(t, cmd.Process.Signal(step.signal))
			}
			_ = cmd.Wait() // the state has the result
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status != row.end {
				t.Errorf("%v, want wait status %#x", cmd.ProcessState, uint32(row.end))
			}
		})
	}
}
