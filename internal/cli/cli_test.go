package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"fetchd/internal/cli"
)

// grammar is a small program.
type grammar struct {
	Version    kong.VersionFlag
	Keep       struct{}       `cmd:"" help:"Keep it."`
	Completion cli.Completion `cmd:"" ownflags:""`
	Get        getCmd         `cmd:"" help:"Get a thing."`
}

type getCmd struct {
	Server string `variable:"PROG_SERVER"`
	Name   string `arg:""`
	Wait   *time.Duration
}

const texts = `## prog
A program.

Examples:
  prog get y

## get
Exit codes:
  1    not found
  21

Examples:
  PROGRAM get x
`

// parse runs the command line and returns the exit code and both streams.
func parse(ctx context.Context, env map[string]string, args ...string) (g grammar, code int, out, told string) {
	var stdout, stderr bytes.Buffer
	p := cli.Program{Name: "prog", Texts: texts,
		Streams: cli.Streams{Out: &stdout, Err: &stderr}, Env: func(name string) string { return env[name] }, Clean: cli.Escape}
	_, err := p.Parse(&g, args)
	return g, p.Exit(ctx, err), stdout.String(), stderr.String()
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		args      string
		code      int
		out, told string // found in the streams; an empty one must be empty
	}{
		{"a command", "get x", cli.ExitOK, "", ""},
		{"help", "--help", cli.ExitOK, "\nExit codes:\n  0    success\n  1    the program failed, or a check did not hold\n  2    usage: ", ""},
		{"examples", "--help", cli.ExitOK, "\nExamples:\n  prog get y\n", ""},
		{"help of a command", "get --help", cli.ExitOK, "  1    not found\n  2    usage: the command line, a setting or the request is not usable\n  21   a file or standard output cannot be written\n", ""},
		{"examples of a command", "get --help", cli.ExitOK, "\nExamples:\n  prog get x\n", ""},
		{"help of completion", "completion --help", cli.ExitOK, "  source <(prog completion bash)\n", ""},
		{"flags of completion", "completion --help", cli.ExitOK, "\nFlags:\n  -h, --help    Show context-sensitive help.\n\nExit codes:", ""},
		{"a command without examples", "keep --help", cli.ExitOK, "      --version\n\nExit codes:", ""},
		{"version", "--version", cli.ExitOK, "prog devel", ""},
		{"completion", "completion bash", cli.ExitOK, "# bash completion for prog\n", ""},
		{"an unknown shell", "completion tcsh", cli.ExitUsage, "", `must be one of "bash","zsh","fish"`},
		{"an unknown flag", "get --servr=y x", cli.ExitUsage, "", `did you mean "--server"?` + "\n" + `  Run "prog get --help" for the flags.`},
		{"an unknown letter", "get -w x", cli.ExitUsage, "", "prog: unknown flag -w\n  Run "},
		{"a duration without a unit", "get --wait=5 x", cli.ExitUsage, "", `--wait: "5" has no unit: did you mean 5s?`},
		{"no duration", "get --wait=soon x", cli.ExitUsage, "", `--wait: "soon" is not a duration: give a number with a unit, such as 90s, 5m, 1h30m or 7d`},
		{"a duration", "get --wait=5s x", cli.ExitOK, "", ""},
		{"an unknown command", "got", cli.ExitUsage, "", `Run "prog --help" for the flags.`},
		{"an escape sequence", "g\x1bt", cli.ExitUsage, "", `g\x1bt`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, code, out, told := parse(t.Context(), nil, strings.Fields(tt.args)...)
			if strings.HasSuffix(out, "Examples:\n\n") {
				t.Error("there are no examples")
			}
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(told, tt.told) || tt.out == "" && out != "" || tt.told == "" && told != "" {
				t.Errorf("prog %s: exit code %d, %q, %q; want %d, %q, %q", tt.args, code, out, told, tt.code, tt.out, tt.told)
			}
		})
	}
}

// TestHelpThatCannotBeWritten: it is not the command line that is wrong.
func TestHelpThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	closed, w := io.Pipe()
	closed.Close()
	var stderr bytes.Buffer
	p := cli.Program{Name: "prog", Streams: cli.Streams{Out: w, Err: &stderr}}
	_, err := p.Parse(new(grammar), []string{"--help"})
	if code := p.Exit(t.Context(), err); code != cli.ExitOutput || stderr.String() != "prog: write: io: read/write on closed pipe\n" {
		t.Errorf("prog --help: exit code %d, %q; want %d", code, stderr.String(), cli.ExitOutput)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PROG_SERVER": "a"}
	if g, _, _, _ := parse(t.Context(), env, "get", "x"); g.Get.Server != "a" {
		t.Errorf("--server = %q, want the variable's value", g.Get.Server)
	}
	if g, _, _, _ := parse(t.Context(), env, "get", "--server", "b", "x"); g.Get.Server != "b" {
		t.Errorf("--server = %q, want the flag's value", g.Get.Server)
	}
}

func TestExit(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("oops")
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		code int
		told string
	}{
		{"success", t.Context(), nil, cli.ExitOK, ""},
		{"success after a signal", ended, nil, cli.ExitOK, ""},
		{"an error without a code", t.Context(), failed, cli.ExitFailed, "prog: oops\n"},
		{"usage", t.Context(), cli.UsageError("--n", "is 0"), cli.ExitUsage, "prog: --n: is 0\n"},
		{"usage after a signal", ended, cli.UsageError("--n", "is 0"), cli.ExitUsage, "prog: --n: is 0\n"},
		{"output", t.Context(), cli.OutputError(failed), cli.ExitOutput, "prog: write: oops\n"},
		{"output after a signal", ended, cli.OutputError(failed), cli.ExitInterrupted, "prog: interrupted\n"},
		{"printed already", ended, cli.PrintedError(cli.ExitNothing, "x"), cli.ExitNothing, ""},
		{"a hint", t.Context(), &cli.Error{Code: cli.ExitService, Err: failed, Hint: "Try 100% again."}, cli.ExitService, "prog: oops\n  Try 100% again.\n"},
		{"wrapped", t.Context(), errors.Join(cli.OutputError(failed), failed), cli.ExitOutput, "prog: write: oops\noops\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			p := cli.Program{Name: "prog", Streams: cli.Streams{Err: &stderr}}
			if code := p.Exit(tt.ctx, tt.err); code != tt.code || stderr.String() != tt.told {
				t.Errorf("Exit(%v) = %d, %q; want %d, %q", tt.err, code, stderr.String(), tt.code, tt.told)
			}
		})
	}
}

// TestCheckScheme checks which texts get a suggestion.
func TestCheckScheme(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"example.com", "https://example.com"},
		{"example.com:8080/a?b=c", "https://example.com:8080/a?b=c"},
		{"//example.com/a", "https://example.com/a"},
		{"192.0.2.1/a", "https://192.0.2.1/a"},
		{"[2001:db8::1]:80/a", "https://[2001:db8::1]:80/a"},
		{"localhost:8080/a", "http://localhost:8080/a"},
		{"127.0.0.1:8080", "http://127.0.0.1:8080"},
		{"[::1]:8080", "http://[::1]:8080"},
		{"example.com/\x1b", ""},
		{"http://example.com", ""},
		{"ftp://example.com", ""},
		{"mailto:a@example.com", ""},
		{"page", ""},
		{"/page.html", ""},
		{"", ""},
		{"a b.com", ""},
		{"\xff.com", ""},
	} {
		if got := cli.SuggestURL(tt.text); got != tt.want {
			t.Errorf("SuggestURL(%q) = %q, want %q", tt.text, got, tt.want)
		}
		if err := cli.CheckScheme("URL", tt.text); (err != nil) != (tt.want != "") || err != nil && !strings.HasSuffix(fmt.Sprint(err), "did you mean "+tt.want+"?") {
			t.Errorf("CheckScheme(%q) = %v", tt.text, err)
		}
	}
}
