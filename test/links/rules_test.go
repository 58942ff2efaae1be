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
	eachLine(t, func(at string, line []byte) {
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

// eachLine calls f for each line of code, comments and documents, with its place.
func eachLine(t *testing.T, f func(at string, line []byte)) {
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
		if !slices.Contains([]string{".go", ".md", ".proto", ".js"}, filepath.Ext(path)) || strings.HasSuffix(path, "links/rules_test.go") {
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

// TestCitedDecisionsExist checks that docs/decisions has a page for each decision that is cited by its number.
func TestCitedDecisionsExist(t *testing.T) {
	cited := 0
	eachLine(t, func(at string, line []byte) {
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
}
