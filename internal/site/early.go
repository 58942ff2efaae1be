package site

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Violation is a visit that came too early.
type Violation struct {
	Host string
	// Before is the visit that ended last, or has not ended, among those of the
	// host that started before.
	Before Visit
	// Visit is the one that came too early.
	Visit Visit
	// By is how much later it had to start. Where Before has not ended it is
	// the delay, at least 1 ns: it may turn out to be more.
	By time.Duration
}

// String says who came too early, and after whom.
func (v Violation) String() string {
	before := "has not ended"
	if v.Before.Ended() {
		before = fmt.Sprintf("ended at %v", v.Before.End)
	}
	return fmt.Sprintf("%s: %s %s started at %v, %v too early: %s %s, started at %v, %s",
		v.Host, v.Visit.Kind, v.Visit.Path, v.Visit.Start, v.By, v.Before.Kind, v.Before.Path, v.Before.Start, before)
}

// Early returns the visits for which which is true and that started less than
// delay after the end of any visit of the same host that started before them,
// of whatever kind. A visit that overlaps an earlier one is thereby too early
// with any delay that is not negative. Each visit is told of once, with the
// one before it that ended last, in the order of their starts. Of visits of one
// host that start at once, those for which which is false count as before, and
// else the order of visits. A nil which is true for all. The visits may come in
// any order and stay as they are. Exactly the delay is not too early: no
// tolerance is built in.
func Early(visits []Visit, delay time.Duration, which func(Visit) bool) []Violation {
	if which == nil {
		which = func(Visit) bool { return true }
	}
	ordered := slices.Clone(visits)
	slices.SortStableFunc(ordered, func(a, b Visit) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(rank(which(a)), rank(which(b))))
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

func rank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wait is how much too early v started after before; not above zero if it did
// not.
func wait(before, v Visit, delay time.Duration) time.Duration {
	if !before.Ended() {
		return max(delay, 1)
	}
	return before.End + delay - v.Start
}

// endsAfter says whether a ends after b, or never.
func endsAfter(a, b Visit) bool {
	if !a.Ended() || !b.Ended() {
		return b.Ended()
	}
	return a.End > b.End
}
