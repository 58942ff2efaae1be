package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
)

func TestFailed(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/")
		f.exec(`UPDATE urls SET crash_count = 3`)
		for _, c := range f.claim(2) {
			status := Failed
			if c.Host == "b.test" {
				status = Dead
			}
			f.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, Attempts: 3}, Status: status,
				ErrorClass: "dns", LastError: "dns: bad \x00\xff", RetryIn: time.Hour})
		}
		a, b := f.url("http://a.test/"), f.url("http://b.test/")
		if a.Status != Failed || a.FailureCount != 1 || a.RetryCount != 2 || a.ErrorClass != "dns" || a.LastError != "dns: bad \uFFFD\uFFFD" {
			t.Errorf("a = %+v, want failed once after 2 retries", a)
		}
		if b.Status != Dead {
			t.Errorf("b = %+v, want dead", b)
		}
		f.openHosts()
		f.claim(0) // a waits for its backoff
		if n, err := f.RetryFailed(t.Context(), "tls", "", nil); n != 0 || err != nil {
			t.Errorf("RetryFailed(tls) = %d, %v, want 0", n, err)
		}
		if n, err := f.RetryFailed(t.Context(), "dns", "", nil); n != 2 || err != nil {
			t.Errorf("RetryFailed(dns) = %d, %v, want 2", n, err)
		}
		if c := f.claim(2); c[0].FailureCount != 0 || c[0].CrashCount != 0 {
			t.Errorf("claim = %+v, want failures and crashes forgotten", c[0])
		}
	})
}

func TestFinalURL(t *testing.T) {
	rows := []struct{ name, final, url string }{
		{"same after normalisation", "HTTP://a.test:80/1#x", "http://a.test/1"},
		{"another row has it", "http://b.test/", "http://a.test/1"},
		{"nobody has it", "http://c.test/new", "http://c.test/new"},
		{"a session id more", "http://a.test/1?sid=" + strings.Repeat("0", 32), "http://a.test/1?sid=" + strings.Repeat("0", 32)},
		{"nobody has it, same host", "http://a.test/new", "http://a.test/new"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.put("http://a.test/1", "http://b.test/")
				c := f.claim(2)[0]
				params := FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1, ETag: `"e"`}
				f.mustRecord(Fetch{ID: c.ID, FetchedParams: params, Status: Fetched, FinalURL: row.final})
				u := f.url(row.url)
				want, err := normalise(row.url, false)
				if err != nil {
					t.Fatalf("normalise(%s) = %v", row.url, err)
				}
				if u.ID != c.ID || u.URL != row.url || u.Host != want.Host || u.Status != Fetched {
					t.Errorf("final URL %s: row %+v, want id %d with %s, fetched", row.final, u, c.ID, row.url)
				}
				if n := f.number(`SELECT in_flight FROM hosts WHERE host = 'a.test'`); n != 0 {
					t.Errorf("%d in flight at the host that was claimed, want 0", n)
				}
			})
		})
	}
}

func TestInvalidFinalURLRecordsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		c := f.claim(1)[0]
		err := f.record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched, FinalURL: "ftp://x/"})
		if err == nil || errors.Is(err, ErrStale) {
			t.Errorf("RecordFetch(ftp) = %v, want an error about the URL", err)
		}
		if u := f.url("http://a.test/"); u.Status != Fetching {
			t.Errorf("status = %s, want fetching", u.Status)
		}
		if _, err := f.RecordFetch(t.Context(), []Fetch{{ID: c.ID, Status: Pending}}); err != nil {
			t.Errorf("RecordFetch(pending) = %v, want the fault at its entry", err)
		}
		f.fetched(c)
	})
}

// The violation of any other constraint is an error, and the fetch is not recorded.
func TestOnlyTheHashDecidesWhoOwnsAURL(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.exec(`CREATE UNIQUE INDEX other ON urls (lower(url))`)
		f.put("http://a.test/", "http://b.test/x")
		c := f.claim(2)[0]
		if err := f.record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched, FinalURL: "http://b.test/X"}); err == nil {
			t.Errorf("RecordFetch = nil, want the violation of another constraint")
		}
		if u := f.url("http://a.test/"); u.Status != Fetching {
			t.Errorf("status = %s, want fetching: nothing was recorded", u.Status)
		}
	})
}

func TestRecordABatch(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/", "http://c.test/")
		c := f.claim(3)
		each, err := f.RecordFetch(t.Context(), []Fetch{
			{ID: c[0].ID, FetchedParams: FetchedParams{Token: c[0].Token}, Status: Fetched, FinalURL: "http://d.test/"},
			{ID: c[1].ID, FetchedParams: FetchedParams{Token: c[1].Token}, Status: Fetched, FinalURL: "http://d.test/"},
			{ID: c[1].ID, FetchedParams: FetchedParams{Token: c[1].Token}, Status: Fetched},
			{ID: c[2].ID, FetchedParams: FetchedParams{Token: 7}, Status: Fetched},
		})
		if err != nil || each[0] != nil || each[1] != nil || !errors.Is(each[2], ErrStale) || !errors.Is(each[3], ErrStale) {
			t.Fatalf("RecordFetch = %v, %v, want two recorded, two stale", each, err)
		}
		n := 0
		for u, err := range f.URLs(t.Context()) {
			if err != nil {
				t.Fatalf("URLs: %v", err)
			}
			if u.URL == "http://d.test/" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d rows have the final URL, want 1", n)
		}
	})
}

// A worker that was stopped can claim a URL again before it records its earlier, late outcome.
// The recorder may put both into one batch.
func TestRecordALateFetchAndTheNextOne(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, row := range []struct {
			name, url string
			order     [2]int // of the claims
		}{
			{"late one first", "http://a.test/", [2]int{0, 1}},
			{"late one last", "http://b.test/", [2]int{1, 0}},
		} {
			t.Run(row.name, func(t *testing.T) {
				f := f.in(t)
				f.put(row.url)
				claims := f.claim(1)
				f.expire()
				if n, err := f.Reap(t.Context()); n != 1 || err != nil {
					t.Fatalf("Reap = %d, %v, want 1", n, err)
				}
				f.openHosts()
				claims = append(claims, f.claim(1)...)
				var batch []Fetch
				for _, i := range row.order {
					batch = append(batch, Fetch{ID: claims[i].ID, FetchedParams: FetchedParams{Token: claims[i].Token, HTTPStatus: 200 + i}, Status: Fetched})
				}
				each, err := f.RecordFetch(t.Context(), batch)
				must(t, err)
				for place, i := range row.order {
					if late := i == 0; errors.Is(each[place], ErrStale) != late || (each[place] == nil) == late {
						t.Errorf("claim %d: %v, want only that of the late one to be stale", i+1, each[place])
					}
				}
				if u := f.url(row.url); u.Status != Fetched || u.HTTPStatus != 201 {
					t.Errorf("row %+v, want it fetched by the second claim", u)
				}
			})
		}
	})
}

func TestRowOfAFetch(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		c := f.claim(1)[0]
		archived := Archived{File: "fetchd-1.warc.gz", Offset: 1 << 40, Length: 7, RecordID: "urn:1", Date: "2026-01-01T00:00:00.123456789Z", PayloadDigest: "sha1:A"}
		content := Content{ContentType: "text/html", Charset: "utf-8", Headers: `{"Server":["a\\u0000","b"]}`}
		f.mustRecord(Fetch{ID: c.ID, Status: Fetched, FinalURL: "http://a.test/z", FetchedParams: FetchedParams{
			Token: c.Token, HTTPStatus: 203, Attempts: 3, Duration: 2 * time.Second, Wait: time.Second, Bytes: 9, BodyDigest: "d", Content: content, Archived: archived,
		}})
		for got, err := range f.Fetches(t.Context()) {
			if err != nil {
				t.Fatalf("Fetches: %v", err)
			}
			got.ID, got.EndedAt = 0, time.Time{}
			want := FetchRow{URL: "http://a.test/", FinalURL: "http://a.test/z", Status: Fetched, HTTPStatus: 203, Attempts: 3,
				RetryCount: 2, Duration: 2 * time.Second, Wait: time.Second, Bytes: 9, BodyDigest: "d", Content: content, Archived: archived}
			if got != want {
				t.Errorf("fetch = %+v, want %+v", got, want)
			}
		}
	})
}

// A fetch without requests does not delay its host, and changes no other column.
func TestHostIsChargedForRequestsOnly(t *testing.T) {
	rows := []struct {
		name     string
		attempts []int
		next     time.Duration // of the host before, from now; zero means long ago
		want     time.Duration // after
	}{
		{"nothing sent", []int{0}, 0, 0},
		{"nothing sent, charged meanwhile", []int{0}, 2 * time.Hour, 2 * time.Hour},
		{"a request", []int{1}, 0, time.Hour},
		{"a request, charged for longer", []int{3}, 2 * time.Hour, 2 * time.Hour},
		{"one of two", []int{0, 1}, 0, time.Hour},
		{"one of two, in the other order", []int{1, 0}, 0, time.Hour},
		{"none of two", []int{0, 0}, 0, 0},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1", "http://a.test/2", "http://a.test/3")
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				f := f.in(t)
				f.openHosts()
				f.exec(`UPDATE urls SET status = 'pending', ready_at = 0`)
				must(t, f.SetHost(t.Context(), "a.test", HostParams{MaxInFlight: new(len(row.attempts))}))
				fetches := make([]Fetch, len(row.attempts))
				for i, c := range f.claim(len(row.attempts)) {
					params := FetchedParams{Token: c.Token, Attempts: row.attempts[i]}
					fetches[i] = Fetch{ID: c.ID, FetchedParams: params, Status: Failed, RetryIn: time.Hour}
				}
				if row.next > 0 {
					f.exec(`UPDATE hosts SET next_at = {now} + ?`, millis(row.next))
				}
				if each, err := f.RecordFetch(t.Context(), fetches); err != nil || each[0] != nil {
					t.Fatalf("RecordFetch = %v, %v", each, err)
				}
				f.wantNext("a.test", row.want)
				want := 0
				if row.want == 0 {
					want = 1
				}
				f.claim(want)
				f.exec(`UPDATE hosts SET in_flight = 0`)
			})
		}
	})
}

func TestCharge(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		must(t, f.DelayHosts(t.Context(), []string{"a.test", "new.test"}))
		f.put("http://a.test/", "http://new.test/")
		f.claim(0)
		if e := f.why("http://new.test/"); e.Host.NextAt.Sub(e.Now) < 50*time.Minute {
			t.Errorf("next at %v, now %v, want an hour", e.Host.NextAt, e.Now)
		}
		f.openHosts()
		f.claim(2)
	})
}

func TestBlock(t *testing.T) {
	rows := []struct {
		name         string
		level, until time.Duration // before, as from now
		retryAfter   time.Duration
		want         time.Duration
	}{
		{"first", 0, -time.Hour, 0, time.Minute},
		{"doubles", time.Minute, -time.Minute, 0, 2 * time.Minute},
		{"doubles still just before it is forgiven", time.Hour, -29 * time.Minute, 0, 2 * time.Hour},
		{"forgiven", time.Hour, -31 * time.Minute, 0, time.Minute},
		{"no longer than a day", 20 * time.Hour, -time.Minute, 0, 24 * time.Hour},
		{"one cause, one block", time.Hour, 30 * time.Minute, 0, 30 * time.Minute},
		{"Retry-After", time.Hour, -time.Minute, 7 * time.Minute, 7 * time.Minute},
		{"Retry-After does not shorten", time.Hour, 30 * time.Minute, time.Minute, 30 * time.Minute},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		for _, row := range rows {
			f.exec(`UPDATE hosts SET due_at = 0, block_ms = ?, blocked_until = {now} + ?`, millis(row.level), row.until.Milliseconds())
			must(t, f.Block(t.Context(), "a.test", row.retryAfter))
			e := f.why("http://a.test/")
			if got := e.Host.BlockedUntil.Sub(e.Now).Round(10 * time.Second); got != row.want {
				t.Errorf("%s: blocked for %v, want %v", row.name, got, row.want)
			}
			f.claim(0)
		}
		f.openHosts()
		f.claim(1)
	})
}

func TestPauseAndResume(t *testing.T) {
	for _, host := range []string{"", "a.test"} {
		t.Run("host="+host, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.put("http://a.test/")
				must(t, f.Pause(t.Context(), host))
				f.claim(0)
				f.put("http://a.test/2")
				f.claim(0)
				e := f.why("http://a.test/")
				if e.Paused != (host == "") || e.Host.Paused == (host == "") {
					t.Errorf("Why = %+v, want what was paused", e)
				}
				must(t, f.Resume(t.Context(), host))
				f.claim(1)
			})
		})
	}
}

func TestKnows(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		must(t, f.Pause(t.Context(), "paused.test"))
		must(t, f.Resume(t.Context(), "resumed.test"))
		for host, want := range map[string]bool{"a.test": true, "paused.test": true, "resumed.test": false, "test": false, "": false, "a.test:81": false} {
			if known, err := f.Knows(t.Context(), host); known != want || err != nil {
				t.Errorf("Knows(%q) = %v, %v, want %v", host, known, err, want)
			}
		}
	})
}

// TestOtherPorts finds the hosts that differ from another one in their port alone.
func TestOtherPorts(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://a.test:81/", "http://[2001:db8::1]:81/", "http://a.test.b.test/")
		for host, want := range map[string]string{"a.test": "[a.test:81]", "a.test:82": "[a.test a.test:81]", "[2001:db8::1]": "[[2001:db8::1]:81]", "test": "[]", "b.test:81": "[]"} {
			if got, err := f.OtherPorts(t.Context(), host); fmt.Sprint(got) != want || err != nil {
				t.Errorf("OtherPorts(%q) = %v, %v, want %s", host, got, err, want)
			}
		}
	})
}

// TestLeaveHosts opens a host before its fetch has ended. The end of the fetch must not count for
// the host again.
func TestLeaveHosts(t *testing.T) {
	type end func(f *fixture, c Claim)
	ends := map[string]end{
		"recorded": func(f *fixture, c Claim) { f.fetched(c) },
		"released": func(f *fixture, c Claim) {
			if held, err := f.Release(context.Background(), []Lease{c.Lease}); err != nil || len(held) != 1 {
				f.t.Errorf("Release = %v, %v", held, err)
			}
		},
		"abandoned": func(f *fixture, c Claim) {
			if held, err := f.Abandon(context.Background(), []Lease{c.Lease}); err != nil || len(held) != 1 {
				f.t.Errorf("Abandon = %v, %v", held, err)
			}
		},
		"reaped": func(f *fixture, c Claim) {
			f.exec(`UPDATE urls SET lease_until = 1 WHERE id = ?`, c.ID)
			if n, err := f.Reap(context.Background()); err != nil || n != 1 {
				f.t.Errorf("Reap = %d, %v", n, err)
			}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				f.put("http://a.test/1", "http://a.test/2", "http://a.test/3")
				first := f.claim(1)[0]
				if left, err := f.LeaveHosts(t.Context(), []Lease{first.Lease, {ID: first.ID, Token: 99}}); err != nil || len(left) != 1 || left[0] != first.Lease {
					t.Fatalf("LeaveHosts = %v, %v, want the lease that is held", left, err)
				}
				if again, err := f.LeaveHosts(t.Context(), []Lease{first.Lease}); err != nil || len(again) != 0 {
					t.Errorf("LeaveHosts again = %v, %v, want none", again, err)
				}
				f.claim(0) // its delay has started
				f.openHosts()
				second := f.claim(1)[0]
				if n := f.number(`SELECT in_flight FROM hosts`); n != 1 {
					t.Errorf("%d in flight, want the second", n)
				}
				end(f, first)
				if n := f.number(`SELECT in_flight FROM hosts`); n != 1 {
					t.Errorf("%d in flight after the first has ended, want the second still", n)
				}
				f.fetched(second)
				if n := f.number(`SELECT in_flight FROM hosts`); n != 0 {
					t.Errorf("%d in flight in the end", n)
				}
				f.openHosts()
				f.claim(1) // a claim after it holds its host again
				if n := f.number(`SELECT in_flight FROM hosts`); n != 1 {
					t.Errorf("%d in flight after another claim", n)
				}
			})
		})
	}
}

// TestRefetch checks that it takes only URLs that were fetched long enough ago.
func TestRefetch(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/", "http://c.test/", "http://d.test/")
		claims := f.claim(4)
		for _, c := range claims[:2] {
			f.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1, ETag: `"x"`}, Status: Fetched})
		}
		f.mustRecord(Fetch{ID: claims[2].ID, FetchedParams: FetchedParams{Token: claims[2].Token, Attempts: 1}, Status: Dead, LastError: "x"})
		f.exec(`UPDATE urls SET fetched_at = fetched_at - 3600000 WHERE id = ?`, claims[0].ID)
		if n, err := f.Refetch(t.Context(), time.Hour, "", nil); err != nil || n != 1 {
			t.Fatalf("Refetch = %d, %v, want the URL that is an hour old", n, err)
		}
		f.openHosts()
		again := f.claim(1)
		if again[0].ID != claims[0].ID || again[0].ETag != `"x"` {
			t.Errorf("claimed %+v, want %+v with its validator", again[0], claims[0])
		}
	})
}

// TestAgainOfOneHost makes only the URLs of one host pending, and forgets only its robots.txt.
func TestAgainOfOneHost(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, host := range []string{"a.test", "b.test"} {
			f.put("http://"+host+"/fetched", "http://"+host+"/dead", "http://"+host+"/forbidden")
			must(t, f.SaveRobots(t.Context(), Robots{Origin: "http://" + host, Status: 200}))
		}
		for range 3 {
			f.openHosts()
			for _, c := range f.claim(2) {
				fetch := Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, Attempts: 1}, Status: Dead, ErrorClass: "dns_not_found"}
				switch {
				case strings.HasSuffix(c.URL, "/fetched"):
					fetch.Status, fetch.ErrorClass = Fetched, ""
				case strings.HasSuffix(c.URL, "/forbidden"):
					fetch.ErrorClass, fetch.LastError = "robots_disallowed", "robots_disallowed: line 2"
				}
				f.mustRecord(fetch)
			}
		}
		for _, step := range []struct {
			name  string
			again func() (int64, error)
			want  int64
		}{
			{"fetched, of an unknown host", func() (int64, error) { return f.Refetch(t.Context(), 0, "c.test", nil) }, 0},
			{"fetched", func() (int64, error) { return f.Refetch(t.Context(), 0, "a.test", nil) }, 1},
			{"a class", func() (int64, error) { return f.RetryFailed(t.Context(), "dns_not_found", "a.test", nil) }, 1},
			{"any class", func() (int64, error) { return f.RetryFailed(t.Context(), "", "a.test", nil) }, 1},
			{"any class again", func() (int64, error) { return f.RetryFailed(t.Context(), "", "a.test", nil) }, 0},
		} {
			if n, err := step.again(); n != step.want || err != nil {
				t.Errorf("%s: %d, %v; want %d", step.name, n, err, step.want)
			}
		}
		for url, want := range map[string]Status{"http://a.test/fetched": Pending, "http://a.test/dead": Pending, "http://a.test/forbidden": Pending,
			"http://b.test/fetched": Fetched, "http://b.test/dead": Dead, "http://b.test/forbidden": Dead} {
			if got := f.url(url).Status; got != want {
				t.Errorf("%s is %s, want %s", url, got, want)
			}
		}
		if a, b := f.robots("http://a.test"), f.robots("http://b.test"); !a.Forgotten || b.Forgotten {
			t.Errorf("robots.txt of a.test is forgotten: %v, of b.test: %v; want only the first", a.Forgotten, b.Forgotten)
		}
	})
}

// A success replaces the stored validators; any other outcome keeps them.
func TestValidators(t *testing.T) {
	type told struct {
		etag, modified, digest string
		earlier                Earlier
	}
	old := told{`"old"`, "Mon", "d1", Earlier{"urn:1", "http://a.test/", "2026-01-01T00:00:00.1Z", "sha1:A"}}
	fresh, none := told{`"new"`, "Tue", "d2", Earlier{"urn:2", "http://a.test/2", "2026-01-02T00:00:00Z", "sha1:B"}}, told{}
	rows := []struct {
		name   string
		status Status
		http   int
		tells  told
		want   told
	}{
		{"200 with all", Fetched, 200, fresh, fresh},
		{"200 with none", Fetched, 200, none, none},
		{"200 with an ETag alone", Fetched, 200, told{etag: `"new"`}, told{etag: `"new"`}},
		{"299 with none", Fetched, 299, none, none},
		{"304 with none", Fetched, 304, none, old},
		{"304 with an ETag", Fetched, 304, told{etag: `"new"`}, told{`"new"`, "Mon", "d1", old.earlier}},
		{"a redirect that was not followed", Fetched, 301, none, old},
		{"no status", Fetched, 0, none, old},
		{"500", Failed, 500, none, old},
		{"200 that broke off", Failed, 200, none, old},
		{"200 that broke off, with a body", Failed, 200, told{digest: "d2"}, old},
		{"404", Dead, 404, none, old},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		for _, row := range rows {
			f.exec(`UPDATE urls SET status = 'pending', ready_at = 0, etag = ?, last_modified = ?, body_digest = ?,
				earlier_record_id = ?, earlier_url = ?, earlier_date = ?, earlier_payload_digest = ?`, old.etag, old.modified, old.digest,
				old.earlier.RecordID, old.earlier.URL, old.earlier.Date, old.earlier.PayloadDigest)
			f.openHosts()
			c := f.claim(1)[0]
			if got := (told{c.ETag, c.LastModified, c.BodyDigest, c.Earlier}); got != old {
				t.Errorf("%s: claim tells %+v, want %+v", row.name, got, old)
			}
			params := FetchedParams{Token: c.Token, HTTPStatus: row.http, ETag: row.tells.etag, LastModified: row.tells.modified, BodyDigest: row.tells.digest, Earlier: row.tells.earlier}
			each, err := f.RecordFetch(t.Context(), []Fetch{{ID: c.ID, FetchedParams: params, Status: row.status}})
			if err != nil || each[0] != nil {
				t.Fatalf("%s: RecordFetch = %v, %v", row.name, each, err)
			}
			f.exec(`UPDATE urls SET status = 'pending', ready_at = 0`)
			f.openHosts()
			c = f.claim(1)[0]
			if got := (told{c.ETag, c.LastModified, c.BodyDigest, c.Earlier}); got != row.want {
				t.Errorf("%s: the next claim tells %+v, want %+v", row.name, got, row.want)
			}
			f.exec(`UPDATE hosts SET in_flight = 0`)
		}
	})
}

// TestAbortHost ends the waiting URLs of one host, and not those in flight.
func TestAbortHost(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://a.test/2", "http://a.test/3", "http://b.test/")
		claims := f.claim(2)
		n, err := f.AbortHost(t.Context(), "a.test", "host_aborted", "given up")
		if err != nil || n != 2 {
			t.Fatalf("AbortHost = %d, %v, want 2 URLs", n, err)
		}
		for _, c := range claims {
			f.fetched(c)
		}
		for url, want := range map[string]Status{"http://a.test/": Fetched, "http://a.test/2": Dead, "http://a.test/3": Dead, "http://b.test/": Fetched} {
			if got := f.url(url); got.Status != want || (want == Dead && (got.ErrorClass != "host_aborted" || got.LastError != "given up")) {
				t.Errorf("%s is %+v, want %s", url, got, want)
			}
		}
		f.put("http://a.test/4")
		f.openHosts()
		f.claim(1)
		if n, err := f.RetryFailed(t.Context(), "host_aborted", "", nil); err != nil || n != 2 {
			t.Errorf("RetryFailed = %d, %v, want both", n, err)
		}
	})
}

func TestCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/", "http://c.test/", "http://c.test/2", "http://d.test/")
		c := f.claim(4)
		f.fetched(c[0])
		f.mustRecord(Fetch{ID: c[1].ID, FetchedParams: FetchedParams{Token: c[1].Token, Attempts: 1}, Status: Failed, LastError: "x", RetryIn: time.Hour})
		f.mustRecord(Fetch{ID: c[3].ID, FetchedParams: FetchedParams{Token: c[3].Token, Attempts: 1}, Status: Dead, LastError: "x"})
		got, err := f.Counts(t.Context())
		if got.NextDue <= 0 || got.NextDue > time.Hour+time.Millisecond { // a delay is never shorter than it should be
			t.Errorf("the next host is due in %v, want the delay of a host", got.NextDue)
		}
		if got.LastOutcome.IsZero() {
			t.Error("the time of the last outcome is missing")
		}
		got.NextDue, got.LastOutcome = 0, time.Time{}
		want := Counts{Pending: 1, Fetching: 1, Fetched: 1, Failed: 1, Dead: 1, Hosts: 4, HostsInFlight: 1, HostsWaiting: 3, Waits: Waits{HostInFlight: 1, BackingOff: 1}}
		if err != nil || got != want {
			t.Errorf("Counts = %+v, %v, want %+v", got, err, want)
		}
	})
}

// TestDue counts the hosts that a claim would look at, and no others.
func TestDue(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		want := func(what string, hosts int64) {
			t.Helper()
			if got, delay, err := f.Due(t.Context()); err != nil || got != hosts || delay <= 0 {
				t.Errorf("%s: Due = %d, %v, %v, want %d and the default delay", what, got, delay, err, hosts)
			}
		}
		want("of an empty frontier", 0)
		f.put("http://a.test/", "http://a.test/2", "http://b.test/", "http://c.test/")
		want("of new hosts", 3)
		for _, c := range f.claim(3) {
			f.fetched(c)
		}
		want("of hosts that were just asked", 0)
	})
}

func TestPagesHoldEveryRow(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		urls := make([]string, 2500)
		for i := range urls {
			urls[i] = "http://a.test/" + strconv.Itoa(i)
		}
		f.put(urls...)
		n := 0
		for u, err := range f.URLs(t.Context()) {
			if err != nil || u.URL != urls[n] {
				t.Fatalf("row %d = %v, %v, want %s", n, u, err, urls[n])
			}
			n++
		}
		if n != len(urls) {
			t.Errorf("%d rows, want %d", n, len(urls))
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		open(t, f.dsn) // migrating twice is not an error
		f.exec(`UPDATE settings SET value = '0' WHERE name = 'normal_form_version'`)
		if _, err := Open(t.Context(), f.dsn, Config{}); !errors.Is(err, ErrNormalForm) {
			t.Errorf("Open with another normal form = %v, want ErrNormalForm", err)
		}
		f.exec(`INSERT INTO `+goose.DefaultTablename+` (version_id, is_applied) VALUES (?, ?)`, 99, true)
		if _, err := Open(t.Context(), f.dsn, Config{}); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("Open of a newer version = %v, want ErrNewerSchema", err)
		}
	})
	if _, err := Open(t.Context(), "x", Config{Delay: -time.Second}); err == nil {
		t.Error("Open with a negative delay = nil, want an error")
	}
}
