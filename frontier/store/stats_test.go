package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestStats(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/", "http://c.test/", "http://d.test/")
		claims := f.claim(4)
		f.mustRecord(Fetch{ID: claims[0].ID, FetchedParams: FetchedParams{Token: claims[0].Token, HTTPStatus: 200, Attempts: 1, Bytes: 10}, Status: Fetched})
		f.mustRecord(Fetch{ID: claims[1].ID, FetchedParams: FetchedParams{Token: claims[1].Token, Attempts: 1, Bytes: 5}, Status: Dead, ErrorClass: "forbidden"})
		f.mustRecord(Fetch{ID: claims[2].ID, FetchedParams: FetchedParams{Token: claims[2].Token, Attempts: 1}, Status: Failed, ErrorClass: "deadline", RetryIn: time.Hour})
		for host, seconds := range map[string]string{"a.test": "1000", "b.test": "3000"} {
			f.exec(`UPDATE hosts SET fetch_count = 1, failure_count = 0, bytes = 7, duration_ms = `+seconds+` WHERE host = ?`, host)
		}
		f.exec(`UPDATE hosts SET fetch_count = 0, bytes = 0 WHERE host NOT IN ('a.test', 'b.test')`)
		must(t, f.Block(t.Context(), "a.test", time.Hour))
		must(t, f.Pause(t.Context(), "b.test"))
		f.exec(`INSERT INTO workers (name, started_at, seen_at) VALUES ('w', 1, {now})`)
		got, err := f.Stats(t.Context(), 1)
		must(t, err)
		host := func(name string, seconds int) HostStats {
			return HostStats{Host: name, Fetches: 1, Duration: time.Duration(seconds) * time.Second, Bytes: 7}
		}
		slow, closed := host("b.test", 3), host("a.test", 1)
		slow.Paused = true
		want := Stats{LastMinute: Sums{Outcomes: 3, Bytes: 15}, Bytes: 14,
			Classes: []ClassCount{{"deadline", 1, 0}, {"forbidden", 0, 1}}, Slowest: []HostStats{slow}, Closed: []HostStats{closed},
			Workers: []WorkerState{{Name: "test", Claims: 1}, {Name: "w"}},
			Counts:  Counts{Fetching: 1, Fetched: 1, Failed: 1, Dead: 1, Hosts: 4, HostsInFlight: 1, HostsBlocked: 1, HostsWaiting: 3, HostsPaused: 1, Waits: Waits{BackingOff: 1}}}
		ignored := cmpopts.IgnoreFields(HostStats{}, "BlockedUntil")
		if diff := cmp.Diff(want, got, ignored, cmpopts.IgnoreFields(Stats{}, "Now"), cmpopts.IgnoreFields(Counts{}, "NextDue", "LastOutcome"), cmpopts.IgnoreFields(WorkerState{}, "Started", "Seen", "LeaseUntil", "Now")); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
		if got.Closed[0].BlockedUntil.Before(got.Now) || got.Now.IsZero() || got.Workers[1].Seen.IsZero() {
			t.Errorf("times of %+v", got)
		}
	})
}

func TestFetchesAfter(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		entries := Entries("http://a.test/", "http://b.test/", "http://c.test/")
		entries[0].Metadata = `{"a":1}`
		if _, err := f.Put(t.Context(), entries, Limits{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range f.claim(3) {
			f.fetched(c)
		}
		ids := func(after int64, limit int, want ...int64) []WatchedFetch {
			t.Helper()
			page, err := f.FetchesAfter(t.Context(), after, limit)
			var got []int64
			for _, row := range page {
				got = append(got, row.ID)
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("FetchesAfter(%d, %d): %v (-want +got):\n%s", after, limit, err, diff)
			}
			return page
		}
		if last, err := f.LastFetch(t.Context()); err != nil || last != 3 {
			t.Errorf("LastFetch = %d, %v, want 3", last, err)
		}
		if page := ids(0, 2, 1, 2); page[0].Metadata+page[1].Metadata != `{"a":1}` {
			t.Errorf("metadata of %+v", page)
		}
		ids(2, 2, 3)
		ids(3, 2)
		f.exec(`DELETE FROM fetches WHERE id = 2`) // as if its transaction had not committed yet
		ids(0, 3, 1)
		ids(1, 3)
		f.exec(`UPDATE fetches SET ended_at = ended_at - 6000`)
		ids(0, 3, 1, 3)
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/")
		got, err := f.IDs(t.Context(), []string{"http://B.test", "http://unknown.test/", "no URL", "http://b.test/"})
		want := map[string]int64{"http://B.test": f.url("http://b.test/").ID, "http://b.test/": f.url("http://b.test/").ID}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("IDs: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestPostpone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1", "http://a.test/2")
		first := f.claim(1)[0]
		released, err := f.Release(t.Context(), []Lease{first.Lease, {ID: 99, Token: 1}})
		must(t, err)
		must(t, f.Postpone(t.Context(), released, time.Hour))
		if second := f.claim(1)[0]; second.ID == first.ID {
			t.Errorf("the postponed URL %s was claimed again", first.URL)
		}
		if u := f.url(first.URL); u.Status != Pending || u.CrashCount != 0 || u.FailureCount != 0 {
			t.Errorf("the postponed URL is %+v", u)
		}
		later := f.url(first.URL).ReadyAt
		must(t, f.Postpone(t.Context(), released, time.Second))
		if got := f.url(first.URL).ReadyAt; !got.Equal(later) {
			t.Errorf("a shorter time has moved the URL from %v to %v", later, got)
		}
	})
}
