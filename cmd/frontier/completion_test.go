package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/internal/cli"
	"fetchd/internal/complete/completetest"
)

// The scripts contain the commands, flags and values of this program.
func TestCompletion(t *testing.T) {
	t.Parallel()
	script := func(shell string) (code int, out, told string) {
		got := runWith(t.Context(), strings.NewReader(""), nil, "completion", shell)
		return got.code, got.out, got.err
	}
	for shell, begin := range map[string]string{"bash": "# bash completion for frontier\n", "zsh": "#compdef frontier\n", "fish": "# fish completion for frontier\n"} {
		if code, out, told := script(shell); code != cli.ExitOK || !strings.HasPrefix(out, begin) || told != "" {
			t.Errorf("completion %s: exit status %d, %q, script %.40q", shell, code, told, out)
		}
	}
	if code, out, _ := script("tcsh"); code != cli.ExitUsage || out != "" {
		t.Errorf("completion tcsh: exit status %d, %q; want %d and nothing", code, out, cli.ExitUsage)
	}
	file := filepath.Join(t.TempDir(), "script")
	_, out, _ := script("bash")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		line string
		want []string
	}{
		{"frontier comp", []string{"completion"}},
		{"frontier export --format c", []string{"csv"}},
		{"frontier export --what=f", []string{"fetches"}},
		{"frontier add -i scr", []string{"script"}},
		{"frontier why --form", nil},
		{"frontier completion f", []string{"fish"}},
	} {
		if diff := cmp.Diff(row.want, completetest.Bash(t, file, row.line)); diff != "" {
			t.Errorf("%q is completed with (-want +got):\n%s", row.line, diff)
		}
	}
}
