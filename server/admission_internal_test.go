package server

import (
	"context"
	"errors"
	"testing"
)

// TestAdmissionQueue: turns come in the order of the tasks, of each caller as far as
// it has room, and a place that is given up in the queue is nobody's.
func TestAdmissionQueue(t *testing.T) {
	t.Parallel()
	a := newAdmission(&Limits{MaxFetches: 3, MaxFetchesPerCaller: 2}, "", "", func(string) {})
	one, other := from(t, "192.0.2.1:1"), from(t, "192.0.2.2:1")
	places := make([]*place, 6)
	for i, ctx := range []context.Context{one, one, one, one, other, other} {
		places[i] = a.queue(ctx)
	}
	admitted := func(want ...int) {
		t.Helper()
		gone, stop := context.WithCancel(t.Context())
		stop()
		for i, p := range places {
			in := false
			for _, w := range want {
				in = in || w == i
			}
			if err := p.wait(gone); (err == nil) != in || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("place %d: %v, want it admitted: %t", i, err, in)
			}
		}
	}
	admitted(0, 1, 4) // the third of the one has no room, the first of the other has
	places[2].leave()
	places[0].leave()
	admitted(0, 1, 3, 4)
	a.set(&Limits{MaxFetches: 4, MaxFetchesPerCaller: 2})
	admitted(0, 1, 3, 4, 5)
	for _, i := range []int{1, 3, 4, 5} {
		places[i].leave()
	}
	if inFlight, _ := a.load(); inFlight != 0 || len(a.callers) != 0 || len(a.waiting) != 0 {
		t.Errorf("%d in flight, %d callers, %d queues once all have left", inFlight, len(a.callers), len(a.waiting))
	}
}

// BenchmarkAdmission is a fetch of one caller while another's tasks wait.
func BenchmarkAdmission(b *testing.B) {
	a := newAdmission(&Limits{MaxFetches: 1000, MaxFetchesPerCaller: 1}, "", "", func(string) {})
	for range 100_000 {
		a.queue(context.WithValue(b.Context(), callerName{}, "busy"))
	}
	quiet := context.WithValue(b.Context(), callerName{}, "quiet")
	for b.Loop() {
		caller, err := a.enter(quiet)
		if err != nil {
			b.Fatal(err)
		}
		a.leave(caller)
	}
}
