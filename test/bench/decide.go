package main

import (
	"runtime"
	"time"

	"fetchd/classify"
)

// decide measures how long package classify takes to decide about a 503 that is retried.
func decide() *run {
	const n = 500_000
	policy := classify.Standard.Policy()
	o := classify.Observation{Attempt: 1, TimeLeft: classify.Unbounded, Status: 503}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	retried := 0
	for range n {
		if d := classify.Decide(&policy, &o); d.Verdict == classify.Retry {
			retried++
		}
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return &run{single: float64(took.Nanoseconds()) / float64(retried), allocs: float64((after.Mallocs - before.Mallocs) / n)}
}
