// Package clitest has what the tests of all programs share.
package clitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"fetchd/internal/cli"
)

// leakless runs the tests, and fails if they leave goroutines behind.
type leakless struct{ *testing.M }

// Run implements testscript.TestingM.
func (m leakless) Run() int {
	code := m.M.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err) //nolint:forbidigo // this runs as TestMain of a program
		return 1
	}
	return 0
}

// Main runs the tests of a program, looks for leaked goroutines, and makes the program a
// command that tests can start.
func Main(m *testing.M, name string, main func()) {
	testscript.Main(leakless{m}, map[string]func(){name: main})
}

// Completion checks "completion SHELL" of a program. run runs the program with arguments. lines
// are command lines with the words that bash then offers. The folder of the completed line has
// one file, "script".
func Completion(t *testing.T, name string, run func(args ...string) (code int, stdout, stderr string), lines map[string][]string) {
	t.Helper()
	for shell, start := range map[string]string{"bash": "# bash completion for " + name + "\n", "zsh": "#compdef " + name + "\n", "fish": "# fish completion for " + name + "\n"} {
		if code, out, told := run("completion", shell); code != cli.ExitOK || !strings.HasPrefix(out, start) || told != "" {
			t.Errorf("completion %s: exit status %d, %q, script %.40q", shell, code, told, out)
		}
	}
	if code, out, _ := run("completion", "tcsh"); code != cli.ExitUsage || out != "" {
		t.Errorf("completion tcsh: exit status %d, %q; want %d and nothing", code, out, cli.ExitUsage)
	}
	file := filepath.Join(t.TempDir(), "script")
	_, script, _ := run("completion", "bash")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range lines {
		if diff := cmp.Diff(want, Bash(t, file, line)); diff != "" {
			t.Errorf("completion of %q (-want +got):\n%s", line, diff)
		}
	}
}
