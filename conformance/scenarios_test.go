package conformance_test

import (
	"slices"
	"testing"

	"fetchd/conformance"
)

// unseen are class rules that no scenario shows, because an origin cannot cause them.
var unseen = []string{
	"N1",                    // needs a name server
	"N3",                    // needs an address that does not answer
	"P4",                    // caused by the caller
	"P5",                    // a shutdown of the server
	"P6",                    // a fault of the server
	"P7",                    // the memory of the server
	"P8", "B8", "B9", "B10", // the stores and the converter of the server
}

// TestScenariosShowTheRules checks that the rules of scenarios are in the specification, and that
// each rule that an origin can cause has a scenario.
func TestScenariosShowTheRules(t *testing.T) {
	t.Parallel()
	all, err := conformance.Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	known, shown := rulesOfSpec(t), make(map[string]bool)
	for _, s := range all {
		for _, rule := range s.Rules {
			shown[rule] = true
			if !known[rule] {
				t.Errorf("%s: %s: the specification has no rule %q", s.File, s.Name, rule)
			}
		}
	}
	for _, rule := range classRules {
		if shown[rule] == slices.Contains(unseen, rule) {
			t.Errorf("rule %s: shown by a scenario %t, listed as unseen %t", rule, shown[rule], slices.Contains(unseen, rule))
		}
	}
}
