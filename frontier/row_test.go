package frontier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
)

// rowRig is a rig with pages of one host without a delay. The page /x/5 calls at, and is slow enough that the store is
// asked before the next one.
func rowRig(t *testing.T, pages int, at func(r *rig, host string)) (_ *rig, host string, most *atomic.Int64) {
	t.Helper()
	var r *rig
	var open atomic.Int64
	most = new(atomic.Int64)
	r = newRig(t, store.NoDelay, site.Config{Page: func(_, target string) site.Page {
		n := open.Add(1)
		defer open.Add(-1)
		most.Store(max(most.Load(), n)) // one at a time, if the test succeeds
		if target == "/x/5" && at != nil {
			at(r, host)
			sleep(t.Context(), 2*goOnEvery)
		}
		return site.Page{Type: "text/plain", Body: target}
	}})
	host = normal.HostOf(r.site.URL("a", "/"))
	for n := range pages {
		r.add(r.site.URL("a", fmt.Sprintf("/x/%d", n)))
	}
	return r, host, most
}

// countingStore counts transactions.
type countingStore struct {
	store.Store
	claims, records atomic.Int64
}

func (s *countingStore) Claim(ctx context.Context, params store.ClaimParams) ([]store.Claim, error) {
	claims, err := s.Store.Claim(ctx, params)
	if len(claims) > 0 {
		s.claims.Add(1)
	}
	return claims, err
}

func (s *countingStore) RecordFetch(ctx context.Context, fetches []store.Fetch) ([]error, error) {
	s.records.Add(1)
	return s.Store.RecordFetch(ctx, fetches)
}

// TestRow checks that the pages of a host are fetched one after the other and in their order, and that they are claimed
// and recorded together.
func TestRow(t *testing.T) {
	t.Parallel()
	const pages = 100
	r, _, most := rowRig(t, pages, nil)
	counting := &countingStore{Store: r.store}
	r.store = counting
	if s := r.crawl(); s != (Stats{Completed: pages, Bytes: s.Bytes}) {
		t.Errorf("%+v, want %d pages", s, pages)
	}
	paths := r.paths()
	for i, p := range paths {
		if want := fmt.Sprintf("a.demo.test/x/%d", i); p != want {
			t.Errorf("request %d was for %s, want %s", i, p, want)
		}
	}
	if len(paths) != pages || most.Load() != 1 {
		t.Errorf("%d requests, up to %d at once; want %d, 1 at once", len(paths), most.Load(), pages)
	}
	if c, n := counting.claims.Load(), counting.records.Load(); c >= pages || n > pages { // how few, depends on the machine
		t.Errorf("%d claims and %d transactions with outcomes for %d pages", c, n, pages)
	}
}

// TestRowEnds checks what stops the fetches of URLs that are claimed already: those that were not started are pending
// again, or what has stopped them applies to them too.
func TestRowEnds(t *testing.T) {
	t.Parallel()
	const pages = 20
	for _, row := range []struct {
		name   string
		fifth  string // another page in place of /x/5
		at     func(r *rig, host string)
		policy func(p *Policy)
		done   int64 // pages that have ended; the others are pending
		dead   int64
	}{
		{name: "a pause of the host", at: func(r *rig, host string) { must(r, r.store.Pause(r.Context(), host)) }, done: 6},
		{name: "a pause of the crawl", at: func(r *rig, _ string) { must(r, r.store.Pause(r.Context(), "")) }, done: 6},
		{name: "a longer delay", at: func(r *rig, host string) {
			must(r, r.store.SetHost(r.Context(), host, store.HostParams{Delay: new(time.Hour)}))
		}, done: 6},
		{name: "a block", at: func(r *rig, host string) { must(r, r.store.Block(r.Context(), host, time.Hour)) }, done: 6},
		{name: "a 429", fifth: "/s/row429/429", done: 6},
		{name: "a failure that aborts the host", fifth: "/missing", policy: func(p *Policy) { p.On = map[string]Action{"http_client_error": AbortHost} }, done: pages, dead: pages - 5},
		{name: "a ban by another worker", at: func(r *rig, host string) {
			var aborted atomic.Bool
			go func() {
				defer aborted.Store(true)
				if _, err := r.store.AbortHost(r.Context(), host, ClassHostAborted, "test"); err != nil {
					r.Errorf("AbortHost = %v", err)
				}
			}()
			// AbortHost closes no host of which nothing is claimed ahead any more.
			r.await("the host is closed or aborted", func() bool {
				e, err := r.store.Why(r.Context(), r.site.URL("a", "/x/5"))
				return aborted.Load() || err == nil && e.Host.NextAt.After(e.Now.Add(100*time.Millisecond))
			})
		}, done: pages, dead: pages - 6},
		{name: "a slow page", at: func(r *rig, _ string) {
			r.awaitCounts("one URL in flight", func(c store.Counts) bool { return c.Fetching == 1 })
			must(r, r.store.Pause(r.Context(), ""))
		}, done: 6},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, _, _ := rowRig(t, 0, row.at)
			r.T = t
			for n := range pages {
				path := fmt.Sprintf("/x/%d", n)
				if n == 5 && row.fifth != "" {
					path = row.fifth
				}
				r.add(r.site.URL("a", path))
			}
			if row.policy != nil {
				row.policy(&r.config.Policy)
			}
			r.config.Endless = true
			stop := r.start(r.worker())
			settled := func(c store.Counts) bool {
				ended := c.Fetched + c.Failed + c.Dead
				return ended == row.done && c.Fetching == 0 && c.Dead == row.dead
			}
			r.awaitCounts("the row ends", settled)
			sleep(t.Context(), 3*lastPoll) // nothing more is fetched
			stop()
			r.awaitCounts("nothing more", settled)
			if n := int64(r.site.Count()); n > 6 {
				t.Errorf("%d requests, want 6", n)
			}
		})
	}
}

// TestRowDrained checks that a worker which is ended gives back what it has claimed.
func TestRowDrained(t *testing.T) {
	t.Parallel()
	var stop context.CancelCauseFunc
	r, _, _ := rowRig(t, 20, func(*rig, string) { stop(errEnough) })
	ctx, cancel := context.WithCancelCause(t.Context())
	stop = cancel
	if err := <-r.run(ctx, r.worker()); !errors.Is(err, errEnough) {
		t.Errorf("Run = %v, want what ended it", err)
	}
	c, err := r.store.Counts(t.Context())
	if must(t, err); c.Fetched != 6 || c.Pending != 14 {
		t.Errorf("%+v, want 6 fetched and 14 pending", c)
	}
}
