package frontier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
)

var errEnough = errors.New("enough")

// TestDrain checks that fetches in flight end and no new one starts.
func TestDrain(t *testing.T) {
	t.Parallel()
	const hosts = 10
	page, release := heldPage()
	defer release()
	r := newRig(t, time.Millisecond, site.Config{Page: page})
	for h := range hosts {
		r.add(r.site.URL(fmt.Sprintf("h%d", h), "/x/1"), r.site.URL(fmt.Sprintf("h%d", h), "/p/2"))
	}
	w := r.worker()
	stop := r.start(w)
	r.awaitVisits(hosts)
	stop(release)
	counts, err := r.store.Counts(t.Context())
	if err != nil || counts.Fetched != hosts || counts.Pending != hosts || counts.Fetching != 0 || counts.HostsInFlight != 0 {
		t.Errorf("%+v, %v; want %d fetched and as many pending", counts, err, hosts)
	}
	if stats := w.Stats(); stats.Completed != hosts || stats.Open != 0 || stats.Lost+stats.Stale+stats.Errors != 0 || r.site.Count() != hosts {
		t.Errorf("%+v, %d requests; want those in flight to end, and no other", stats, r.site.Count())
	}
}

// heldPage returns a page whose requests are answered after release is called.
func heldPage() (page func(host, target string) site.Page, release func()) {
	held := make(chan struct{})
	page = func(string, string) site.Page {
		<-held
		return site.Page{Type: html, Body: "page"}
	}
	return page, sync.OnceFunc(func() { close(held) })
}

// TestDrainCancels checks that fetches are cancelled after DrainTime.
func TestDrainCancels(t *testing.T) {
	t.Parallel()
	const hosts = 10
	r := newRig(t, time.Hour, site.Config{})
	r.config.DrainTime = time.Millisecond
	var slow []string
	for h := range hosts {
		slow = append(slow, r.site.URL(fmt.Sprintf("h%d", h), "/slow/3600000/1"))
	}
	r.add(slow...)
	w := r.worker()
	stop := r.start(w)
	r.awaitVisits(hosts)
	stop()
	for _, u := range slow {
		e, err := r.store.Why(t.Context(), u)
		if err != nil || e.URL.Status != store.Pending || e.URL.CrashCount != 0 || e.URL.FailureCount != 0 || e.Host.InFlight != 0 {
			t.Errorf("%+v, %v; want it pending and nothing counted", e, err)
		}
		if !e.Host.NextAt.After(e.Now) {
			t.Errorf("%s opens at %v, and now is %v: it was asked, so its delay counts", e.URL.Host, e.Host.NextAt, e.Now)
		}
	}
	if stats := w.Stats(); stats != (Stats{}) || len(r.recorded()) != 0 {
		t.Errorf("%+v, %v; want nothing counted and nothing recorded", stats, r.recorded())
	}
	for f, err := range r.store.Fetches(t.Context()) {
		t.Errorf("%+v, %v; want none", f, err)
	}
}

// TestDrainBeforeStart checks that URLs which were claimed but not fetched are given back at once,
// as if they had never been claimed.
func TestDrainBeforeStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Hour, site.Config{})
	u := r.site.URL("a", "/p/1")
	r.add(u)
	w := r.worker()
	ctx, cancel := context.WithCancelCause(t.Context())
	w.store = claimThen{r.store, func() { cancel(errEnough) }}
	if err := w.Run(ctx); !errors.Is(err, errEnough) {
		t.Errorf("Run = %v, want what ended it", err)
	}
	e, err := r.store.Why(t.Context(), u)
	if err != nil || e.URL.Status != store.Pending || e.URL.CrashCount != 0 || e.Host.InFlight != 0 || e.Host.NextAt.After(e.Now) {
		t.Errorf("%+v, %v; want it pending and its host open", e, err)
	}
	if n := r.site.Count(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
	if again := r.claimOne(); again.URL != u {
		t.Errorf("claimed %s, want %s", again.URL, u)
	}
}

// claimThen is a store that calls a function after each claim. The claim itself is not cancelled.
type claimThen struct {
	store.Store
	then func()
}

func (s claimThen) Claim(ctx context.Context, params store.ClaimParams) ([]store.Claim, error) {
	claims, err := s.Store.Claim(ctx, params)
	s.then()
	return claims, errors.Join(err, ctx.Err())
}

// TestDrainWhileWaiting checks that a visit that waits for a redirect's host gives its URL back,
// and does not touch that host.
func TestDrainWhileWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	to := r.site.URL("b", "/p/3")
	must(t, r.store.Block(t.Context(), normal.HostOf(to), 20*time.Second))
	from := r.site.URL("a", redirectTo(302, to))
	r.add(from)
	w := r.worker()
	stop := r.start(w)
	r.awaitVisits(1)
	stop()
	if got := r.row(from); got.Status != store.Pending || got.CrashCount != 0 || r.site.Count() != 1 || len(r.recorded()) != 0 {
		t.Errorf("%+v, %d requests; want it pending after one", got, r.site.Count())
	}
}

// TestDrainDuringBackoff checks that a worker that waits because bodies cannot be stored ends at
// once.
func TestDrainDuringBackoff(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	r.add(r.site.URL("a", "/p/1"))
	w := r.worker()
	for range 5 {
		w.backoff.failed()
		w.backoff.until = time.Time{}
	}
	w.backoff.failed()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	started := time.Now()
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want it cancelled", err)
	}
	if took := time.Since(started); took > 5*time.Second || r.site.Count() != 0 {
		t.Errorf("it took %v and %d requests", took, r.site.Count())
	}
}

// TestCleanStopIsSilent stops workers with robots.txt, redirects and long bodies in flight, some of which
// are cancelled. That is no reason for a warning.
func TestCleanStopIsSilent(t *testing.T) {
	t.Parallel()
	const hosts = 12
	for _, row := range []struct {
		name     string
		requests int // before the stop
		drain    time.Duration
	}{
		{"at once", 0, time.Minute},
		{"at the first robots.txt", 1, time.Minute},
		{"between", hosts, time.Minute},
		{"in the middle", 3 * hosts, time.Minute},
		{"near the end", 5 * hosts, time.Minute},
		{"at once, cancelled", 0, time.Millisecond},
		{"at the first robots.txt, cancelled", 1, time.Millisecond},
		{"between, cancelled", hosts, time.Millisecond},
		{"in the middle, cancelled", 3 * hosts, time.Millisecond},
		{"near the end, cancelled", 5 * hosts, time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, time.Millisecond, site.Config{})
			var log bytes.Buffer
			r.config.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			r.config.IgnoreRobots, r.config.Bodies, r.config.DrainTime = false, &shelf{empty: true}, row.drain
			r.config.Endless = true // it may have fetched everything before the stop
			for h := range hosts {
				host, next := fmt.Sprintf("h%d", h), fmt.Sprintf("h%d", (h+1)%hosts)
				r.add(r.site.URL(host, fmt.Sprintf("/s/long%d/200:size=1500000,drip=100000@10ms", h)),
					r.site.URL(host, redirectTo(302, r.site.URL(next, "/p/1"))), r.site.URL(host, "/slow/30/2"), r.site.URL(host, "/p/3"))
			}
			stop := r.start(r.worker())
			r.awaitVisits(row.requests)
			stop()
			if log.Len() > 0 {
				t.Errorf("the log is not empty:\n%s", log.String())
			}
		})
	}
}
