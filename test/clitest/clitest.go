// Package clitest has what the tests of all programs share.
package clitest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/server"
	"fetchd/server/fetchdtest"
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

// Runner runs a program within the test, and returns its exit code.
type Runner func(ctx context.Context, args []string, env func(string) string, std cli.Streams) int

// Command returns a program that has one command. grammar returns a pointer to a struct with the command.
func Command(name string, grammar func() any) Runner {
	return func(ctx context.Context, args []string, env func(string) string, std cli.Streams) int {
		p := &cli.Program{Name: name, Streams: std, Env: env, Clean: cli.Escape}
		parsed, err := p.Parse(grammar(), args)
		if err != nil {
			return p.Exit(ctx, err)
		}
		return cli.Command[interface {
			Run(ctx context.Context, p *cli.Program) int
		}](parsed).Run(ctx, p)
	}
}

// Result is how a run ended, and what it wrote.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs the program without input and environment.
func (r Runner) Run(t testing.TB, args ...string) Result {
	return r.With(t.Context(), "", nil, args...)
}

// With runs the program with standard input and an environment.
func (r Runner) With(ctx context.Context, stdin string, env map[string]string, args ...string) Result {
	var out, err bytes.Buffer
	code := r(ctx, args, func(name string) string { return env[name] }, cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &err})
	return Result{code, out.String(), err.String()}
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Server returns the address of a fetchd on loopback that reaches every address, and ends with the test.
func Server(t testing.TB) string {
	t.Helper()
	return fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		c.Fetch.Egress = fetch.Egress{Unrestricted: true}
	}}).Addr
}
