package server

import (
	"slices"
	"testing"

	"fetchd/internal/budget"
)

// TestAdmissionQueue checks that tasks are admitted in order, as far as their callers have free
// slots, and that a place that leaves the queue takes no slot.
func TestAdmissionQueue(t *testing.T) {
	t.Parallel()
	a := newAdmission(budget.New(1<<40), &Limits{MaxFetches: 3, MaxFetchesPerCaller: 2}, "", "", func(string) {})
	const one, other = "192.0.2.1", "192.0.2.2"
	places := make([]*place, 6)
	for i, caller := range []string{one, one, one, one, other, other} {
		places[i] = a.queue(&ticket{admission: a, caller: caller})
	}
	leave := func(i int) {
		places[i].leave()
		places[i].ticket.release()
		places[i].ticket.release() // a second time
	}
	admitted := func(want ...int) {
		t.Helper()
		for i, p := range places {
			if got, want := p.isAdmitted(), slices.Contains(want, i); got != want {
				t.Errorf("place %d: admitted %t, want %t", i, got, want)
			}
		}
	}
	admitted(0, 1, 4) // the first caller has no slot for its third task, but the other caller has one
	leave(2)
	leave(0)
	admitted(0, 1, 3, 4)
	a.set(&Limits{MaxFetches: 4, MaxFetchesPerCaller: 2})
	admitted(0, 1, 3, 4, 5)
	for _, i := range []int{1, 3, 4, 5} {
		leave(i)
	}
	if inFlight, _ := a.load(); inFlight != 0 || len(a.callers) != 0 || len(a.waiting) != 0 {
		t.Errorf("%d in flight, %d callers, %d queues once all have left", inFlight, len(a.callers), len(a.waiting))
	}
}

// TestLastSlots checks that a few callers with many slots leave some to new callers, and
// that a single caller may have all.
func TestLastSlots(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		limit int
		held  map[string]int
		admit bool // a
	}{
		{"alone", 640, map[string]int{"a": 639}, true},
		{"two that have many, below seven eighths", 640, map[string]int{"a": 300, "b": 259}, true},
		{"two that have many, above", 640, map[string]int{"a": 300, "b": 260}, false},
		{"a new one", 640, map[string]int{"b": 400, "c": 239}, true},
		{"one that has few", 640, map[string]int{"a": 9, "b": 600}, true},
		{"one that has a few more", 640, map[string]int{"a": 10, "b": 600}, false},
		{"few slots in all", 60, map[string]int{"a": 30, "b": 29}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(budget.New(1<<40), (&Limits{MaxFetches: row.limit}).withDefaults(), "", "", func(string) {})
			for caller, n := range row.held {
				a.callers[caller] = n
				a.inFlight += n
			}
			_, err := a.enter(&callerContext{Context: t.Context(), name: "a"})
			if (err == nil) != row.admit {
				t.Errorf("enter = %v, want it admitted: %t", err, row.admit)
			}
		})
	}
}

// newTicket returns the ticket of an admitted fetch. Nothing may be charged at the end of
// the test.
func newTicket(t *testing.T) *ticket {
	t.Helper()
	a := newAdmission(budget.New(1<<30), new(Limits).withDefaults(), "", "", func(string) {})
	made, err := a.enter(t.Context(), charge{budget.Fetch, fetchBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.release)
	return made
}

// BenchmarkAdmission admits fetches of one caller while another caller's tasks wait.
func BenchmarkAdmission(b *testing.B) {
	a := newAdmission(budget.New(1<<40), &Limits{MaxFetches: 1000, MaxFetchesPerCaller: 1}, "", "", func(string) {})
	for range 100_000 {
		a.queue(&ticket{admission: a, caller: "busy"})
	}
	quiet := &callerContext{Context: b.Context(), name: "quiet"}
	for b.Loop() {
		t, err := a.enter(quiet)
		if err != nil {
			b.Fatal(err)
		}
		t.release()
	}
}
