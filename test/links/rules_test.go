package links

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	ruleDefined = regexp.MustCompile(`(?m)^(?:\| |- \*{0,2})([A-Z]\d+)(?: \||\.)`)
	ruleCited   = regexp.MustCompile(`(?:^|[^\w"/\\.-])([NHRCPWIDBAXF]\d{1,2})(?:[^\w%]|$)`)
)

// notRules look like rule numbers: percentiles, and hexadecimal digits.
var notRules = []string{"P50", "P90", "P99", "A0", "A9"}

// TestCitedRulesExist checks that docs/spec.md or docs/frontier.md defines every rule number in
// code, comments and documents.
func TestCitedRulesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	defined := make(map[string]bool)
	for _, page := range []string{"spec.md", "frontier.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ruleDefined.FindAllSubmatch(text, -1) {
			defined[string(m[1])] = true
		}
	}
	cited := 0
	eachLine(t, documented, func(at string, line []byte) {
		for _, m := range ruleCited.FindAllSubmatch(line, -1) {
			rule := string(m[1])
			cited++
			if !defined[rule] && !slices.Contains(notRules, rule) {
				t.Errorf("%s: no rule %s is defined in docs/spec.md or docs/frontier.md", at, rule)
			}
		}
	})
	if len(defined) < 100 || cited < 500 {
		t.Errorf("found %d rules and %d citations, want at least 100 and 500", len(defined), cited)
	}
}

// documented are the extensions of code, comments and documents.
var documented = []string{".go", ".md", ".proto", ".js"}

// eachLine calls f for each line of the files with these extensions, with its place.
func eachLine(t *testing.T, extensions []string, f func(at string, line []byte)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(entry.Name()) || path == filepath.Join(root, "gen") {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, filepath.Ext(path)) || strings.HasSuffix(path, "links/rules_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for n, line := range bytes.Split(text, []byte("\n")) {
			f(fmt.Sprintf("%s:%d", path, n+1), line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var decisionCited = regexp.MustCompile(`(?i)\bdecisions? (\d+)`)

// TestDecisions checks that docs/decisions has one page for each decision that code, scripts or documents cite by its
// number, and that no page has more than 250 words.
func TestDecisions(t *testing.T) {
	cited := 0
	scripts := []string{"", ".mjs", ".py", ".sh", ".sql", ".tsv", ".yaml", ".yml"}
	eachLine(t, append(scripts, documented...), func(at string, line []byte) {
		if !bytes.Contains(line, []byte("ecision")) {
			return // the expression is slow
		}
		for _, m := range decisionCited.FindAllSubmatch(line, -1) {
			cited++
			if pages, err := filepath.Glob(fmt.Sprintf("../../docs/decisions/%04s-*.md", m[1])); err != nil || len(pages) != 1 {
				t.Errorf("%s: there is no decision %s", at, m[1])
			}
		}
	})
	if cited < 20 {
		t.Errorf("found %d citations of decisions, want 20 or more", cited)
	}
	pages, err := filepath.Glob("../../docs/decisions/0*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d decisions, want 10 or more: %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(bytes.Fields(text)); n > 250 {
			t.Errorf("%s has %d words, want at most 250", page, n)
		}
	}
}
