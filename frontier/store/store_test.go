package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"fetchd/frontier/normal"
)

func TestPut(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		r := f.put("http://A.test/x#f", "no url", "http://a.test/x", "http://b.test/")
		if r.Added != 2 || r.Known != 1 || len(r.Bad) != 1 || r.Bad[0].Index != 1 {
			t.Errorf("Put = %+v, want 2 added, 1 known, entry 1 bad", r)
		}
		if r := f.put("http://a.test/x"); r.Added != 0 || r.Known != 1 {
			t.Errorf("second Put = %+v, want 1 known", r)
		}
		if r := f.put(); r.Added+r.Known != 0 {
			t.Errorf("Put() = %+v, want nothing", r)
		}
		if _, err := f.Why(t.Context(), "http://c.test/"); !errors.Is(err, ErrUnknownURL) {
			t.Errorf("Why of an unknown URL = %v, want ErrUnknownURL", err)
		}
	})
}

// A host that is too long for an index of PostgreSQL is a bad URL, and does not affect the others.
func TestPutSkipsTooLongHosts(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var long strings.Builder
		for i := range uint64(1000) {
			fmt.Fprintf(&long, "%x.", i*0x9e3779b97f4a7c15) // nothing that compresses well
		}
		r := f.put("http://a.test/", "http://"+long.String()[:7000]+"x.test/", "http://b.test/")
		if r.Added != 2 || len(r.Bad) != 1 || r.Bad[0].Index != 1 || !errors.Is(r.Bad[0].Err, normal.ErrHost) {
			t.Errorf("Put = %+v, want 2 added, entry 1 bad for its host", r)
		}
	})
}

// A host whose last URL was claimed is not due until a put changes that.
func TestPutWakesAParkedHost(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1")
		f.fetched(f.claim(1)[0])
		f.openHosts()
		f.claim(0)
		if n := f.number(`SELECT count(*) FROM hosts WHERE due_at IS NOT NULL`); n != 0 {
			t.Errorf("%d hosts are due with nothing to fetch, want 0", n)
		}
		f.put("http://a.test/1")
		f.claim(0)
		f.put("http://a.test/2")
		f.claim(1)
	})
}

func TestClaimTakesHostsNotURLs(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1", "http://a.test/2", "http://b.test/1", "http://a.test/3")
		claims := f.claim(2)
		if claims[0].Host == claims[1].Host || claims[0].Token != 1 {
			t.Errorf("claims = %+v, want one of each host with token 1", claims)
		}
		f.claim(0) // both hosts have a fetch in flight
		f.fetched(claims[0])
		f.claim(0) // and then a delay
		f.openHosts()
		if got := f.claim(1)[0]; got.Host != "a.test" || got.URL != "http://a.test/2" {
			t.Errorf("claim = %+v, want the next of a.test: b.test has a fetch in flight", got)
		}
	})
}

func TestClaimKeepsToItsLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/", "http://c.test/")
		for _, want := range []int{2, 1, 0} {
			if got, err := f.Claim(t.Context(), ClaimParams{Limit: 2}); err != nil || len(got) != want {
				t.Errorf("Claim = %v, %v, want %d", got, err, want)
			}
		}
	})
}

func TestHostOpensAtEndPlusDelay(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const delay = 150 * time.Millisecond
		f.put("http://a.test/1", "http://a.test/2")
		if err := f.SetHost(t.Context(), "a.test", HostParams{Delay: new(delay), CrawlDelay: new(time.Millisecond)}); err != nil {
			t.Fatalf("SetHost = %v", err)
		}
		c := f.claim(1)[0]
		pause(t, delay) // does not count, because the fetch has not ended
		end := time.Now()
		f.fetched(c)
		for {
			claims, err := f.Claim(t.Context(), ClaimParams{})
			if err != nil {
				t.Fatalf("Claim = %v", err)
			}
			if len(claims) == 0 {
				pause(t, time.Millisecond)
				continue
			}
			if got := time.Since(end); got < delay {
				t.Errorf("claimed %v after the end, want %v at least", got, delay)
			}
			return
		}
	})
}

func TestCrawlDelayCountsIfLarger(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		for _, row := range []struct{ delay, crawl, want time.Duration }{
			{-1, 0, time.Hour}, {-1, 2 * time.Hour, 2 * time.Hour}, {time.Second, time.Minute, time.Minute}, {time.Minute, time.Second, time.Minute}, {0, 0, 0},
		} {
			if err := f.SetHost(t.Context(), "a.test", HostParams{Delay: &row.delay, CrawlDelay: &row.crawl}); err != nil {
				t.Fatalf("SetHost = %v", err)
			}
			if got := f.why("http://a.test/").Host.Delay; got != row.want {
				t.Errorf("delay %v, crawl delay %v: %v, want %v", row.delay, row.crawl, got, row.want)
			}
		}
	})
}

func TestMaxInFlight(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1", "http://a.test/2", "http://a.test/3")
		if err := f.SetHost(t.Context(), "a.test", HostParams{MaxInFlight: new(2)}); err != nil {
			t.Fatalf("SetHost = %v", err)
		}
		c := f.claim(2)
		f.claim(0)
		f.fetched(c[0])
		f.openHosts()
		f.claim(1)
	})
}

func TestStaleRecordIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		old := f.claim(1)[0]
		f.expire()
		if n, err := f.Reap(t.Context()); n != 1 || err != nil {
			t.Fatalf("Reap = %d, %v, want 1", n, err)
		}
		params := FetchedParams{Token: old.Token}
		if err := f.record(Fetch{ID: old.ID, FetchedParams: params, Status: Fetched}); !errors.Is(err, ErrStale) {
			t.Errorf("record after the reap = %v, want ErrStale", err)
		}
		f.openHosts()
		fresh := f.claim(1)[0]
		if fresh.CrashCount != 1 || fresh.FailureCount != 0 || fresh.Token != old.Token+1 {
			t.Errorf("claim = %+v, want one crash, no failure, the next token", fresh)
		}
		if err := f.record(Fetch{ID: old.ID, FetchedParams: params, Status: Fetched}); !errors.Is(err, ErrStale) {
			t.Errorf("record with the old token = %v, want ErrStale", err)
		}
		both := []Lease{old.Lease, fresh.Lease}
		if held, err := f.Extend(t.Context(), both, time.Hour); len(held) != 1 || held[0] != fresh.Lease || err != nil {
			t.Errorf("Extend(old, fresh) = %v, %v, want fresh", held, err)
		}
		if held, err := f.Extend(t.Context(), []Lease{old.Lease}, time.Hour); len(held) != 0 || err != nil {
			t.Errorf("Extend(old) = %v, %v, want none", held, err)
		}
		if held, err := f.Release(t.Context(), []Lease{old.Lease}); len(held) != 0 || err != nil {
			t.Errorf("Release(old) = %v, %v, want none", held, err)
		}
		f.fetched(fresh)
		if err := f.record(Fetch{ID: fresh.ID, FetchedParams: FetchedParams{Token: fresh.Token}, Status: Fetched}); !errors.Is(err, ErrStale) {
			t.Errorf("second record = %v, want ErrStale", err)
		}
		if u := f.url("http://a.test/"); u.CrashCount != 1 || u.RetryCount != 0 || u.FailureCount != 0 {
			t.Errorf("URL = %+v, want one crash and no retry", u)
		}
		if n := f.number(`SELECT count(*) FROM fetches`); n != 1 {
			t.Errorf("%d fetches were recorded, want 1", n)
		}
	})
}

func TestLeases(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/")
		c := f.claim(2)
		f.expire()
		if held, err := f.Extend(t.Context(), []Lease{c[0].Lease}, time.Hour); len(held) != 1 || err != nil {
			t.Fatalf("Extend = %v, %v, want one", held, err)
		}
		if n, err := f.Reap(t.Context()); n != 1 || err != nil {
			t.Errorf("Reap = %d, %v, want 1: the other was extended", n, err)
		}
		if held, err := f.Release(t.Context(), []Lease{c[0].Lease}); len(held) != 1 || err != nil {
			t.Errorf("Release = %v, %v, want one", held, err)
		}
		if got := f.claim(1)[0]; got.URL != c[0].URL || got.CrashCount != 0 {
			t.Errorf("claim = %+v, want the released URL at once; the reaped one's host waits", got)
		}
	})
}

func TestAbandon(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/", "http://c.test/")
		c := f.claim(3)
		f.fetched(c[1])
		stale := Lease{ID: c[2].ID, Token: c[2].Token + 1}
		leases := []Lease{c[1].Lease, stale, c[0].Lease}
		for i, want := range []int{1, 0} {
			held, err := f.Abandon(t.Context(), leases)
			if err != nil || len(held) != want || want == 1 && held[0] != c[0].Lease {
				t.Errorf("call %d: Abandon(recorded, stale, held) = %v, %v, want %d", i, held, err, want)
			}
		}
		if u := f.url("http://a.test/"); u.Status != Pending || u.CrashCount != 1 || u.FailureCount != 0 || u.Worker != "" || !u.LeaseUntil.IsZero() {
			t.Errorf("abandoned = %+v, want pending with one crash and no lease", u)
		}
		if u := f.url("http://b.test/"); u.Status != Fetched || u.CrashCount != 0 {
			t.Errorf("recorded = %+v, want as it was", u)
		}
		if u := f.url("http://c.test/"); u.Status != Fetching || u.CrashCount != 0 {
			t.Errorf("held by another = %+v, want as it was", u)
		}
		f.wantNext("a.test", time.Hour)
		if err := f.record(Fetch{ID: c[0].ID, FetchedParams: FetchedParams{Token: c[0].Token}, Status: Fetched}); !errors.Is(err, ErrStale) {
			t.Errorf("record of an abandoned lease = %v, want ErrStale", err)
		}
		f.claim(0)
		f.openHosts()
		if got := f.claim(1)[0]; got.ID != c[0].ID || got.CrashCount != 1 {
			t.Errorf("claim = %+v, want the abandoned URL", got)
		}
	})
}

func TestLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		want := func(when string, want bool) {
			t.Helper()
			if left, err := f.Left(t.Context()); left != want || err != nil {
				t.Errorf("%s: Left = %v, %v, want %v", when, left, err, want)
			}
		}
		want("empty", false)
		f.put("http://a.test/", "http://b.test/")
		want("two pending", true)
		for _, row := range []struct {
			a, b Status
			want bool
		}{
			{Pending, Fetched, true}, {Fetching, Fetched, true}, {Failed, Dead, true}, {Dead, Fetching, true},
			{Fetched, Fetched, false}, {Dead, Fetched, false}, {Dead, Dead, false},
		} {
			f.exec(`UPDATE urls SET status = CASE WHEN url LIKE '%a.test%' THEN ? ELSE ? END`, row.a, row.b)
			want(fmt.Sprintf("one %s, one %s", row.a, row.b), row.want)
		}
	})
}
