package classify

import (
	"slices"
	"testing"
)

// TestEveryClassIsListed checks that each class is in exactly one of the lists of decide.go, which give the precedence.
func TestEveryClassIsListed(t *testing.T) {
	t.Parallel()
	all := slices.Concat(ownFaults, redirectFaults, hopFaults, statusFaults, contentFaults, timeFaults, bodyFaults)
	for _, c := range Classes() {
		n := 0
		for _, in := range all {
			if in == c {
				n++
			}
		}
		if n != 1 {
			t.Errorf("class %s is %d times in the lists of decide.go, want once", c, n)
		}
	}
	if got := listed; got != FaultsOf(all...) {
		t.Errorf("listed is %b, want %b", got, FaultsOf(all...))
	}
}

// TestUnlistedIsInternal checks that a fault in none of the lists does not decide as a success.
func TestUnlistedIsInternal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 200, 204} {
		if d := Decide(new(Policy), &Observation{Attempt: 1, Status: status, Faults: 1 << 63}); d.Class != Internal {
			t.Errorf("status %d: class %s, want %s", status, d.Class, Internal)
		}
	}
}
