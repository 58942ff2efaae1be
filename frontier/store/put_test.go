package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// putLimited adds entries for paths such as "a/1": a URL of a.test.
func (f *fixture) putLimited(limits Limits, paths ...string) PutResult {
	f.t.Helper()
	var entries []Entry
	for _, p := range paths {
		host, path, _ := strings.Cut(p, "/")
		entries = append(entries, Entry{URL: "http://" + host + ".test/" + path})
	}
	r, err := f.Put(f.t.Context(), entries, limits)
	if err != nil {
		f.t.Fatalf("Put(%q, %+v) = %v", paths, limits, err)
	}
	return r
}

// wantURLCounts fails the test if a number of URLs that is known is not right.
func (f *fixture) wantURLCounts() {
	f.t.Helper()
	for query, want := range map[string]int64{
		`SELECT count(*) FROM hosts h WHERE url_count <> (SELECT count(*) FROM urls u WHERE u.host_id = h.id)`:             0,
		`SELECT count(*) FROM settings WHERE name = 'url_count' AND CAST(value AS INTEGER) <> (SELECT count(*) FROM urls)`: 0,
	} {
		if got := f.number(query); got != want {
			f.t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}

// TestPutOverLimitAddsNoHost checks that links that are left out do not make the frontier grow.
func TestPutOverLimitAddsNoHost(t *testing.T) {
	for _, limits := range []Limits{{URLs: 1}, {URLs: 1, URLsPerHost: 1}} {
		t.Run(fmt.Sprint(limits), func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.put("http://a.test/")
				got, err := f.Put(t.Context(), Entries("http://b.test/", "http://a.test/", "http://c.test/", "http://c.test/2"), limits)
				if err != nil || got.Over != 3 || got.Known != 1 {
					t.Errorf("Put = %+v, %v; want 3 over the limit and 1 that is known", got, err)
				}
				if n := f.number(`SELECT count(*) FROM hosts`); n != 1 {
					t.Errorf("%d hosts, want only that of the URL", n)
				}
			})
		})
	}
}

func TestPutLimits(t *testing.T) {
	rows := []struct {
		name   string
		before string // paths that are put first, without limits
		limits Limits
		put    string
		want   PutResult
		has    string // paths that exist in the end
	}{
		{"no limits", "", Limits{}, "a/1 a/2 b/1", PutResult{Added: 3}, "a/1 a/2 b/1"},
		{"of all", "", Limits{URLs: 2}, "a/1 b/1 c/1 d/1", PutResult{Added: 2, Over: 2}, "a/1 b/1"},
		{"of all, with those that exist", "z/1", Limits{URLs: 2}, "a/1 b/1 c/1", PutResult{Added: 1, Over: 2}, "z/1 a/1"},
		{"of all, exceeded before", "x/1 y/1 z/1", Limits{URLs: 2}, "a/1 x/1", PutResult{Known: 1, Over: 1}, "x/1 y/1 z/1"},
		{"of a host", "", Limits{URLsPerHost: 2}, "a/1 a/2 b/1 a/3 b/2", PutResult{Added: 4, OverHost: 1}, "a/1 a/2 b/1 b/2"},
		{"of a host, with those that exist", "a/0", Limits{URLsPerHost: 2}, "a/1 a/2 b/1", PutResult{Added: 2, OverHost: 1}, "a/0 a/1 b/1"},
		{"a URL that exists is not over", "a/1 a/2", Limits{URLs: 2, URLsPerHost: 1}, "a/1 a/2 a/1", PutResult{Known: 3}, "a/1 a/2"},
		{"a URL twice counts once", "", Limits{URLs: 2, URLsPerHost: 2}, "a/1 a/1 a/2 a/1", PutResult{Added: 2, Known: 2}, "a/1 a/2"},
		{"both, that of the host first", "", Limits{URLs: 3, URLsPerHost: 1}, "a/1 a/2 b/1 c/1 d/1", PutResult{Added: 3, Over: 1, OverHost: 1}, "a/1 b/1 c/1"},
		{"both, a URL over that of the host uses none of all", "", Limits{URLs: 2, URLsPerHost: 1}, "a/1 a/2 a/3 b/1", PutResult{Added: 2, OverHost: 2}, "a/1 b/1"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.putLimited(Limits{}, strings.Fields(row.before)...)
				got := f.putLimited(row.limits, strings.Fields(row.put)...)
				got.hosts = 0 // PutRequisites counts them
				if fmt.Sprint(got) != fmt.Sprint(row.want) {
					t.Errorf("Put = %+v, want %+v", got, row.want)
				}
				has := strings.Fields(row.has)
				if n := f.number(`SELECT count(*) FROM urls`); n != int64(len(has)) {
					t.Errorf("%d URLs, want %q", n, has)
				}
				for _, p := range has {
					host, path, _ := strings.Cut(p, "/")
					f.url("http://" + host + ".test/" + path)
				}
				f.wantURLCounts()
				f.putLimited(Limits{}, "a/x", "new/1") // keeps the numbers although it has no limit
				f.wantURLCounts()
				if n := f.number(`SELECT count(*) FROM hosts WHERE due_at IS NULL AND id IN (SELECT host_id FROM urls)`); n != 0 {
					t.Errorf("%d hosts with URLs are not due", n)
				}
			})
		})
	}
}

// Puts with and without limits at once on several stores do not exceed the limits.
func TestManyPutsKeepLimits(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const all, perHost, workers = 300, 40, 4
		limits := Limits{URLs: all, URLsPerHost: perHost}
		var wg sync.WaitGroup
		for w := range workers {
			s := open(t, f.dsn)
			wg.Go(func() {
				for n := range 20 {
					var entries []Entry
					for i := range 20 {
						entries = append(entries, Entry{URL: fmt.Sprintf("http://h%d.test/%d", (i*7+w)%13, n*20+i)})
					}
					with := limits
					if w == 0 && n < 5 {
						with = Limits{}
					}
					if _, err := s.Put(t.Context(), entries, with); err != nil {
						t.Errorf("Put = %v", err)
					}
				}
			})
		}
		wg.Wait()
		f.wantURLCounts()
		if n := f.number(`SELECT count(*) FROM urls`); n < all || n > all+100 {
			t.Errorf("%d URLs, want %d, or a few more that were put without a limit", n, all)
		}
		if n := f.number(`SELECT count(*) FROM hosts WHERE url_count > 60`); n != 0 {
			t.Errorf("%d hosts have too many URLs", n)
		}
	})
}

// A URL that moves to another host is counted there.
func TestURLCountsOfRedirects(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.putLimited(Limits{URLs: 100, URLsPerHost: 100}, "a/1", "b/1", "c/1", "d/1", "e/1")
		finals := map[string]string{"a.test": "http://b.test/2", "b.test": "http://b.test/3", "c.test": "http://new.test/", "d.test": "http://new.test/", "e.test": "http://a.test/1"}
		var fetches []Fetch
		for _, c := range f.claim(5) {
			fetches = append(fetches, Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched, FinalURL: finals[c.Host]})
		}
		each, err := f.RecordFetch(t.Context(), fetches)
		for _, e := range append(each, err) {
			if e != nil {
				t.Fatalf("RecordFetch = %v, %v", each, err)
			}
		}
		f.wantURLCounts()
		if f.url("http://b.test/2").Host != "b.test" || f.url("http://b.test/3").Host != "b.test" || f.url("http://new.test/").Host != "new.test" {
			t.Error("a row has another host than its URL")
		}
	})
}

// A put of a known URL changes its depth if that is smaller, and what a sitemap says may make it due.
func TestPutOfAKnownURL(t *testing.T) {
	const ago, ahead = -time.Minute, time.Minute
	rows := []struct {
		name          string
		status        Status
		recrawl       time.Duration // from now until it is due; zero means never
		depth, old    int
		changed       time.Duration // from now; zero means unknown
		wantDepth     int
		wantDue       bool
		fetchedBefore time.Duration
	}{
		{"nothing new", Fetched, time.Hour, 3, 3, 0, 3, false, time.Hour},
		{"a larger depth", Fetched, time.Hour, 4, 3, 0, 3, false, time.Hour},
		{"a smaller depth", Fetched, time.Hour, 2, 3, 0, 2, false, time.Hour},
		{"a smaller depth of a URL in flight", Fetching, 0, 2, 3, 0, 2, false, time.Hour},
		{"changed since", Fetched, time.Hour, 3, 3, ago, 3, true, time.Hour},
		{"changed since, and nearer", Fetched, time.Hour, 1, 3, ago, 1, true, time.Hour},
		{"changed before", Fetched, time.Hour, 3, 3, ago, 3, false, time.Second},
		{"changed in the future", Fetched, time.Hour, 3, 3, ahead, 3, false, time.Hour},
		{"changed, but never due", Fetched, 0, 3, 3, ago, 3, false, time.Hour},
		{"changed, but dead", Dead, time.Hour, 3, 3, ago, 3, false, time.Hour},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		for n, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				f := f.in(t)
				u := fmt.Sprintf("http://a.test/%d", n)
				if _, err := f.Put(t.Context(), []Entry{{URL: u, Depth: row.old}}, Limits{}); err != nil {
					t.Fatal(err)
				}
				f.exec(`UPDATE urls SET status = ?, fetched_at = {now} - ?, recrawl_at = 0 WHERE url = ?`,
					row.status, row.fetchedBefore.Milliseconds(), u)
				if row.recrawl > 0 {
					f.exec(`UPDATE urls SET recrawl_at = {now} + ? WHERE url = ?`, row.recrawl.Milliseconds(), u)
				}
				e := Entry{URL: u, Depth: row.depth}
				if row.changed != 0 {
					e.Changed = time.Now().Add(row.changed)
				}
				r, err := f.Put(t.Context(), []Entry{{URL: u, Depth: 99}, e}, Limits{})
				if err != nil || r.Known != 2 {
					t.Fatalf("Put = %+v, %v, want the URL known twice", r, err)
				}
				if got := f.number(`SELECT depth FROM urls WHERE url = '` + u + `'`); got != int64(row.wantDepth) {
					t.Errorf("depth = %d, want %d", got, row.wantDepth)
				}
				n, err := f.Recrawl(t.Context())
				if (n == 1) != row.wantDue || err != nil {
					t.Errorf("Recrawl = %d, %v, want the URL due: %v", n, err, row.wantDue)
				}
			})
		}
	})
}

// A put changes the row of a host only if a claim would come too late.
func TestPutUpdatesOnlyHostsThatSleep(t *testing.T) {
	rows := []struct {
		name, set string
		changed   bool
	}{
		{"due", `UPDATE hosts SET due_at = 0`, false},
		{"due when it opens", `UPDATE hosts SET next_at = {now} + 3600000, due_at = {now} + 3600000`, false},
		{"due later", `UPDATE hosts SET due_at = {now} + 3600000`, true},
		{"due later than it opens", `UPDATE hosts SET next_at = {now} + 1000, due_at = {now} + 3600000`, true},
		{"asleep", `UPDATE hosts SET due_at = NULL`, true},
		{"busy", `UPDATE hosts SET due_at = NULL, in_flight = 1`, false},
		{"with capacity", `UPDATE hosts SET due_at = NULL, in_flight = 1, max_in_flight = 2`, true},
		{"paused", `UPDATE hosts SET due_at = NULL, paused = TRUE`, false},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		for n, row := range rows {
			f.exec(`UPDATE hosts SET next_at = 0, in_flight = 0, max_in_flight = 1, paused = FALSE`)
			f.exec(row.set)
			const state = `SELECT COALESCE(due_at, -1) FROM hosts`
			before := f.number(state)
			f.put("http://a.test/") // is known
			if after := f.number(state); after != before {
				t.Errorf("%s: a known URL changes due_at from %d to %d", row.name, before, after)
			}
			f.put(fmt.Sprintf("http://a.test/%d", n))
			if after := f.number(state); (after != before) != row.changed || row.changed && after != f.number(`SELECT next_at FROM hosts`) {
				t.Errorf("%s: due_at was %d and is %d, want it changed: %v", row.name, before, after, row.changed)
			}
		}
	})
}

// A link that was not fetched yet becomes a sitemap if one is put with its URL. A page that a user gave,
// or that was fetched, stays one.
func TestPutSitemapAfterLink(t *testing.T) {
	for _, row := range []struct {
		name       string
		first, put Entry
		status     Status
		want       Kind
	}{
		{"a link", Entry{Depth: 1}, Entry{Kind: Sitemap}, Pending, Sitemap},
		{"a link whose visit reads the robots.txt", Entry{Depth: 1}, Entry{Kind: Sitemap}, Fetching, Sitemap},
		{"a link, by an index", Entry{Depth: 1}, Entry{Kind: Sitemap, Depth: 2}, Pending, Sitemap},
		{"a URL of a user", Entry{}, Entry{Kind: Sitemap}, Pending, Page},
		{"a link that was fetched", Entry{Depth: 1}, Entry{Kind: Sitemap}, Fetched, Page},
		{"a sitemap that is linked", Entry{Kind: Sitemap, Depth: 1}, Entry{Depth: 0}, Pending, Sitemap},
	} {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				row.first.URL, row.put.URL = "http://a.test/", "http://a.test/"
				if _, err := f.Put(t.Context(), []Entry{row.first}, Limits{}); err != nil {
					t.Fatal(err)
				}
				if row.status != Pending {
					c := f.claim(1)[0]
					if row.status == Fetched {
						f.fetched(c)
					}
				}
				if r, err := f.Put(t.Context(), []Entry{row.put}, Limits{}); err != nil || r.Known != 1 {
					t.Errorf("Put = %+v, %v", r, err)
				}
				if got := f.number(`SELECT kind FROM urls`); got != int64(row.want) {
					t.Errorf("kind %d, want %d", got, row.want)
				}
			})
		})
	}
}
