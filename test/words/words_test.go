// Package words checks the English of the repository: phrases that are never right must
// not come back. CONTRIBUTING.md has the rules.
package words

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// phrases maps each phrase to what to write instead.
var phrases = map[string]string{
	"tells whether":               "reports whether",
	"tells that":                  "reports that",
	"as mostly":                   "usually, or: in the common case",
	"rings no more":               "does not fire",
	"has his way":                 "wins, or: takes precedence",
	"is held against":             "is compared with, or: is checked against",
	"are held against":            "are compared with, or: are checked against",
	"goes by the":                 "uses the",
	"keeps nothing of":            "stores nothing about",
	"more than a client takes":    "exceeds the client's limit",
	"nobody asks":                 "no caller asks",
	"nobody asked":                "the caller did not ask",
	"is let go":                   "is released, or: is dropped",
	"what is there is left alone": "existing files are not changed",
}

// finding is a phrase in a text, and its line.
type finding struct {
	line   int
	phrase string
}

// patterns match the phrases, also where a line break or a comment marker divides them.
var patterns = func() map[string]*regexp.Regexp {
	all := make(map[string]*regexp.Regexp, len(phrases))
	for phrase := range phrases {
		all[phrase] = regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(phrase, " ", `(?:\s+(?://|#|--|\*)?\s*)`) + `\b`)
	}
	return all
}()

func find(text []byte) (found []finding) {
	for phrase, pattern := range patterns {
		for _, at := range pattern.FindAllIndex(text, -1) {
			found = append(found, finding{1 + bytes.Count(text[:at[0]], []byte("\n")), phrase})
		}
	}
	return found
}

func TestPhrases(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	list, err := exec.Command("git", "-C", root, "ls-files", "-z", "--", ".", ":!gen", ":!**/testdata/**", ":!test/words").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("git lists %d files, want at least 100", len(names))
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue // not text
		}
		for _, f := range find(text) {
			t.Errorf("%s:%d: %q: write %q", name, f.line, f.phrase, phrases[f.phrase])
		}
	}
}

// TestFind checks that every phrase is found wherever it is put back.
func TestFind(t *testing.T) {
	t.Parallel()
	for phrase := range phrases {
		first, rest, _ := strings.Cut(phrase, " ")
		for _, form := range []string{"%s %s", "%s\n// %s", "%s\n\t\t// %s", "%s\n# %s", "%s\n%s"} {
			text := "// A line before.\n// X " + fmt.Sprintf(form, first, rest) + " and more.\n"
			if got := find([]byte(text)); len(got) != 1 || got[0] != (finding{2, phrase}) {
				t.Errorf("find(%q) = %v, want %q in line 2", text, got, phrase)
			}
		}
	}
	if got := find([]byte("It reports whether the fetch is in flight, and retells that story.")); got != nil {
		t.Errorf("found %v in a text without a phrase", got)
	}
}
