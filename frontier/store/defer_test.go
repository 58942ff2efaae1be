package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fetchd/frontier/store/database"
)

// claimed claims at most limit URLs after every delay and block has ended, and returns their paths in order. The
// URLs are given back.
func (f *fixture) claimed(limit int) string {
	f.t.Helper()
	f.openHosts()
	claims, err := f.Claim(context.Background(), ClaimParams{Limit: limit})
	must(f.t, err)
	var leases []Lease
	var urls []string
	for _, c := range claims {
		leases, urls = append(leases, c.Lease), append(urls, strings.TrimPrefix(c.URL, "http"))
	}
	if _, err := f.Release(context.Background(), leases); err != nil {
		f.t.Fatalf("Release = %v", err)
	}
	slices.Sort(urls)
	return strings.Join(urls, " ")
}

func (f *fixture) deferOrigin(origin string, d time.Duration) {
	f.t.Helper()
	must(f.t, f.Defer(context.Background(), origin, d))
}

// TestDefer checks which URLs of a host a claim returns while an origin is deferred, with one fetch at a time and
// with many.
func TestDefer(t *testing.T) {
	for _, row := range []struct {
		name     string
		held     []string
		one, all string // what a claim of one host returns
	}{
		{"nothing", nil, "s://a.test/first", "://a.test/1 ://a.test/2 s://a.test/3 s://a.test/first"},
		{"https", []string{"https://a.test"}, "://a.test/1", "://a.test/1 ://a.test/2"},
		{"http", []string{"http://a.test"}, "s://a.test/first", "s://a.test/3 s://a.test/first"},
		{"both", []string{"http://a.test", "https://a.test"}, "", ""},
		{"another host", []string{"http://b.test", "https://b.test"}, "s://a.test/first", "://a.test/1 ://a.test/2 s://a.test/3 s://a.test/first"},
		{"another port", []string{"https://a.test:8443"}, "s://a.test/first", "://a.test/1 ://a.test/2 s://a.test/3 s://a.test/first"},
		{"an unknown host", []string{"https://c.test"}, "s://a.test/first", "://a.test/1 ://a.test/2 s://a.test/3 s://a.test/first"},
	} {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				entries := Entries("https://a.test/first", "http://a.test/1", "http://a.test/2", "https://a.test/3")
				entries[0].Priority = 1
				if _, err := f.Put(t.Context(), entries, Limits{}); err != nil {
					t.Fatal(err)
				}
				for _, origin := range row.held {
					f.deferOrigin(origin, time.Hour)
				}
				if got := f.claimed(100); got != row.one {
					t.Errorf("one at a time: %q, want %q", got, row.one)
				}
				must(t, f.SetHost(t.Context(), "a.test", HostParams{MaxInFlight: new(10)}))
				if got := f.claimed(100); got != row.all {
					t.Errorf("many at a time: %q, want %q", got, row.all)
				}
				if got := strings.Count(f.claimed(2), "a.test"); got != min(2, strings.Count(row.all, "a.test")) {
					t.Errorf("%d URLs of a claim of two", got)
				}
				for _, u := range []string{"http://a.test/1", "https://a.test/3"} {
					held := slices.ContainsFunc(row.held, func(origin string) bool { return strings.HasPrefix(u, origin+"/") })
					e := f.why(u)
					if got := e.Deferred.Sub(e.Now).Round(time.Minute); held && got != time.Hour || !held && !e.Deferred.IsZero() {
						t.Errorf("%s is deferred until %v, want held: %v", u, e.Deferred, held)
					}
				}
			})
		})
	}
}

// TestDeferralEnds checks what ends a deferral, and that the host is then due.
func TestDeferralEnds(t *testing.T) {
	const origin = "https://a.test"
	for _, row := range []struct {
		name string
		end  func(f *fixture) error
		ends bool
	}{
		{"its time", func(f *fixture) error {
			f.exec(`UPDATE hosts SET https_deferred_until = {now} - 1, due_at = {now} - 1`)
			return nil
		}, true},
		{"an answer", func(f *fixture) error {
			return f.SaveRobots(f.t.Context(), Robots{Origin: origin, Status: 404})
		}, true},
		{"an answer of the other origin", func(f *fixture) error {
			return f.SaveRobots(f.t.Context(), Robots{Origin: "http://a.test", Status: 404})
		}, false},
		{"another failure", func(f *fixture) error {
			return f.SaveRobots(f.t.Context(), Robots{Origin: origin, ErrorClass: "connect_refused", Unreachable: true})
		}, false},
		{"a refresh", func(f *fixture) error {
			_, err := f.RefreshRobots(f.t.Context(), []string{"http://b.test", origin})
			return err
		}, true},
		{"a shorter deferral", func(f *fixture) error { return f.Defer(f.t.Context(), origin, time.Millisecond) }, false},
		{"a retry of what it has ended", func(f *fixture) error {
			f.exec(`UPDATE urls SET status = 'dead', error_class = 'robots_unreachable', last_error = 'robots_unreachable: x' WHERE url = 'https://a.test/2'`)
			_, err := f.RetryFailed(f.t.Context(), "robots_unreachable", "", nil)
			return err
		}, true},
		{"a retry of what failed otherwise", func(f *fixture) error {
			f.exec(`UPDATE urls SET status = 'dead', error_class = 'forbidden', last_error = 'forbidden' WHERE url = 'https://a.test/2'`)
			_, err := f.RetryFailed(f.t.Context(), "forbidden", "", nil)
			return err
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.put("https://a.test/1", "https://a.test/2", "http://b.test/")
				must(t, f.SaveRobots(t.Context(), Robots{Origin: origin, ErrorClass: "connect_refused", Unreachable: true}))
				f.deferOrigin(origin, time.Hour)
				f.claim(1) // that of b.test, after which a.test is not due before the end
				must(t, row.end(f))
				want := 0
				if row.ends {
					want = 1
				}
				f.claim(want)
				if held := !f.why("https://a.test/1").Deferred.IsZero(); held == row.ends {
					t.Errorf("deferred: %v, want %v", held, !row.ends)
				}
			})
		})
	}
}

// TestDeferralSetsWhenDue checks that a claim looks at a host once while its URLs are deferred, and again at the end.
func TestDeferralSetsWhenDue(t *testing.T) {
	for _, row := range []struct {
		name        string
		http, https time.Duration
		want        time.Duration // until the host is due; zero if not while no URL comes
	}{
		{"none is waiting otherwise", 0, 20 * time.Minute, 20 * time.Minute},
		{"the first of two", 10 * time.Minute, 20 * time.Minute, 10 * time.Minute},
		{"the first of two, the other way", 30 * time.Minute, 20 * time.Minute, 20 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.put("https://a.test/1", "https://a.test/2")
				for origin, d := range map[string]time.Duration{"http://a.test": row.http, "https://a.test": row.https} {
					if d > 0 {
						f.deferOrigin(origin, d)
					}
				}
				f.claim(0)
				if got := time.Duration(f.number(`SELECT due_at - {now} FROM hosts`)) * time.Millisecond; got.Round(time.Minute) != row.want {
					t.Errorf("due in %v, want %v", got, row.want)
				}
				if n := f.number(`SELECT count(*) FROM hosts WHERE due_at <= {now}`); n != 0 {
					t.Errorf("%d hosts are due, want none", n)
				}
			})
		})
	}
}

// TestDeferralCost checks that a claim looks at few rows while an origin has very many that are deferred, whatever the
// statistics say.
func TestDeferralCost(t *testing.T) {
	const rows = 20_000
	for _, row := range []struct{ name, many, few, held string }{
		{"https is deferred", "https", "http", "https://a.test"},
		{"http is deferred", "http", "https", "http://a.test"},
	} {
		for _, few := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the other origin has URLs: %v", row.name, few), func(t *testing.T) {
				onBoth(t, func(t *testing.T, f *fixture) {
					f.exec(`INSERT INTO hosts (host, due_at) VALUES ('a.test', 0)`)
					f.exec(`WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < ?)
						INSERT INTO urls (host_id, url, url_hash) SELECT 1, CAST(? AS TEXT) || '://a.test/' || n, CAST(CAST(n AS TEXT) AS `+f.blob()+`) FROM g`, rows, row.many)
					if few {
						f.put(row.few + "://a.test/")
					}
					f.deferOrigin(row.held, time.Hour)
					f.exec(`ANALYZE`)
					want := ""
					if few {
						want = strings.TrimPrefix(row.few+"://a.test/", "http")
					}
					for range 3 { // PostgreSQL plans for the values at first
						looked := f.looked(func() {
							if got := f.claimed(100); got != want {
								t.Errorf("claimed %q, want %q", got, want)
							}
						})
						if looked > 50 {
							t.Errorf("a claim looked at %d rows, want few", looked)
						}
					}
				})
			})
		}
	}
}

// blob is the type of url_hash.
func (f *fixture) blob() string {
	if strings.HasPrefix(f.dsn, "postgres:") {
		return "BYTEA"
	}
	return "BLOB"
}

// looked returns how many rows and index entries of urls a claim reads. SQLite does not count them, so there it
// checks that the search uses the index of origins, without sorting, and returns 0.
func (f *fixture) looked(claim func()) int64 {
	f.t.Helper()
	if f.blob() == "BLOB" {
		claim()
		for _, h := range []deferrals{{1 << 62, 0}, {0, 1 << 62}} {
			rows, err := f.db().Query(`EXPLAIN QUERY PLAN SELECT priority, ready_at`+h.waiting(1)+`< ?2 ORDER BY priority DESC, ready_at, id LIMIT 1`, 1, 101)
			plan, err := collect(rows, err, func(detail *string) []any { return []any{new(int), new(int), new(int), detail} })
			if err != nil || len(plan) != 1 || !strings.Contains(plan[0], "urls_origin (host_id=? AND <expr>=? AND priority<?)") {
				f.t.Errorf("plan %q, %v, want the index of origins", plan, err)
			}
		}
		return 0
	}
	read := func() int64 {
		return f.number(`SELECT (SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'urls')
			+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'urls')::bigint`)
	}
	flush := func() { f.exec(`SELECT pg_stat_force_next_flush()`) }
	f.base().db.SetMaxOpenConns(1)
	defer f.base().db.SetMaxOpenConns(cmp.Or(0, database.PostgresConnections))
	flush()
	before := read()
	claim()
	flush()
	return read() - before
}

// TestWaits checks what URLs count as waiting for: the first of their reasons.
func TestWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var urls []string
		for n, host := range []string{"turn", "paused", "held", "blocked", "later", "flying", "delayed"} {
			for i := range n + 1 {
				urls = append(urls, fmt.Sprintf("https://%s.test/%d", host, i))
			}
		}
		f.put(append(urls, "http://held.test/")...)
		f.deferOrigin("https://held.test", time.Hour)
		f.exec(`UPDATE hosts SET blocked_until = {now} + 100000 WHERE host IN ('paused.test', 'held.test', 'blocked.test')`)
		f.exec(`UPDATE hosts SET paused = TRUE WHERE host = 'paused.test'`)
		f.exec(`UPDATE hosts SET in_flight = 1 WHERE host IN ('paused.test', 'flying.test')`)
		f.exec(`UPDATE hosts SET next_at = {now} + 100000 WHERE host IN ('flying.test', 'delayed.test', 'later.test')`)
		f.exec(`UPDATE urls SET ready_at = {now} + 100000 WHERE url LIKE '%later%'`)
		want := Waits{Turn: 1, HostPaused: 2, RobotsUnreachable: 3, HostBlocked: 4 + 1, BackingOff: 5, HostInFlight: 6, HostDelay: 7}
		got, err := f.Counts(t.Context())
		if err != nil || got.Waits != want || got.OriginsDeferred != 1 {
			t.Errorf("Counts = %+v, %v, want %+v and one origin", got, err, want)
		}
		must(t, f.Pause(t.Context(), ""))
		want = Waits{CrawlPaused: 29}
		if got, err = f.Counts(t.Context()); err != nil || got.Waits != want {
			t.Errorf("Counts of a paused crawl = %+v, %v, want %+v", got, err, want)
		}
		sum := int64(0)
		for _, w := range got.Waits.List() {
			sum += w.URLs
		}
		if sum != got.Pending+got.Failed {
			t.Errorf("the sum is %d, want %d", sum, got.Pending+got.Failed)
		}
	})
}
