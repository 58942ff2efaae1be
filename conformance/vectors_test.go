package conformance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"fetchd/conformance"
)

// classRules and decisionRules are the rules of the specification that a response of Explain can
// name (spec §3, I7). R4 and the notes have no separate number there.
var (
	classRules = []string{
		"N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8", "N9", "N10", "N11",
		"H1", "H2", "H3", "H4", "H5", "H6", "H8", "H10", "H11", "R1", "R2", "R3",
		"C1", "C2", "C3", "C4", "C5", "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8",
	}
	decisionRules = append([]string{
		"H0", "H7", "H9", "H11", "W1", "W2", "W3", "W4", "A2", "B3", "I2", "I4", "P3", "P4", "P5", "P7", "P8",
	}, neverRetried...)
	// neverRetried are the rules of classes that end a fetch as NOT_RETRIED. H1 and H2 do if
	// the caller has excluded the status.
	neverRetried = []string{
		"H1", "H2", "N5", "N6", "N10", "H3", "H4", "H5", "H6", "H8", "R1", "R2", "R3", "C1", "C2", "C3", "C4", "C5", "P1", "P2", "P6",
	}
)

func vectors(t *testing.T) []conformance.Vector {
	t.Helper()
	all, err := conformance.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func rulesOf(v *conformance.Verdict) (class, decision string) {
	if v.Failure != nil {
		class = v.Failure.Rule
	}
	if v.Decision != nil {
		decision = v.Decision.Rule
	}
	return class, decision
}

func TestVectorsAreWhole(t *testing.T) {
	t.Parallel()
	all := vectors(t)
	if len(all) < 250 {
		t.Errorf("%d vectors, want at least 250", len(all))
	}
	known := rulesOfSpec(t)
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	files := make(map[string]string)
	for _, v := range all {
		if other, taken := files[v.Name]; taken {
			t.Errorf("%s: %q is in %s, too", v.File, v.Name, other)
		}
		files[v.Name] = v.File
		if !kebab.MatchString(v.Name) {
			t.Errorf("%s: %q is not in kebab-case", v.File, v.Name)
		}
		for field, value := range map[string]string{
			"why": v.Why, "rule": v.Rule, "source": v.Source,
		} {
			if strings.Trim(value, " {}\n") == "" {
				t.Errorf("%s: %s: %s is missing", v.File, v.Name, field)
			}
		}
		if !strings.HasSuffix(v.Why, ".") {
			t.Errorf("%s: %s: why is not a sentence: %q", v.File, v.Name, v.Why)
		}
		if !known[v.Rule] {
			t.Errorf("%s: %s: the specification has no rule %q", v.File, v.Name, v.Rule)
		}
	}
}

// rulesOfSpec returns the numbers that start a row or a point of the specification.
func rulesOfSpec(t *testing.T) map[string]bool {
	t.Helper()
	number := regexp.MustCompile(`(?m)^(?:\| |- )([A-Z][0-9]+)(?: \||\.)`)
	known := make(map[string]bool)
	for _, match := range number.FindAllStringSubmatch(string(readFile(t, "../docs/spec.md")), -1) {
		known[match[1]] = true
	}
	for _, rule := range append(classRules, decisionRules...) {
		if !known[rule] {
			t.Errorf("the specification has no rule %s", rule)
		}
	}
	return known
}

// TestFiles checks that each file describes its contents and has vectors.
func TestFiles(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("vectors/*.json")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	for _, v := range vectors(t) {
		used[v.File] = true
	}
	for _, path := range paths {
		var file struct{ About string }
		if err := json.Unmarshal(readFile(t, path), &file); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if file.About == "" || !used[filepath.ToSlash(path)] {
			t.Errorf("%s: about %q, has vectors: %t", path, file.About, used[path])
		}
	}
}

// TestRulesAreShown checks that at least two vectors show each rule that a response can name, and
// that no vector shows another.
func TestRulesAreShown(t *testing.T) {
	t.Parallel()
	classes, decisions := make(map[string]int), make(map[string]int)
	for _, v := range vectors(t) {
		class, decision := rulesOf(&v.Verdict)
		classes[class]++
		decisions[decision]++
	}
	wantShown(t, "class", classes, classRules)
	wantShown(t, "decision", decisions, decisionRules)
}

func wantShown(t *testing.T, of string, seen map[string]int, rules []string) {
	t.Helper()
	delete(seen, "") // no failure, or a redirect that is followed
	for _, rule := range rules {
		if seen[rule] < 2 {
			t.Errorf("%d vectors show %s as the rule of a %s, want at least 2", seen[rule], rule, of)
		}
		delete(seen, rule)
	}
	for rule, n := range seen {
		t.Errorf("%d vectors show %s as the rule of a %s, which it is not", n, rule, of)
	}
}

// TestRulesHaveCounterexamples checks that for each class rule a file has a vector with that rule
// and one without.
func TestRulesHaveCounterexamples(t *testing.T) {
	t.Parallel()
	yields, not := make(map[[2]string]bool), make(map[[2]string]bool)
	all := vectors(t)
	for _, v := range all {
		class, _ := rulesOf(&v.Verdict)
		for _, rule := range classRules {
			at := [2]string{v.File, rule}
			yields[at] = yields[at] || class == rule
			not[at] = not[at] || class != rule
		}
	}
	for _, rule := range classRules {
		found := false
		for at := range yields {
			found = found || at[1] == rule && yields[at] && not[at]
		}
		if !found {
			t.Errorf("no file has a vector with %s and one without", rule)
		}
	}
}

// TestSchemas checks that every file is valid by its schema, and that the schemas refuse what is not.
func TestSchemas(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"vectors", "scenarios", "guard"} {
		schema, err := jsonschema.NewCompiler().Compile("schema/" + kind + ".json")
		if err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(kind + "/*.json")
		if err != nil || len(paths) == 0 {
			t.Fatal(err, paths)
		}
		for _, path := range paths {
			text := string(readFile(t, path))
			if err := valid(schema, text); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			for name, change := range map[string][2]string{
				"an unknown member": {`"source": `, `"origin": `}, "a rule that is none": {`"rule": "`, `"rule": "x`}, "a failure without a type": {`"type": "`, `"kind": "`},
				"an unknown class": {`"class": "`, `"class": "x`}, "an unknown category": {`"category": "`, `"category": "x`}, "an unknown fault": {`"faults": ["`, `"faults": ["x`},
				"a target that is a name": {`"target": "`, `"target": "x`}, "a row that says neither": {`"may_connect": true,`, ``}, "another row that says neither": {`"may_connect": false,`, ``},
				"no end": {"\n  ]\n}", ""},
			} {
				if changed := strings.Replace(text, change[0], change[1], 1); changed != text && valid(schema, changed) == nil {
					t.Errorf("%s: the schema permits %s", path, name)
				}
			}
		}
	}
}

func valid(schema *jsonschema.Schema, text string) error {
	decoded, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(decoded)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
