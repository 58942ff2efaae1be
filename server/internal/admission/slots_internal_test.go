package admission

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/budget"
	"fetchd/test/must"
)

// TestAdmissionQueue checks that tasks are admitted in order, as far as their callers have free
// slots, and that a place that leaves the queue takes no slot.
func TestAdmissionQueue(t *testing.T) {
	t.Parallel()
	a := New(budget.New(1<<40), &Limits{Fetches: 3, PerCaller: 2}, "", "", "", func(string, string) {})
	const one, other = "192.0.2.1", "192.0.2.2"
	places := make([]*Place, 6)
	for i, caller := range []string{one, one, one, one, other, other} {
		places[i] = a.Queue(&Ticket{Slots: a, caller: caller})
	}
	leave := func(i int) {
		places[i].Leave()
		places[i].ticket.Release()
		places[i].ticket.Release() // a second time
	}
	admitted := func(want ...int) {
		t.Helper()
		for i, p := range places {
			if got, want := p.IsAdmitted(), slices.Contains(want, i); got != want {
				t.Errorf("place %d: admitted %t, want %t", i, got, want)
			}
		}
	}
	admitted(0, 1, 4) // the first caller has no slot for its third task, but the other caller has one
	leave(2)
	leave(0)
	admitted(0, 1, 3, 4)
	a.Set(&Limits{Fetches: 4, PerCaller: 2})
	admitted(0, 1, 3, 4, 5)
	for _, i := range []int{1, 3, 4, 5} {
		leave(i)
	}
	if inFlight, _ := a.Load(); inFlight != 0 || len(a.callers) != 0 || len(a.waiting) != 0 {
		t.Errorf("%d in flight, %d callers, %d queues once all have left", inFlight, len(a.callers), len(a.waiting))
	}
}

// TestLastSlots checks which callers may have another slot, by what each has.
func TestLastSlots(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		limit int
		held  map[string]int
		admit bool // a
	}{
		{"alone, up to an eighth and a 64th", 640, map[string]int{"a": 549}, true},
		{"alone, above", 640, map[string]int{"a": 550}, false},
		{"two that have many, below the reserve", 640, map[string]int{"a": 300, "b": 249}, true},
		{"two that have many, above", 640, map[string]int{"a": 300, "b": 250}, false},
		{"one that has less than an eighth", 640, map[string]int{"a": 79, "b": 550}, true},
		{"one that has an eighth", 640, map[string]int{"a": 80, "b": 550}, false},
		{"the last 64th, with less than an eighth", 640, map[string]int{"a": 10, "b": 550, "c": 70}, false},
		{"the last 64th, with nothing", 640, map[string]int{"b": 550, "c": 89}, true},
		{"no slot is free", 640, map[string]int{"b": 550, "c": 90}, false},
		{"the last 64th of many, with a 512th", 10_240, map[string]int{"a": 20, "b": 10_064}, false},
		{"the last 64th of many, with less", 10_240, map[string]int{"a": 19, "b": 10_064}, true},
		{"60 slots, alone", 60, map[string]int{"a": 52}, true},
		{"60 slots, alone, above", 60, map[string]int{"a": 53}, false},
		{"60 slots, the second", 60, map[string]int{"a": 6, "b": 53}, true},
		{"8 slots, alone", 8, map[string]int{"a": 6}, true},
		{"8 slots, alone, above", 8, map[string]int{"a": 7}, false},
		{"8 slots, the second", 8, map[string]int{"b": 7}, true},
		{"7 slots, alone", 7, map[string]int{"a": 6}, true},
		{"1 slot, alone", 1, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := New(budget.New(1<<40), &Limits{Fetches: row.limit, PerCaller: math.MaxInt}, "", "", "", func(string, string) {})
			for caller, n := range row.held {
				a.callers[caller] = n
				a.inFlight += n
			}
			_, err := a.Enter(&callerContext{Context: t.Context(), name: "a"}, nil)
			if (err == nil) != row.admit {
				t.Errorf("enter = %v, want it admitted: %t", err, row.admit)
			}
		})
	}
}

// TestFlood checks that one caller with more calls or tasks than there are slots leaves another
// caller an eighth of the slots, whichever comes first: at once if there are eight or more slots,
// however long the fetches of the first take, and by turns if there are fewer.
func TestFlood(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 7, 8, 60, 160, 10_000} {
		for _, flood := range []string{"calls", "tasks"} {
			for _, other := range []string{"calls", "tasks"} {
				for _, first := range []string{"flood", "other"} {
					for _, hold := range []time.Duration{200 * time.Millisecond, time.Hour} {
						if hold == time.Hour && limit < reservedPart {
							continue // no slot becomes free, and there is none to reserve
						}
						if limit > 1000 && (hold < time.Hour || flood != other) {
							continue // it would compute for seconds
						}
						t.Run(fmt.Sprintf("%d slots, flood of %s, then %s, %s first, fetches of %s", limit, flood, other, first, hold), func(t *testing.T) {
							t.Parallel()
							synctest.Test(t, func(t *testing.T) { testFlood(t, limit, flood, other, first, hold) })
						})
					}
				}
			}
		}
	}
}

func testFlood(t *testing.T, limit int, flood, other, first string, hold time.Duration) {
	a := New(budget.New(1<<60), &Limits{Fetches: limit, PerCaller: math.MaxInt}, "", "", "", func(string, string) {})
	ctx, cancel := context.WithCancel(t.Context())
	// The flood has more calls than it may, and repeats them much more often than advised.
	strong := &load{Context: ctx, admission: a, caller: "flood", wanted: min(2*limit, limit+16), hold: hold, again: 50 * time.Millisecond}
	share := max(limit/reservedPart, 1)
	weak := &load{Context: ctx, admission: a, caller: "other", wanted: share, hold: hold, again: 2 * minPushback}
	start := map[string]func(){
		"flood": func() { strong.start(flood) },
		"other": func() { weak.start(other) },
	}
	start[first]()
	time.Sleep(10 * time.Millisecond) //nolint:forbidigo // in a bubble
	for name := range start {
		if name != first {
			start[name]()
		}
	}
	time.Sleep(time.Second) //nolint:forbidigo // in a bubble
	if limit >= reservedPart {
		a.mu.Lock()
		if got := a.callers["other"]; hold == time.Hour && got < share {
			t.Errorf("after a second the other caller has %d of %d slots, want %d", got, limit, share)
		}
		a.mu.Unlock()
	}
	if got := weak.most.Load(); got < int64(share) {
		t.Errorf("within a second the other caller had at most %d of %d slots, want %d", got, limit, share)
	}
	if hold < time.Second {
		time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble
		// A call that is refused once for each fetch takes 0.9 s: the wait, a fetch that is in flight, its own.
		if got, want := weak.ended.Load(), int64(5*share); got < want {
			t.Errorf("in 6 s the other caller had %d fetches, and the flood %d; want %d", got, strong.ended.Load(), want)
		}
	}
	cancel()
	synctest.Wait()
}

// load is a caller that keeps a number of fetches in flight.
type load struct {
	context.Context
	admission   *Slots
	caller      string
	wanted      int
	hold, again time.Duration // of a fetch; from a refusal to the next call

	inFlight, most, ended atomic.Int64
}

func (l *load) start(kind string) {
	run := map[string]func(){"calls": l.call, "tasks": l.task}[kind]
	for range l.wanted {
		go func() {
			for l.Err() == nil {
				run()
			}
		}()
	}
}

func (l *load) call() {
	ticket, err := l.admission.Enter(&callerContext{Context: l, name: l.caller}, nil)
	if err != nil {
		l.wait(l.again)
		return
	}
	l.fetch()
	ticket.Release()
}

func (l *load) task() {
	t := &Ticket{Slots: l.admission, caller: l.caller, Memory: l.admission.Budget.Lease(l.caller)}
	p := l.admission.Queue(t)
	select {
	case <-p.Admitted:
		l.fetch()
	case <-l.Done():
	}
	p.Leave()
	t.Release()
}

func (l *load) fetch() {
	if n := l.inFlight.Add(1); n > l.most.Load() {
		l.most.Store(n)
	}
	l.wait(l.hold)
	l.ended.Add(1)
	l.inFlight.Add(-1)
}

func (l *load) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.Done():
	}
}

// TestTurns checks the order in which callers get the only slot.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := New(budget.New(1<<40), &Limits{Fetches: 1, PerCaller: math.MaxInt}, "", "", "", func(string, string) {})
		call := func(caller string, admit bool) *Ticket {
			t.Helper()
			got, err := a.Enter(&callerContext{Context: t.Context(), name: caller}, nil)
			if (err == nil) != admit {
				t.Fatalf("a call of %s: %v, want it admitted: %t", caller, err, admit)
			}
			return got
		}
		task := func(caller string) *Place {
			return a.Queue(&Ticket{Slots: a, caller: caller, Memory: a.Budget.Lease(caller)})
		}
		held := call("a", true)
		call("b", false)
		call("c", false)
		held.Release()
		call("a", false) // it had the last turn
		call("c", false) // b claimed first
		held = call("b", true)
		held.Release()
		call("b", false)
		held = call("c", true)
		held.Release() // now a, then b
		waiting := task("d")
		if waiting.IsAdmitted() {
			t.Fatal("a task was admitted before callers that claimed the slot earlier")
		}
		call("a", true).Release()
		time.Sleep(claimTime) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if !waiting.IsAdmitted() { // b did not return
			t.Fatal("a task still waits when the claims have ended")
		}
		own := []*Place{task("d"), task("d"), task("e"), task("d")}
		for _, next := range []int{2, 0, 1, 3} { // e has had no turn
			last := waiting
			last.Leave()
			last.ticket.Release()
			if waiting = own[next]; !waiting.IsAdmitted() {
				t.Fatalf("task %d was not admitted", next)
			}
		}
		waiting.Leave()
		waiting.ticket.Release()
		call("f", true).Release()
		if a.inFlight != 0 || len(a.callers) != 0 || len(a.waiting) != 0 || a.claims != 0 {
			t.Errorf("%d in flight, %d callers, %d waiters, %d claims at the end", a.inFlight, len(a.callers), len(a.waiting), a.claims)
		}
	})
}

// TestClaims checks that claims end, and that their number and the slots kept for them are limited.
func TestClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := New(budget.New(1<<40), &Limits{Fetches: 16, PerCaller: 16}, "", "", "", func(string, string) {})
		var held []*Ticket
		for i := range 16 {
			got, err := a.Enter(&callerContext{Context: t.Context(), name: fmt.Sprint("first ", i)}, nil)
			must.Succeed(t, err)
			held = append(held, got)
		}
		for i := range 10 * maxClaims {
			if _, err := a.Enter(&callerContext{Context: t.Context(), name: fmt.Sprint("stranger ", i)}, nil); err == nil {
				t.Fatal("a 17th fetch was admitted")
			}
		}
		if a.claims != maxClaims || len(a.waiting) != maxClaims {
			t.Errorf("%d claims, %d waiters, want %d", a.claims, len(a.waiting), maxClaims)
		}
		for _, h := range held[:3] {
			h.Release()
		}
		for i, admit := range []bool{true, false} { // two of the three free slots are kept
			got, err := a.Enter(&callerContext{Context: t.Context(), name: fmt.Sprint("new ", i)}, nil)
			if (err == nil) != admit {
				t.Errorf("new caller %d: %v, want it admitted: %t", i, err, admit)
			}
			if err == nil {
				defer got.Release()
			}
		}
		time.Sleep(claimTime) //nolint:forbidigo // in a bubble
		if _, err := a.Enter(&callerContext{Context: t.Context(), name: "late"}, nil); err != nil || a.claims != 0 {
			t.Errorf("after the claims have ended: %v, %d claims", err, a.claims)
		}
	})
}

// BenchmarkAdmission admits fetches of one caller while another caller's tasks wait.
func BenchmarkAdmission(b *testing.B) {
	a := New(budget.New(1<<40), &Limits{Fetches: 1000, PerCaller: 1}, "", "", "", func(string, string) {})
	for range 100_000 {
		a.Queue(&Ticket{Slots: a, caller: "busy"})
	}
	quiet := &callerContext{Context: b.Context(), name: "quiet"}
	for b.Loop() {
		t, err := a.Enter(quiet, nil)
		must.Succeed(b, err)
		t.Release()
	}
}
