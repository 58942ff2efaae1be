package frontier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/store"
)

// pickyStore rejects every batch that contains certain URLs, and all batches before a time.
type pickyStore struct {
	store.Store
	poison map[int64]bool
	opens  time.Time

	mu        sync.Mutex
	taken     []int64
	abandoned []int64
}

func (s *pickyStore) RecordFetch(_ context.Context, fetches []store.Fetch) ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.opens) {
		return nil, errBroken
	}
	for _, f := range fetches {
		if s.poison[f.ID] {
			return nil, fmt.Errorf("URL %d: %w", f.ID, errBroken)
		}
	}
	for _, f := range fetches {
		s.taken = append(s.taken, f.ID)
	}
	return make([]error, len(fetches)), nil
}

func (s *pickyStore) Abandon(_ context.Context, leases []store.Lease) ([]store.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range leases {
		s.abandoned = append(s.abandoned, l.ID)
	}
	return leases, nil
}

// TestRecorder checks that an outcome that the store never accepts does not block others, and that
// one that it accepts later is recorded once.
func TestRecorder(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		outcomes  int
		poison    map[int64]bool
		opens     time.Duration
		last      time.Duration // when the worker gives up storing
		taken     int
		abandoned int
		most      time.Duration
	}{
		{name: "all well", outcomes: 5, taken: 5, last: time.Hour, most: recordTime},
		{name: "a store that comes back", outcomes: 5, taken: 5, last: time.Hour, opens: time.Minute, most: time.Minute + recordWait + recordTime},
		{name: "the first is never taken", outcomes: 5, poison: map[int64]bool{0: true}, taken: 4, abandoned: 1, last: time.Hour, most: time.Second},
		{name: "one in the middle", outcomes: 5, poison: map[int64]bool{2: true}, taken: 4, abandoned: 1, last: time.Hour, most: time.Second},
		{name: "the last", outcomes: 5, poison: map[int64]bool{4: true}, taken: 4, abandoned: 1, last: time.Hour, most: time.Second},
		{name: "one alone", outcomes: 1, poison: map[int64]bool{0: true}, last: time.Hour, most: defaultLease + recordWait + recordTime},
		{name: "a store that is gone, and the time is over", outcomes: 5, opens: time.Hour, last: time.Minute, most: time.Minute + recordTime},
		{name: "many", outcomes: 1000, taken: 1000, last: time.Hour, most: time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				s := &pickyStore{poison: row.poison, opens: started.Add(row.opens)}
				w, err := New(s, []Service{{Name: "none"}}, Config{Policy: DefaultPolicy()})
				must(t, err)
				var cancel context.CancelFunc
				w.storing, cancel = context.WithTimeout(t.Context(), row.last)
				defer cancel()
				var visits sync.WaitGroup
				w.others.Go(func() { w.recorder.run(w.storing) })
				for range row.outcomes {
					w.stats.claimed.Add(1)
				}
				for id := range int64(row.outcomes) {
					visits.Go(func() {
						<-w.recorder.submit(store.Claim{Lease: store.Lease{ID: id}}, store.Fetch{ID: id, Status: store.Fetched}).done
					})
				}
				visits.Wait()
				took := time.Since(started)
				w.recorder.close()
				w.others.Wait()
				if len(s.taken) != row.taken || len(s.abandoned) != row.abandoned || took > row.most {
					t.Errorf("%d taken and %d given back after %v, want %d and %d within %v", len(s.taken), len(s.abandoned), took, row.taken, row.abandoned, row.most)
				}
				if stats := w.Stats(); stats.Completed != int64(row.taken) {
					t.Errorf("%+v, want %d told", stats, row.taken)
				}
			})
		})
	}
}

// TestRecorderWaits checks that an outcome waits for those of other visits, and not if there are none: a
// crawl of one host would wait for each page.
func TestRecorderWaits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name           string
		held, outcomes int
		want           time.Duration
	}{
		{"the only visit", 1, 1, 0},
		{"each of several visits", 3, 3, 0},
		{"another visit is in flight", 2, 1, recordTime},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, err := New(new(pickyStore), []Service{{Name: "none"}}, Config{Policy: DefaultPolicy()})
				must(t, err)
				w.storing = t.Context()
				for range row.held {
					w.stats.claimed.Add(1)
				}
				var visits sync.WaitGroup
				w.others.Go(func() { w.recorder.run(w.storing) })
				started := time.Now()
				for id := range int64(row.outcomes) {
					visits.Go(func() {
						<-w.recorder.submit(store.Claim{Lease: store.Lease{ID: id}}, store.Fetch{ID: id, Status: store.Fetched}).done
					})
				}
				visits.Wait()
				if took := time.Since(started); took != row.want {
					t.Errorf("recorded after %v, want %v", took, row.want)
				}
				w.recorder.close()
				w.others.Wait()
			})
		})
	}
}

// TestRest checks when the next claim follows.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name         string
		pause        time.Duration
		recordedAt   time.Duration // negative: never
		want         time.Duration
		wantRecorded bool
	}{
		{"nothing happens", 3 * time.Millisecond, -1, lastPoll, false},
		{"an outcome, and the host is due soon", 3 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, true},
		{"an outcome before the wait", 3 * time.Millisecond, 0, 3 * time.Millisecond, true},
		{"an outcome, and the host is due in a second", time.Second, 2 * time.Millisecond, lastPoll, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, err := New(new(pickyStore), []Service{{Name: "none"}}, Config{Policy: DefaultPolicy()})
				must(t, err)
				if row.recordedAt >= 0 {
					time.AfterFunc(row.recordedAt, func() { w.recorder.recorded <- struct{}{} })
				}
				started := time.Now()
				recorded := newClaims(w).rest(t.Context(), lastPoll, row.pause)
				if took := time.Since(started); took != row.want || recorded != row.wantRecorded {
					t.Errorf("%v, %t, want %v, %t", took, recorded, row.want, row.wantRecorded)
				}
			})
		})
	}
}

// TestRecorderPoisonAlone checks that a bad outcome is given up only after another one has shown
// that the store works.
func TestRecorderPoisonAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &pickyStore{poison: map[int64]bool{0: true}}
		w, err := New(s, []Service{{Name: "none"}}, Config{Policy: DefaultPolicy()})
		must(t, err)
		w.storing = t.Context()
		var visits sync.WaitGroup
		w.others.Go(func() { w.recorder.run(w.storing) })
		started := time.Now()
		for id := range int64(2) {
			visits.Go(func() {
				<-w.recorder.submit(store.Claim{Lease: store.Lease{ID: id}}, store.Fetch{ID: id, Status: store.Fetched}).done
			})
			synctest.Wait()
			sleep(t.Context(), time.Second)
		}
		visits.Wait()
		if took := time.Since(started); len(s.taken) != 1 || len(s.abandoned) != 1 || took > 10*time.Second {
			t.Errorf("%v taken and %v given back after %v, want one and one in a few seconds", s.taken, s.abandoned, took)
		}
		w.recorder.close()
		w.others.Wait()
	})
}

// TestRecorderFinalURL checks that an outcome is recorded even if its final URL cannot be stored.
func TestRecorderFinalURL(t *testing.T) {
	t.Parallel()
	w, v := claimed(t)
	u := v.claim.URL
	w.others.Go(func() { w.recorder.run(w.storing) })
	f := store.Fetch{ID: v.claim.ID, Status: store.Fetched, FinalURL: "::none::"}
	f.Token, f.HTTPStatus, f.Attempts = v.claim.Token, 200, 1
	<-w.recorder.submit(v.claim, f).done
	<-w.recorder.submit(v.claim, f).done // again, but the lease is over
	w.recorder.close()
	w.others.Wait()
	e, err := reads(w).Why(t.Context(), u)
	if err != nil || e.URL.Status != store.Fetched || e.URL.HTTPStatus != 200 {
		t.Errorf("%+v, %v; want it fetched", e, err)
	}
	if stats := w.Stats(); stats.Completed != 1 || stats.Stale+stats.Errors == 0 {
		t.Errorf("%+v, want one told and one refused", stats)
	}
	for one, err := range reads(w).Fetches(t.Context()) {
		if err != nil || one.FinalURL != "" || errors.Is(err, store.ErrStale) {
			t.Errorf("%+v, %v; want no final URL", one, err)
		}
	}
}
