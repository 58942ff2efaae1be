package main

import (
	"os"
	"path/filepath"
	"slices"
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
	if p.usage != "tool <command> [flags]" {
		t.Errorf("usage %q", p.usage)
	}
	for _, row := range []struct {
		name, title string
		want        []item
	}{
		{"a command over two lines, and one without an explanation", "Commands", []item{{"run", "Run it. A long explanation."}, {"stop", ""}}},
		{"a flag with a letter, and one that fills its line", "Flags", []item{{"-h, --help", "Show help."}, {`--a-long-name="127.0.0.1:8080"`, "Address of the port ($TOOL_ADDR)."}}},
		{"an exit code", "Exit codes", []item{{"0", "success"}}},
	} {
		if got := p.items(row.title); !slices.Equal(got, row.want) {
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
		if _, err := versionOf(program); err == nil {
			t.Errorf("%q: no error", program)
		}
	}
}
