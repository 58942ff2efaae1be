package main

import "fmt"

const (
	slack = 50 // a benchmark may allocate 1/50 more: 2 %
	spare = 20 // 1/20 less is worth a new baseline: 5 %
)

// allowed returns how often a benchmark with the baseline n may allocate. Below 50 it is n
// itself: such benchmarks allocate the same each time, and zero must stay zero.
func allowed(n int) int { return n + n/slack }

// compare returns the faults of after, and hints, one per line.
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
