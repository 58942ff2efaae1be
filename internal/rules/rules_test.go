package rules_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"fetchd/internal/rules"
	"fetchd/test/must"
)

// TestKinds checks that every rule outside the table of section 3 says which kind it is.
func TestKinds(t *testing.T) {
	t.Parallel()
	spec, err := os.ReadFile("../../docs/spec.md")
	must.Succeed(t, err)
	kinds := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^- ([A-Z][0-9]+)\. (?:\*(Decision|Wire|Service)\.\* )?`).FindAllStringSubmatch(string(spec), -1) {
		kinds[m[2]]++
		if m[2] == "" {
			t.Errorf("rule %s does not say whether it is a decision, or about the wire or the service", m[1])
		}
	}
	if kinds["Decision"] < 10 || kinds["Wire"] < 5 || kinds["Service"] < 10 {
		t.Errorf("found %v, want more of each", kinds)
	}
}

// TestRules checks the sentences against docs/spec.md and the code that reports rules.
func TestRules(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		return string(data)
	}
	spec := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^(?:\| |- )([A-Z][0-9]+)(?: \||\.)`).FindAllStringSubmatch(read("../../docs/spec.md"), -1) {
		spec[m[1]] = true
	}
	seen := make(map[string]bool)
	for _, r := range rules.All {
		if !spec[r.ID] || seen[r.ID] || !strings.HasSuffix(r.Sentence, ".") || rules.Sentence(r.ID) != r.Sentence {
			t.Errorf("rule %s: %q: in the specification: %t, a second time: %t", r.ID, r.Sentence, spec[r.ID], seen[r.ID])
		}
		seen[r.ID] = true
	}
	for _, d := range rules.Departures() {
		seen[d.ID] = true
	}
	for id := range spec {
		if !seen[id] {
			t.Errorf("rule %s of the specification has neither a sentence nor a departure", id)
		}
	}
	// Rules that the code can report are string constants and literals.
	reported := 0
	for _, dir := range []string{"../../classify", "../../fetch", "../../server", "../../server/internal/conversion", "../../server/internal/web"} {
		entries, err := os.ReadDir(dir)
		must.Succeed(t, err)
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			for _, m := range regexp.MustCompile(`"([A-Z][0-9]{1,2})"`).FindAllStringSubmatch(read(dir+"/"+e.Name()), -1) {
				reported++
				if !seen[m[1]] {
					t.Errorf("%s/%s reports rule %s, which has no sentence", dir, e.Name(), m[1])
				}
			}
		}
	}
	if reported < 40 {
		t.Errorf("found %d rules in the code, want at least 40", reported)
	}
}

// TestExceptions checks that the exceptions of a rule are found: other rules, and departures.
func TestExceptions(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"W2": "W3 W4 X3 X12 X16", "R2": "H9 X5", "H4": "A8 X29", "H1": "I2 I4 X14", "N10": "", "X3": "",
	} {
		var got []string
		for _, r := range rules.Exceptions(id) {
			got = append(got, r.ID)
		}
		for _, d := range rules.Departures() {
			if d.Amends(id) {
				got = append(got, d.ID)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}
