package get

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// TestCurlTable checks that the script runs every row of the table in the help whose flags get has, with each of its flags.
func TestCurlTable(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../testdata/script/curl.txtar")
	clitest.Must(t, err)
	for _, row := range curlTable {
		if !row.has {
			continue
		}
		_, after, ok := strings.Cut(string(script), "\n# "+row.flags+"\n")
		if !ok {
			t.Errorf("the script does not run the row %q", row.flags)
			continue
		}
		paragraph, _, _ := strings.Cut(after, "\n# ")
		for _, flag := range strings.FieldsFunc(row.flags, func(r rune) bool { return r == ',' || r == ' ' }) {
			// Letters may share a dash, and have a value.
			pattern := "[ ']" + regexp.QuoteMeta(flag) + "[ '=\n]"
			if len(flag) == 2 {
				pattern = "[ ']-[a-zA-Z]*" + flag[1:] + "[^ ]*[ '\n]"
			}
			if !regexp.MustCompile(`(?m)^(same|exec|exits|\[linux\]).*` + pattern).MatchString(paragraph) {
				t.Errorf("the script does not run %s of the row %q", flag, row.flags)
			}
		}
	}
}

// TestAnswers checks that each flag of curl or wget that get does not have says what to use instead, and that get has
// none of them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	n := 0
	for flag, answer := range answers() {
		if flag == "--" {
			continue // see the script
		}
		n++
		got := fetchctl.Run(t, "get", flag, "http://127.0.0.1:1/")
		if want := "fetchctl: " + flag + ": there is no such flag: " + answer + "\n"; flag != "-O-" && (got.Code != cli.ExitUsage || got.Err != want) {
			t.Errorf("%s: exit status %d, %q, want %q", flag, got.Code, got.Err, want)
		}
	}
	if n < 80 {
		t.Errorf("%d flags are answered, want 80 or more", n)
	}
}

// TestCurlHelp checks that the table fits a terminal.
func TestCurlHelp(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(reflexHelp()) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// TestWholeErrors checks that errors of the service inside name resolvers and proxies.
func TestWholeErrors(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	refused := o.Addr("refused")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a proxy", []string{"-x", "http://user:hush@" + refused, "http://a.test/"}, "a.test: proxyconnect tcp: dial tcp " + refused + ": connect: connection refused"},
		{"an origin", []string{o.URL("refused", "/")}, refused + ": dial tcp: connect: connection refused"},
		{"a status", []string{o.URL("http", "/s/status/503")}, o.Addr("http") + ": status 503 Service Unavailable\n"},
	} {
		for _, output := range []string{"--no-follow", "--json"} {
			got := fetchctl.Run(t, append([]string{"get", "-r", "1", output}, tt.args...)...)
			if n := strings.Count(got.Err, strings.TrimSuffix(tt.want, "\n")); n != 2 && output == "--no-follow" || n < 2 || strings.Contains(got.Err, "hush") {
				t.Errorf("%s, %s: %d times %q in\n%s", tt.name, output, n, tt.want, got.Err)
			}
		}
	}
}
