package conformance_test

import (
	"slices"
	"testing"

	"fetchd/conformance"
)

// unseen are class rules that no scenario shows: an origin cannot bring them about.
var unseen = []string{
	"N1", // takes a name server
	"N3", // takes an address that does not answer
	"P4", // the caller's own doing
	"P5", // the end of the server
	"P6", // a fault of the server
	"P7", // the memory of the server
}

// TestScenariosShowTheRules: rules of scenarios are rules of the specification, and
// each rule that an origin can bring about is shown.
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
