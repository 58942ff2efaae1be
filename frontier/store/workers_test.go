package store

import (
	"slices"
	"testing"
	"time"
)

// TestWorkers checks that a worker is listed from its start to its stop, and vanishes between the two
// if it is not seen for 30 s.
func TestWorkers(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		seen := func(name string, started bool) {
			t.Helper()
			must(t, f.WorkerSeen(t.Context(), name, "", started))
		}
		age := func(name string, by time.Duration) {
			f.exec(`UPDATE workers SET started_at = started_at - ?, seen_at = seen_at - ? WHERE name = ?`, millis(by), millis(by), name)
		}
		workers := func() (names, vanished []string) {
			t.Helper()
			all, err := f.Workers(t.Context())
			must(t, err)
			for _, w := range all {
				names = append(names, w.Name)
				if w.Vanished {
					vanished = append(vanished, w.Name)
				}
			}
			return names, vanished
		}
		check := func(when string, names, vanished []string) {
			t.Helper()
			if n, v := workers(); !slices.Equal(n, names) || !slices.Equal(v, vanished) {
				t.Errorf("%s: workers %q, vanished %q, want %q and %q", when, n, v, names, vanished)
			}
		}
		check("none", nil, nil)
		for _, name := range []string{"a", "b", "c"} {
			seen(name, true)
		}
		check("started", []string{"a", "b", "c"}, nil)
		age("a", 25*time.Second)
		age("b", 35*time.Second)
		age("c", 35*time.Second)
		check("two are silent", []string{"a", "b", "c"}, []string{"b", "c"})
		seen("c", false)
		must(t, f.WorkerStopped(t.Context(), "a"))
		check("one has stopped, one is back", []string{"b", "c"}, []string{"b"})

		age("b", 25*time.Hour)
		age("c", 10*time.Minute)
		seen("d", true)
		check("one vanished yesterday", []string{"c", "d"}, []string{"c"})
		before := f.number(`SELECT started_at FROM workers WHERE name = 'c'`)
		seen("c", false)
		if n := f.number(`SELECT started_at FROM workers WHERE name = 'c'`); n != before {
			t.Errorf("seen: started_at = %d, want %d as before", n, before)
		}
		seen("c", true)
		if n := f.number(`SELECT started_at FROM workers WHERE name = 'c'`); n <= before {
			t.Errorf("started again: started_at = %d, want more than %d", n, before)
		}
	})
}

// TestWorkersClaims checks the claims of workers, also of one that never reported itself.
func TestWorkersClaims(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		must(t, f.WorkerSeen(t.Context(), "idle", "", true))
		f.put("http://a.test/", "http://b.test/", "http://b.test/2")
		f.claim(2)
		last := f.number(`SELECT max(lease_until) FROM urls`)
		all, err := f.Workers(t.Context())
		if err != nil || len(all) != 2 {
			t.Fatalf("Workers = %+v, %v, want two", all, err)
		}
		if w := all[0]; w.Name != "idle" || w.Claims != 0 || !w.LeaseUntil.IsZero() || w.Seen.IsZero() || w.Vanished {
			t.Errorf("%+v, want one without claims", w)
		}
		if w := all[1]; w.Name != "test" || w.Claims != 2 || w.LeaseUntil.UnixMilli() != last || !w.Seen.IsZero() || w.Vanished {
			t.Errorf("%+v, want one with 2 claims until %d, never seen and not vanished", w, last)
		}
	})
}
