package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const helpText = `Usage: tool <command> [flags]

Fetches things. A second sentence.

    tool run --all

Commands:
  run           Run it. A long
                explanation.
  stop

Flags:
  -h, --help                   Show help.
      --a-long-name="127.0.0.1:8080"
                               Address of
                               the port ($TOOL_ADDR).

Exit codes:
  0    success

Examples:
  tool run 'it'
  .hidden
`

func TestParse(t *testing.T) {
	t.Parallel()
	p := parse(helpText)
	if p.usage != "tool <command> [flags]" || p.first() != "fetches things" || !slices.Equal(p.items("Commands"), []item{{"run", "Run it. A long explanation."}, {"stop", ""}}) {
		t.Errorf("usage %q, first %q, commands %q", p.usage, p.first(), p.items("Commands"))
	}
	for _, row := range []struct {
		name string
		want item
	}{
		{"a command over two lines", item{"run", "Run it. A long explanation."}},
		{"a command without an explanation", item{"stop", ""}},
		{"a flag with a letter", item{"-h, --help", "Show help."}},
		{"a flag that fills its line", item{`--a-long-name="127.0.0.1:8080"`, "Address of the port ($TOOL_ADDR)."}},
		{"an exit code", item{"0", "success"}},
	} {
		if !p.explained()[row.want] {
			t.Errorf("%s: no %+v", row.name, row.want)
		}
	}
	if n := len(p.explained()); n != 7 { // two lines are examples
		t.Errorf("%d items, want 7: %v", n, p.explained())
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	parse(helpText).write(&out, ".SS", "run: ", map[item]bool{{"-h, --help", "Show help."}: true, {"0", "success"}: true})
	page := out.String()
	for _, want := range []string{".SS run: Synopsis\n", ".nf\n    tool run \\-\\-all\n", ".TP\n.B \\-\\-a\\-long\\-name", ".SS run: Examples\n.nf\n  tool run 'it'\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, never := range []string{"Show help", "Exit codes"} {
		if strings.Contains(page, never) {
			t.Errorf("the page repeats %q", never)
		}
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"a request of roff", ".so /etc/passwd", `\&.so /etc/passwd`},
		{"a quote at the start", "'x'", `\&'x'`},
		{"a backslash", `a\fB`, `a\efB`},
		{"a flag", "--all", `\-\-all`},
		{"a later line", "a\n.b", "a\n\\&.b"},
		{"a dot inside", "a.b", "a.b"},
	} {
		if got := escape(row.text); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestFailingProgram(t *testing.T) {
	t.Parallel()
	silent := filepath.Join(t.TempDir(), "silent")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	for _, program := range []string{"/bin/false", silent} {
		if _, err := man(program, "2026-11-23"); err == nil {
			t.Errorf("%q: no error", program)
		}
	}
}
