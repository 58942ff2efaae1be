package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// If many rows end at one URL at once, one of them gets it and all are fetched.
func TestManyFinalURLsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		check := serverLog(t)
		const rows = 40
		for i := range rows {
			f.put(fmt.Sprintf("http://h%d.test/", i))
		}
		claims := f.claim(rows)
		stores := []*fixture{f, open(t, f.dsn), open(t, f.dsn)}
		var wg sync.WaitGroup
		for i, c := range claims {
			wg.Go(func() {
				final := fmt.Sprintf("http://final%d.test/", i%2)
				err := stores[i%len(stores)].record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched, FinalURL: final})
				if err != nil {
					t.Errorf("RecordFetch(%s) = %v", c.URL, err)
				}
			})
		}
		wg.Wait()
		for query, want := range map[string]int64{
			`SELECT count(*) FROM urls WHERE status = 'fetched'`:          rows,
			`SELECT count(*) FROM fetches`:                                rows,
			`SELECT count(*) FROM urls WHERE url = 'http://final0.test/'`: 1,
			`SELECT count(*) FROM urls WHERE url = 'http://final1.test/'`: 1,
			`SELECT count(*) FROM hosts WHERE in_flight > 0`:              0,
		} {
			if got := f.number(query); got != want {
				t.Errorf("%s: %d, want %d", query, got, want)
			}
		}
		check()
	})
}

// crawl is a small crawl by several workers on several stores. Some lose leases, and URLs are added
// and hosts delayed meanwhile.
type crawl struct {
	t      *testing.T
	flying sync.Map // host to the number of its fetches
	stale  atomic.Int64
}

const crawlHosts, crawlURLs = 12, 240

func (w *crawl) url(i int) string { return fmt.Sprintf("http://h%d.test/%d", i%crawlHosts, i) }

func (w *crawl) flights(host string) *atomic.Int64 {
	count, _ := w.flying.LoadOrStore(host, new(atomic.Int64))
	return count.(*atomic.Int64) //nolint:errcheck // it holds nothing else
}

func (w *crawl) start(host string) {
	if got := w.flights(host).Add(1); got != 1 {
		w.t.Errorf("%d fetches of %s at once, want 1", got, host)
	}
}

func (w *crawl) end(host string) { w.flights(host).Add(-1) }

// redirect reserves the host for a moment, unless it is in use.
func (w *crawl) redirect(ctx context.Context, f *fixture, host string) error {
	r, err := f.Reserve(ctx, host, time.Minute)
	if err != nil || !r.Granted() {
		return err
	}
	w.start(host)
	w.end(host)
	return f.Settle(ctx, r)
}

// giveUp ends a host's URLs in some rounds, and undoes that in others.
func (w *crawl) giveUp(ctx context.Context, f *fixture, n int) (err error) {
	switch n % 6 {
	case 1:
		_, err = f.AbortHost(ctx, fmt.Sprintf("h%d.test", n/6%crawlHosts), "x", "given up")
	case 2:
		_, err = f.RetryFailed(ctx, "", "", nil)
	}
	return err
}

func (w *crawl) round(f *fixture, n int) error {
	ctx := context.Background()
	if err := f.DelayHosts(ctx, []string{fmt.Sprintf("h%d.test", n%crawlHosts), "h0.test"}); err != nil {
		return err
	}
	if err := w.redirect(ctx, f, fmt.Sprintf("h%d.test", (n+3)%crawlHosts)); err != nil {
		return err
	}
	if err := w.giveUp(ctx, f, n); err != nil {
		return err
	}
	claims, err := f.Claim(ctx, ClaimParams{Limit: 5})
	if err != nil || len(claims) == 0 {
		return err
	}
	var fetches []Fetch
	var leases []Lease
	for i, c := range claims {
		w.start(c.Host)
		// Two redirects lead to one host, and one to a host that others hold.
		id, err := strconv.Atoi(c.URL[len("http://")+len(c.Host)+1:])
		if err != nil {
			return err
		}
		final := fmt.Sprintf("http://h%d.test/f%d", (id/2+5)%crawlHosts, id/2)
		leases = append(leases, c.Lease)
		fetches = append([]Fetch{{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched, FinalURL: final}}, fetches...)
		if i == 0 && n%5 == 0 {
			fetches[0] = Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Failed, ErrorClass: "x"}
		}
	}
	if _, err := f.Extend(ctx, leases, time.Minute); err != nil {
		return err
	}
	// Decrease the counts first, because another worker may claim as soon as the record is written.
	for _, c := range claims {
		w.end(c.Host)
	}
	if n%11 == 0 {
		_, err := f.Abandon(ctx, leases)
		return err
	}
	if n%7 == 0 {
		_, err := f.Release(ctx, leases)
		return err
	}
	each, err := f.RecordFetch(ctx, fetches)
	for _, err := range each {
		if errors.Is(err, ErrStale) {
			w.stale.Add(1)
		}
	}
	return err
}

func TestManyStoresOnOneDatabase(t *testing.T) {
	manyStores := func(t *testing.T, f *fixture) {
		w := &crawl{t: t}
		const workers = 6
		stores := make([]*fixture, workers)
		for i := range stores {
			stores[i] = open(t, f.dsn)
			stores[i].base().delayMS = 0
		}
		check := serverLog(t)
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				var batch []string
				for n := i; n < crawlURLs; n += workers {
					batch = append(batch, w.url(n))
				}
				if _, err := s.Put(context.Background(), Entries(batch...), Limits{}); err != nil {
					t.Errorf("Put = %v", err)
				}
				for n := 0; n < 2000; n++ {
					if err := w.round(s, n+i); err != nil {
						t.Errorf("round %d of worker %d: %v", n, i, err)
						return
					}
					if n%10 != 0 {
						continue
					}
					if _, err := s.Reap(context.Background()); err != nil {
						t.Errorf("Reap = %v", err)
					}
					if done, err := s.Counts(context.Background()); err != nil || done.Fetched == crawlURLs {
						return
					}
				}
			})
		}
		wg.Wait()
		for query, want := range map[string]int64{
			`SELECT count(*) FROM urls WHERE status = 'fetched'`:                                                            crawlURLs,
			`SELECT count(*) FROM fetches WHERE status = 'fetched'`:                                                         crawlURLs,
			`SELECT count(DISTINCT url_id) FROM fetches WHERE status = 'fetched'`:                                           crawlURLs,
			`SELECT count(*) FROM urls WHERE url LIKE '%/f%'`:                                                               crawlURLs / 2,
			`SELECT count(*) FROM hosts WHERE in_flight > 0`:                                                                0,
			`SELECT count(*) FROM urls u JOIN hosts h ON h.id = u.host_id WHERE u.url NOT LIKE 'http://' || h.host || '/%'`: 0,
		} {
			if got := f.number(query); got != want {
				t.Errorf("%s: %d, want %d", query, got, want)
			}
		}
		if n := w.stale.Load(); n != 0 {
			t.Errorf("%d records were stale, want none: no lease expired", n)
		}
		check()
	}
	onBoth(t, manyStores)
	t.Run("pgbouncer", func(t *testing.T) { manyStores(t, open(t, newBouncer(t, newEmpty(t)))) })
}

// Programs that start together on a new database all find it ready.
func TestManyOpenAtOnce(t *testing.T) {
	for name, dsn := range map[string]func(t *testing.T) string{
		"sqlite":    func(t *testing.T) string { return filepath.Join(t.TempDir(), "frontier.db") },
		"postgres":  func(t *testing.T) string { return newPostgres(t) },
		"pgbouncer": func(t *testing.T) string { return newBouncer(t, newPostgres(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := dsn(t)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					r, err := Open(t.Context(), dsn, Config{})
					if err != nil {
						t.Errorf("Open = %v", err)
						return
					}
					r.Close()
				})
			}
			wg.Wait()
		})
	}
}
