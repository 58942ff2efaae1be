package reflex

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCurlTable checks that the script runs every row of the table in the help whose flags get has, with each of its flags.
func TestCurlTable(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../cmd/fetchctl/testdata/script/curl.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range curl {
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

// TestHelp checks that the tables fit a terminal.
func TestHelp(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(GetHelp() + DownloadHelp()) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// TestBothAnswer checks that each flag of wget is answered in both commands.
func TestBothAnswer(t *testing.T) {
	t.Parallel()
	for _, r := range wget {
		if r.get == "" || r.download == "" {
			t.Errorf("%s has no answer in one of the commands", r.flags)
		}
	}
}
