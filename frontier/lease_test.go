package frontier

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// claimed returns a worker on a frontier of one URL, and the visit that holds it.
func claimed(t *testing.T) (*claims, *visit) {
	t.Helper()
	const u = "http://a.test/1"
	s := openStore(t, filepath.Join(t.TempDir(), "frontier.db"), time.Millisecond)
	if _, err := s.Put(t.Context(), store.Entries(u), store.Limits{}); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), store.ClaimParams{Lease: time.Minute})
	if err != nil || len(claims) != 1 {
		t.Fatalf("%v, %v; want one claim", claims, err)
	}
	w, err := New(s, []Service{{Name: "none"}}, Config{Policy: DefaultPolicy()})
	must(t, err)
	w.draining, w.drain = context.WithCancelCause(t.Context())
	w.storing = t.Context()
	t.Cleanup(func() { w.drain(nil) })
	v := &visit{w: w, claim: claims[0]}
	v.ctx, v.cancel = context.WithCancelCause(t.Context())
	t.Cleanup(func() { v.cancel(nil) })
	c := newClaims(w)
	c.held[v] = struct{}{}
	return c, v
}

var errBroken = errors.New("the store is broken")

// brokenStore cannot extend leases.
type brokenStore struct{ store.Store }

func (brokenStore) Extend(context.Context, []store.Lease, time.Duration) ([]store.Lease, error) {
	return nil, errBroken
}

// reads returns the store of a worker to look at.
func reads(w *claims) store.Store {
	if b, ok := w.store.(brokenStore); ok {
		return b.Store
	}
	return w.store
}

// lose makes the store forget the lease of v.
func lose(t *testing.T, w *claims, v *visit) {
	t.Helper()
	if _, err := w.store.Release(t.Context(), []store.Lease{v.claim.Lease}); err != nil {
		t.Fatal(err)
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	nothing := func(*testing.T, *claims, *visit) {}
	for _, row := range []struct {
		name     string
		left     time.Duration
		progress bool
		overdue  time.Duration
		queued   time.Duration
		before   func(*testing.T, *claims, *visit)
		extended bool
		ends     error
		errors   int64
	}{
		{"progress, and little left", time.Minute, true, time.Hour, 0, nothing, true, nil, 0},
		{"no progress", time.Minute, false, time.Hour, 0, nothing, false, nil, 0},
		{"much left", 4 * time.Minute, true, time.Hour, 0, nothing, false, nil, 0},
		{"overdue", time.Minute, true, -1, 0, nothing, false, nil, 0},
		{"over", 0, true, time.Hour, 0, nothing, false, errLeaseLost, 0},
		{"another's", time.Minute, true, time.Hour, 0, lose, false, errLeaseLost, 0},
		{"a broken store", time.Minute, true, time.Hour, 0, func(_ *testing.T, w *claims, _ *visit) { w.store = brokenStore{w.store} }, false, nil, 1},
		{"in the queue of the service", time.Minute, false, -1, time.Minute, nothing, true, nil, 0},
		{"too long in the queue of the service", time.Minute, false, -1, -1, nothing, false, nil, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w, v := claimed(t)
			now := time.Now()
			v.until, v.progress, v.overdue, v.queued = now.Add(row.left), row.progress, now.Add(row.overdue), now.Add(row.queued)
			row.before(t, w, v)
			w.extend(t.Context())
			if got := v.until.After(now.Add(row.left)); got != row.extended || (got && v.progress) {
				t.Errorf("until %v from now, progress %v; want it extended: %v", v.until.Sub(now), v.progress, row.extended)
			}
			if cause := context.Cause(v.ctx); !errors.Is(cause, row.ends) || w.Stats().Errors != row.errors {
				t.Errorf("ended by %v, %d errors; want %v, %d", cause, w.Stats().Errors, row.ends, row.errors)
			}
			e, err := reads(w).Why(t.Context(), v.claim.URL)
			if err != nil || e.URL.LeaseUntil.After(e.Now.Add(2*time.Minute)) != row.extended {
				t.Errorf("%+v, %v; want the lease extended in the store: %v", e, err, row.extended)
			}
		})
	}
}

// TestCheckLease checks that a fetch starts only if the lease outlasts it.
func TestCheckLease(t *testing.T) {
	t.Parallel()
	nothing := func(*testing.T, *claims, *visit) {}
	broken := func(_ *testing.T, w *claims, _ *visit) { w.store = brokenStore{w.store} }
	for _, row := range []struct {
		name     string
		left     time.Duration
		started  bool
		before   func(*testing.T, *claims, *visit)
		want     *ending
		extended bool
	}{
		{"enough left", 2 * time.Minute, false, nothing, nil, false},
		{"too little", time.Minute, false, nothing, nil, true},
		{"too little, and another's", time.Minute, false, lose, &ending{how: forget}, false},
		{"nothing", 0, false, nothing, &ending{how: forget}, false},
		{"a broken store", time.Minute, false, broken, &ending{how: giveBack}, false},
		{"a broken store after a part", time.Minute, true, broken, &ending{how: giveBackDelayed}, false},
		{"draining", time.Hour, false, func(_ *testing.T, w *claims, _ *visit) { w.drain(errEnough) }, &ending{how: giveBack}, false},
		{"draining after a part", time.Hour, true, func(_ *testing.T, w *claims, _ *visit) { w.drain(errEnough) }, &ending{how: giveBackDelayed}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w, v := claimed(t)
			now := time.Now()
			v.until, v.started = now.Add(row.left), row.started
			row.before(t, w, v)
			e := v.checkLease()
			if (e == nil) != (row.want == nil) || (e != nil && e.how != row.want.how) {
				t.Errorf("checkLease = %+v, want %+v", e, row.want)
			}
			if got := v.until.After(now.Add(row.left)); got != row.extended {
				t.Errorf("until %v from now, want it extended: %v", v.until.Sub(now), row.extended)
			}
		})
	}
}

// TestStaleOutcome checks that an outcome is not recorded after the lease was reaped and another
// worker has fetched the URL.
func TestStaleOutcome(t *testing.T) {
	t.Parallel()
	const u = "http://a.test/1"
	path := filepath.Join(t.TempDir(), "frontier.db")
	s := openStore(t, path, time.Millisecond)
	r := &rig{T: t, store: s}
	r.add(u)
	started, release := make(chan struct{}), make(chan struct{})
	service := (&script{many: func(_ int, s manyStream) error {
		return fetchedAll(s, func(*pb.FetchRequest) {
			close(started)
			<-release
		})
	}}).start(t, "script")
	r.config = Config{Policy: DefaultPolicy(), IgnoreRobots: true, Open: 1, Recorded: func(rec Record) error { // so that it does not claim the URL again
		t.Errorf("told of %+v", rec)
		return nil
	}}
	w := r.worker(service)
	ended := r.run(t.Context(), w)
	<-started
	expire(t, path)
	if _, err := s.Reap(t.Context()); err != nil { // by this call or by the worker's own
		t.Fatal(err)
	}
	again := r.claimOne()
	_, err := s.RecordFetch(t.Context(), []store.Fetch{{ID: again.ID, Status: store.Fetched,
		FetchedParams: store.FetchedParams{Token: again.Token, HTTPStatus: 299, Attempts: 1}}})
	must(t, err)
	close(release)
	must(t, <-ended)
	if stats := w.Stats(); stats != (Stats{Stale: 1}) {
		t.Errorf("%+v, want one stale outcome", stats)
	}
	if got := r.row(u); got.Status != store.Fetched || got.HTTPStatus != 299 || got.CrashCount != 1 {
		t.Errorf("%+v, want what the other recorded", got)
	}
	fetches := 0
	for _, err := range s.Fetches(t.Context()) {
		if fetches++; err != nil {
			t.Fatal(err)
		}
	}
	if fetches != 1 {
		t.Errorf("%d fetches are recorded, want 1", fetches)
	}
}

// expire ends all leases of a frontier.
func expire(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)")
	must(t, err)
	defer db.Close()
	result, err := db.ExecContext(t.Context(), `UPDATE urls SET lease_until = 1 WHERE status = 'fetching'`)
	must(t, err)
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%d leases, %v; want 1", n, err)
	}
}

// TestServiceLies checks that no service can keep a URL for ever, or keep a worker from ending. The
// time is that of a bubble. The store's time passes outside, so its leases last.
func TestServiceLies(t *testing.T) {
	t.Parallel()
	const u = "http://a.test/1"
	beats := func(s manyStream, tag string) error {
		for {
			if err := s.Send(heartbeat(tag)); err != nil {
				return err
			}
			sleep(s.Context(), 10*time.Second)
		}
	}
	for _, row := range []struct {
		name      string
		first     func(s manyStream, tag string) error // the first stream
		crashes   int
		most      time.Duration
		completed int64
	}{
		{"never answers", func(s manyStream, _ string) error { return silent(s) }, 1, 16 * time.Minute, 1},
		{"beats for ever", beats, 1, 7 * time.Minute, 1},
		{"has it queued for long", func(s manyStream, tag string) error {
			sleep(s.Context(), 590*time.Second) // as for a quota of the caller
			err := s.Send(heartbeat(tag))
			sleep(s.Context(), 65*time.Second)
			return errors.Join(err, s.Send(told(tag, page(u))), silent(s))
		}, 0, 12 * time.Minute, 1},
		{"tells of URLs that are none", func(s manyStream, tag string) error {
			o := page("::none::")
			o.Hops = []*pb.Hop{nil, {Url: "%"}, {Url: "http://[::"}}
			return errors.Join(s.Send(finished(tag, o.GetHops())), s.Send(told(tag, o)), silent(s))
		}, 0, time.Minute, 1},
		{"redirects to no URL", func(s manyStream, tag string) error {
			o := response(redirected, 302, "http://[::")
			return errors.Join(s.Send(told(tag, o)), silent(s))
		}, 0, time.Minute, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t, filepath.Join(t.TempDir(), "frontier.db"), time.Millisecond)
				r := &rig{T: t, store: s, config: Config{Policy: DefaultPolicy(), IgnoreRobots: true, Open: 1}} // so that it does not poll meanwhile
				r.add(u)
				w := r.worker((&script{many: func(n int, s manyStream) error {
					if n > 1 {
						return fetchedAll(s, nil)
					}
					return afterTask(row.first)(n, s)
				}}).start(t, "liar"))
				started := time.Now()
				if err := w.Run(t.Context()); err != nil {
					t.Errorf("Run = %v", err)
				}
				stats, got := w.Stats(), r.row(u)
				if took := time.Since(started); took > row.most || stats.Completed != row.completed || stats.Stale != 0 || stats.Open != 0 {
					t.Errorf("%+v after %v, want %d fetched within %v", stats, took, row.completed, row.most)
				}
				if got.CrashCount != row.crashes || stats.Lost != int64(row.crashes) {
					t.Errorf("%+v, %+v; want %d crashes", got, stats, row.crashes)
				}
			})
		})
	}
}

func heartbeat(tag string) *pb.FetchManyResponse {
	return &pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag, Event: &pb.FetchEvent{
		Event: &pb.FetchEvent_Heartbeat{Heartbeat: new(pb.Heartbeat)}}}}}
}

// finished returns the event that ends an attempt.
func finished(tag string, hops []*pb.Hop) *pb.FetchManyResponse {
	return &pb.FetchManyResponse{Events: []*pb.TaskEvent{{Tag: tag, Event: &pb.FetchEvent{
		Event: &pb.FetchEvent_AttemptFinished{AttemptFinished: &pb.AttemptFinished{Hops: hops}}}}}}
}
