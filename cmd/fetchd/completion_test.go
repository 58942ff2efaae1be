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

// The scripts are those of this program: its commands, flags and their values.
func TestCompletion(t *testing.T) {
	t.Setenv("FETCHD_LOG_LEVEL", "no such level") // settings do not matter
	script := func(shell string) (code int, out, told string) {
		var stdout, stderr output
		code = run(t.Context(), program{args: []string{"completion", shell}, stdout: &stdout, stderr: &stderr})
		return code, stdout.String(), stderr.String()
	}
	for shell, begin := range map[string]string{"bash": "# bash completion for fetchd\n", "zsh": "#compdef fetchd\n", "fish": "# fish completion for fetchd\n"} {
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
		{"fetchd conf", []string{"config"}},
		{"fetchd --log-level w", []string{"warn"}},
		{"fetchd serve --log-format=j", []string{"json"}},
		{"fetchd --non-idempotent-retries f", []string{"forbid"}},
		{"fetchd --grpc-addr 127.0.0.1:8080 tok", []string{"token"}},
		{"fetchd --config scr", []string{"script"}},
		{"fetchd --no-such", nil},
		{"fetchd completion f", []string{"fish"}},
	} {
		if diff := cmp.Diff(row.want, completetest.Bash(t, file, row.line)); diff != "" {
			t.Errorf("%q is completed with (-want +got):\n%s", row.line, diff)
		}
	}
}
