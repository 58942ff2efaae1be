package main

import "fmt"

const (
	slack = 50 // one part in so many may come on top: 2 %
	spare = 20 // so many less are worth a new baseline: 5 %
)

// allowed is how much a benchmark may allocate whose baseline is n. Below 50 that is
// n itself: what allocates so little is the same each time, and what allocates
// nothing is to stay so.
func allowed(n int) int { return n + n/slack }

// compare returns what is wrong with after, and what else is worth knowing, a line
// each.
func compare(before, after *results) (faults, hints []string) {
	for _, name := range after.names {
		if before.samples[name] == nil {
			faults = append(faults, fmt.Sprintf("NEW      %s: it is not in the baseline", name))
		}
	}
	for _, name := range before.names {
		if after.samples[name] == nil {
			faults = append(faults, fmt.Sprintf("MISSING  %s: it is in the baseline and was not run", name))
			continue
		}
		was, is := before.median(name), after.median(name)
		switch {
		case is > allowed(was):
			faults = append(faults, fmt.Sprintf("MORE     %s: %d allocations per operation, %d allowed, %d in the baseline", name, is, allowed(was), was))
		case was-is > was/spare:
			hints = append(hints, fmt.Sprintf("LESS     %s: %d allocations per operation, %d in the baseline: renew it with .ci/allocs --write", name, is, was))
		}
	}
	return faults, hints
}
