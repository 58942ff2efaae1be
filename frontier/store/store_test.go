package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
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
		if claims[0].Host == claims[1].Host {
			t.Errorf("claims = %+v, want one of each host", claims)
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
		must(t, f.SetHost(t.Context(), "a.test", HostParams{Delay: new(delay), CrawlDelay: new(time.Millisecond)}))
		c := f.claim(1)[0]
		pause(t, delay) // does not count, because the fetch has not ended
		end := time.Now()
		f.fetched(c)
		for {
			claims, err := f.Claim(t.Context(), ClaimParams{})
			must(t, err)
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
			must(t, f.SetHost(t.Context(), "a.test", HostParams{Delay: &row.delay, CrawlDelay: &row.crawl}))
			if got := f.why("http://a.test/").Host.Delay; got != row.want {
				t.Errorf("delay %v, crawl delay %v: %v, want %v", row.delay, row.crawl, got, row.want)
			}
		}
	})
}

// A token is larger than those before it. If the database has lost them, it is larger than those that
// were made by then; and if its clock has gone back, it is larger than those that it has.
func TestTokens(t *testing.T) {
	rows := []struct {
		name   string
		stored int64
		next   bool // the token is soon after the stored one
	}{
		{"of a database that has lost all claims", 0, false},
		{"of a clock that was long behind", 7, false},
		{"of a clock that was ahead", 1 << 62, true},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		for _, row := range rows {
			f.exec(`UPDATE urls SET status = 'pending', token = ?`, row.stored)
			f.exec(`UPDATE hosts SET in_flight = 0, due_at = 0`)
			earliest := f.number(`SELECT {now}`) << 20
			got := f.claim(1)[0].Token
			latest := (f.number(`SELECT {now}`) + 1) << 20
			if row.next && (got <= row.stored || got >= row.stored+2<<20) || !row.next && (got < earliest || got >= latest) {
				t.Errorf("%s: token %d, want one between %d and %d, or after %d: %v", row.name, got, earliest, latest, row.stored, row.next)
			}
		}
	})
}

// A claim takes the highest priority of a host that is ready, and of its URLs the one that has waited longest.
func TestPriority(t *testing.T) {
	type url struct {
		path     string
		priority int
		ready    time.Duration // from now
	}
	rows := []struct {
		name  string
		urls  []url
		limit int      // of the claim
		room  int      // of the host
		want  []string // in this order, one claim after the other
		due   time.Duration
	}{
		{"equal ones in the order of the put", []url{{"a", 0, 0}, {"b", 0, 0}, {"c", 0, 0}}, 1, 3, []string{"a", "b", "c"}, -1},
		{"the highest first", []url{{"a", -100, 0}, {"b", 0, 0}, {"c", 100, 0}, {"d", 1, 0}}, 1, 4, []string{"c", "d", "b", "a"}, -1},
		{"the longest wait first", []url{{"a", 0, -1 * time.Hour}, {"b", 0, -2 * time.Hour}, {"c", 5, -time.Minute}}, 1, 3, []string{"c", "b", "a"}, -1},
		{"a high one that is not ready does not stop the others", []url{{"a", 0, 0}, {"b", 9, 2 * time.Hour}, {"c", 5, time.Hour}, {"d", 3, 0}}, 1, 4, []string{"d", "a"}, time.Hour},
		{"the first that will be ready is of a low priority", []url{{"a", 0, time.Hour}, {"b", 9, 2 * time.Hour}}, 1, 4, nil, time.Hour},
		{"several in one claim", []url{{"a", 0, 0}, {"b", 2, 0}, {"c", 2, time.Hour}, {"d", 1, 0}, {"e", 2, 0}}, 10, 10, []string{"b", "e", "d", "a"}, time.Hour},
		{"no more than the host may have", []url{{"a", 0, 0}, {"b", 2, 0}, {"c", 2, time.Hour}, {"d", 1, 0}}, 10, 2, []string{"b", "d"}, -1},
		{"no more than the limit", []url{{"a", 0, 0}, {"b", 2, 0}, {"c", 2, time.Hour}, {"d", 1, 0}}, 2, 9, []string{"b", "d", "a"}, time.Hour},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				for _, u := range row.urls {
					if _, err := f.Put(t.Context(), []Entry{{URL: "http://a.test/" + u.path, Priority: u.priority}}, Limits{}); err != nil {
						t.Fatal(err)
					}
					f.exec(`UPDATE urls SET ready_at = {now} + ? WHERE url = ?`, u.ready.Milliseconds(), "http://a.test/"+u.path)
				}
				must(t, f.SetHost(t.Context(), "a.test", HostParams{MaxInFlight: &row.room}))
				var got []string
				for {
					claims, err := f.Claim(t.Context(), ClaimParams{Limit: row.limit})
					must(t, err)
					if len(claims) == 0 {
						break
					}
					slices.SortFunc(claims, func(a, b Claim) int { // one claim has no order
						return cmp.Or(b.Priority-a.Priority, int(a.ID-b.ID))
					})
					for _, c := range claims {
						got = append(got, strings.TrimPrefix(c.URL, "http://a.test/"))
					}
				}
				if !slices.Equal(got, row.want) {
					t.Errorf("claimed %q, want %q", got, row.want)
				}
				due := time.Duration(f.number(`SELECT COALESCE(due_at - {now}, -1) FROM hosts`)) * time.Millisecond
				if due = max(-1, due.Round(time.Minute)); row.due == -1 && due > 0 || row.due != -1 && due != row.due {
					t.Errorf("the host is due in %v, want %v", due, row.due)
				}
			})
		})
	}
}

// A claim shares its limit among the hosts that are due.
func TestClaimShares(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		for n := range 20 {
			f.put(fmt.Sprintf("http://hot.test/%d", n), fmt.Sprintf("http://warm.test/%d", n))
		}
		f.put("http://a.test/1", "http://a.test/2", "http://b.test/1")
		for host, n := range map[string]int{"hot.test": 100, "warm.test": 3} {
			must(t, f.SetHost(t.Context(), host, HostParams{MaxInFlight: &n}))
		}
		claims, err := f.Claim(t.Context(), ClaimParams{Limit: 12})
		got := make(map[string]int)
		for _, c := range claims {
			got[c.Host]++
		}
		if want := map[string]int{"hot.test": 7, "warm.test": 3, "a.test": 1, "b.test": 1}; err != nil || !maps.Equal(got, want) {
			t.Errorf("Claim = %v, %v, want %v", got, err, want)
		}
		for host, n := range got {
			if flying := f.number(`SELECT in_flight FROM hosts WHERE host = '` + host + `'`); flying != int64(n) {
				t.Errorf("%s has %d in flight, want %d", host, flying, n)
			}
		}
	})
}

func TestMaxInFlight(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1", "http://a.test/2", "http://a.test/3")
		must(t, f.SetHost(t.Context(), "a.test", HostParams{MaxInFlight: new(2)}))
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
		if fresh.CrashCount != 1 || fresh.FailureCount != 0 || fresh.Token <= old.Token {
			t.Errorf("claim = %+v, want one crash, no failure, a later token", fresh)
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
