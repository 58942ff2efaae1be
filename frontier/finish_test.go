package frontier

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/frontier/store"
	pb "fetchd/gen/fetchd/v1"
)

// broken is a store whose calls fail for some time. It runs in a bubble.
type broken struct {
	store.Store
	works    time.Time // zero means never
	released []store.Lease
	charged  []string
	settled  []store.Reservation
	claims   int
}

var errAway = errors.New("the database is away")

func (b *broken) err() error {
	if b.works.IsZero() || time.Now().Before(b.works) {
		return errAway
	}
	return nil
}

func (b *broken) Release(_ context.Context, leases []store.Lease) ([]store.Lease, error) {
	if len(b.charged) == 0 {
		b.works = time.Unix(0, 0) // it works again just now: a host that was not delayed must not be released
	}
	if err := b.err(); err != nil {
		return nil, err
	}
	b.released = append(b.released, leases...)
	return leases, nil
}

func (b *broken) DelayHosts(_ context.Context, hosts []string) error {
	if err := b.err(); err != nil {
		return err
	}
	b.charged = append(b.charged, hosts...)
	return nil
}

func (b *broken) Settle(_ context.Context, r store.Reservation) error {
	if err := b.err(); err != nil {
		return err
	}
	b.settled = append(b.settled, r)
	return nil
}

// Claim fails like an interrupted call: nobody knows what it has claimed.
func (b *broken) Claim(ctx context.Context, _ store.ClaimParams) ([]store.Claim, error) {
	b.claims++
	return nil, ctx.Err()
}

// Reserve grants a host as soon as the store works.
func (b *broken) Reserve(_ context.Context, host string, _ time.Duration) (store.Reservation, error) {
	if b.err() != nil {
		return store.Reservation{Host: host, Wait: time.Second}, nil
	}
	return store.Reservation{Host: host, Until: 1}, nil
}

func (b *broken) LeaveHosts(ctx context.Context, leases []store.Lease) ([]store.Lease, error) {
	return leases, ctx.Err()
}

// newBroken returns a worker that has not run, on a store that works again after a time.
func newBroken(t *testing.T, away time.Duration) (*Worker, *broken) {
	t.Helper()
	b := new(broken)
	if away > 0 {
		b.works = time.Now().Add(away)
	}
	w, err := New(b, []Service{{}}, Config{})
	must(t, err)
	w.storing, w.draining = t.Context(), t.Context()
	return w, b
}

// The worker waits for a database that is away for some seconds.
func TestGiveBackWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newBroken(t, 3*time.Second)
		claim := store.Claim{Lease: store.Lease{ID: 1, Token: 2}, Host: "a.test"}
		reservation := store.Reservation{Host: "b.test", Until: 1}
		v := &visit{w: w, claim: claim, ctx: t.Context(), held: "b.test", reservation: reservation}
		if !w.queues.try(v.held) {
			t.Fatal("somebody has the turn")
		}
		v.release()
		w.settle(v, ending{how: giveBackDelayed})
		if !slices.Equal(b.settled, []store.Reservation{reservation}) {
			t.Errorf("settled %v, want %v", b.settled, reservation)
		}
		if !slices.Equal(b.charged, []string{"a.test"}) || !slices.Equal(b.released, []store.Lease{claim.Lease}) {
			t.Errorf("charged %v and released %v, want a.test and %v", b.charged, b.released, claim.Lease)
		}
		if got := w.Stats().Errors; got != 1 {
			t.Errorf("%d errors, want 1: the second call succeeded at once", got)
		}
	})
}

// A host that could not be delayed is not opened. It is delayed when the lease expires.
func TestGiveBackNeedsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newBroken(t, 0)
		v := &visit{w: w, claim: store.Claim{Lease: store.Lease{ID: 1, Token: 2}, Host: "a.test"}, ctx: t.Context()}
		started := time.Now()
		w.settle(v, ending{how: giveBackDelayed})
		if len(b.released) > 0 {
			t.Errorf("released %v, which was not charged", b.released)
		}
		if took := time.Since(started); took != finishTime {
			t.Errorf("gave up after %v, want %v", took, finishTime)
		}
	})
}

// openStream gives w a stream to a service, and thereby capacity.
func openStream(t *testing.T, w *Worker) {
	t.Helper()
	service := (&script{many: func(_ int, s manyStream) error { return fetchedAll(s, nil) }}).start(t, "one")
	w.pool.Open(t.Context(), service.Client, 1, nil)
	t.Cleanup(w.pool.Close)
	awaitCapacity(w, 1)
}

// awaitCapacity waits until the streams of w carry n fetches.
func awaitCapacity(w *Worker, n int) {
	for capacity, changed := w.pool.Capacity(); capacity < n; capacity, changed = w.pool.Capacity() {
		<-changed
	}
}

// The end of Run does not interrupt a claim, because its URLs must be given back.
func TestClaimIsNotInterrupted(t *testing.T) {
	w, b := newBroken(t, 0)
	openStream(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.draining = ctx
	if _, err := newClaims(w).claim(); err != nil || b.claims != 1 {
		t.Errorf("claim = %v after %d calls, want nil after 1", err, b.claims)
	}
}

// lateClaims grants a URL when its lease has already expired, as to a process that was suspended
// while it waited for the database.
type lateClaims struct{ *broken }

func (s lateClaims) Claim(_ context.Context, params store.ClaimParams) ([]store.Claim, error) {
	<-time.After(params.Lease)
	return []store.Claim{{Lease: store.Lease{ID: 1, Token: 2}, URL: "http://a.test/", Host: "a.test"}}, nil
}

// A URL that was claimed too late is given back. Otherwise its lease would expire and count as a
// crash.
func TestLateClaimIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newBroken(t, time.Nanosecond)
		b.charged = []string{"its host"} // so that Release works
		w.store = lateClaims{b}
		openStream(t, w)
		n, err := newClaims(w).claim()
		if want := []store.Lease{{ID: 1, Token: 2}}; n != 0 || err != nil || w.open() != 0 || !slices.Equal(b.released, want) {
			t.Errorf("claim = %d, %v; %d started, released %v, want none started and %v", n, err, w.open(), b.released, want)
		}
	})
}

// A visit that waits for a host makes progress. Otherwise its lease might expire before the wait
// ends.
func TestWaitForHostIsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			away time.Duration
			want bool
		}{
			"waits":         {10 * time.Second, true},
			"open at once":  {-time.Second, false},
			"never granted": {time.Hour, true},
		} {
			w, b := newBroken(t, 0)
			b.works = time.Now().Add(tt.away)
			v := &visit{w: w, claim: store.Claim{Host: "a.test"}, ctx: t.Context()}
			patience, cancel := context.WithTimeout(t.Context(), time.Minute)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				granted, e := v.reserve(patience, "b.test")
				if e != nil || granted != (tt.away < time.Minute) {
					t.Errorf("%s: reserve = %v, %+v", name, granted, e)
				}
			}()
			synctest.Wait()
			v.mu.Lock()
			if v.waiting != tt.want {
				t.Errorf("%s: waiting = %v, want %v", name, v.waiting, tt.want)
			}
			v.mu.Unlock()
			<-ended
			cancel()
			if v.waiting {
				t.Errorf("%s: it waits though it has ended", name)
			}
		}
	})
}

// cutBodies fails like a place whose caller has gone.
type cutBodies struct {
	Body
	ctx  context.Context
	kept int
}

func (b *cutBodies) New(ctx context.Context) Body {
	b.ctx = ctx
	return b
}

func (*cutBodies) Lacks(string) bool { return false }

func (b *cutBodies) Commit(string, []byte) error {
	b.kept++
	return b.ctx.Err()
}

// A body that was fetched before the end of DrainTime is stored, and the failure to leave a host at
// that time is not an error of the store.
func TestVisitAfterDrain(t *testing.T) {
	w, _ := newBroken(t, time.Nanosecond)
	bodies := new(cutBodies)
	w.config.Bodies = bodies
	v := &visit{w: w, claim: store.Claim{Host: "a.test"}, started: true}
	v.ctx, v.cancel = context.WithCancelCause(t.Context())
	v.cancel(nil)
	v.newBody()
	if e := v.keep(&pb.FetchOutcome{BodySummary: &pb.BodySummary{Sha256: "digest"}}); e != nil || bodies.kept != 1 {
		t.Errorf("the body was not kept, after %d calls: %+v", bodies.kept, e)
	}
	if e := v.leaveHost(); e == nil || e.how != giveBackDelayed {
		t.Errorf("leaveHost = %+v, want %v", e, giveBackDelayed)
	}
	if got := w.Stats().Errors; got != 0 {
		t.Errorf("%d errors, want none", got)
	}
}

// A fetch must be sent early enough to end within the lease, and within the reservation of a
// redirect's host.
func TestStartBefore(t *testing.T) {
	now := time.Now()
	rest := defaultTotalTimeout + leaseReserve/2
	for name, tt := range map[string]struct {
		lease, reservation time.Duration
		held               string
		want               time.Duration
	}{
		"own host":                     {lease: 5 * time.Minute, want: 5*time.Minute - rest},
		"reservation ends first":       {5 * time.Minute, 2 * time.Minute, "b.test", 2*time.Minute - rest},
		"lease ends first":             {2 * time.Minute, 5 * time.Minute, "b.test", 2*time.Minute - rest},
		"reservation was given back":   {lease: 5 * time.Minute, reservation: time.Minute, want: 5*time.Minute - rest},
		"reservation is over by now":   {5 * time.Minute, -time.Second, "b.test", -time.Second - rest},
		"both end at once, on a host":  {time.Minute, time.Minute, "b.test", time.Minute - rest},
		"own host, lease over by now":  {lease: -time.Second, want: -time.Second - rest},
		"own host, lease just granted": {lease: rest, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := &visit{w: &Worker{config: Config{TotalTimeout: defaultTotalTimeout}}, held: tt.held,
				until: now.Add(tt.lease), heldUntil: now.Add(tt.reservation)}
			if got := v.startBefore().Sub(now); got != tt.want {
				t.Errorf("startBefore = %v from now, want %v", got, tt.want)
			}
		})
	}
}
