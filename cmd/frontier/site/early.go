package site

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Violation is a visit that started too early.
type Violation struct {
	Host string
	// Before is the visit of the host that ended last, or has not ended, of those that started
	// before.
	Before Visit
	// Visit is the one that started too early.
	Visit Visit
	// By is how much later it should have started. If Before has not ended, By is the delay and at
	// least 1 ns, and may be too small.
	By time.Duration
}

// String names both visits and their times.
func (v Violation) String() string {
	before := "has not ended"
	if v.Before.Ended() {
		before = fmt.Sprintf("ended at %v", v.Before.End)
	}
	return fmt.Sprintf("%s: %s %s started at %v, %v too early: %s %s, started at %v, %s",
		v.Host, v.Visit.Kind, v.Visit.Path, v.Visit.Start, v.By, v.Before.Kind, v.Before.Path, v.Before.Start, before)
}

// Early returns the visits that started less than delay after the end of any earlier visit of the
// same host, of whatever kind, in the order of their starts. A visit that overlaps an earlier one
// is therefore always too early. Exactly the delay is not too early.
//
// Early checks only the visits for which which returns true; nil means all. Each violation names
// the earlier visit that ended last. If visits of one host start at the same time, those that are
// not checked count as earlier. The visits may be in any order, and Early does not change them.
func Early(visits []Visit, delay time.Duration, which func(Visit) bool) []Violation {
	if which == nil {
		which = func(Visit) bool { return true }
	}
	ordered := slices.Clone(visits)
	slices.SortStableFunc(ordered, func(a, b Visit) int {
		order := cmp.Compare(a.Start, b.Start)
		if checkA, checkB := which(a), which(b); order == 0 && checkA != checkB {
			order = 1
			if checkB {
				order = -1
			}
		}
		return order
	})
	var found []Violation
	last := make(map[string]Visit)
	for _, v := range ordered {
		before, ok := last[v.Host]
		if ok && which(v) {
			if by := wait(before, v, delay); by > 0 {
				found = append(found, Violation{Host: v.Host, Before: before, Visit: v, By: by})
			}
		}
		if !ok || endsAfter(v, before) {
			last[v.Host] = v
		}
	}
	return found
}

// wait returns how much too early v started after before. The result is not positive if it did not.
func wait(before, v Visit, delay time.Duration) time.Duration {
	if !before.Ended() {
		return max(delay, 1)
	}
	return before.End + delay - v.Start
}

// endsAfter reports whether a ends after b, or has not ended.
func endsAfter(a, b Visit) bool {
	if !a.Ended() || !b.Ended() {
		return b.Ended()
	}
	return a.End > b.End
}
