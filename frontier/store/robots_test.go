package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"
)

func (f *fixture) robots(origin string) Robots {
	f.t.Helper()
	found, err := f.Robots(f.t.Context(), []string{origin})
	if err != nil {
		f.t.Fatalf("Robots(%s) = %v", origin, err)
	}
	return found[origin]
}

func TestRobots(t *testing.T) {
	const origin = "http://a.test"
	raw := []byte("\x00\xff\r\nDisallow: /")
	down := Robots{Origin: origin, Status: 503, ErrorClass: "http_5xx", Unreachable: true, Body: []byte("an error page")}
	recorded := Robots{Status: 200, Body: raw, Earlier: Earlier{"urn:1", origin + "/robots.txt", "2026-01-01T00:00:00.1Z", "sha1:A"}}
	rows := []struct {
		name  string
		saves []Robots
		want  Robots
	}{
		{"never asked", nil, Robots{}},
		{"a file", []Robots{{Status: 200, Body: raw}}, Robots{Status: 200, Body: raw, HasBody: true, BodyStatus: 200}},
		{"an empty file", []Robots{{Status: 200, Body: []byte{}}}, Robots{Status: 200, HasBody: true, BodyStatus: 200}},
		{"no file", []Robots{{Status: 404}}, Robots{Status: 404, HasBody: true, BodyStatus: 404}},
		{"unreachable", []Robots{down}, Robots{Status: 503, ErrorClass: "http_5xx", Unreachable: true}},
		{"unreachable without a response", []Robots{{ErrorClass: "dns\x00\xff", Unreachable: true}}, Robots{ErrorClass: "dns\uFFFD\uFFFD", Unreachable: true}},
		{"unreachable after a file", []Robots{{Status: 200, Body: raw}, down},
			Robots{Status: 503, ErrorClass: "http_5xx", Unreachable: true, Body: raw, HasBody: true, BodyStatus: 200}},
		{"unreachable after an empty file", []Robots{{Status: 200}, down},
			Robots{Status: 503, ErrorClass: "http_5xx", Unreachable: true, HasBody: true, BodyStatus: 200}},
		{"a file after that", []Robots{down, {Status: 200, Body: raw}}, Robots{Status: 200, Body: raw, HasBody: true, BodyStatus: 200}},
		{"another file", []Robots{{Status: 200, Body: raw}, {Status: 200, Body: []byte("x")}}, Robots{Status: 200, Body: []byte("x"), HasBody: true, BodyStatus: 200}},
		{"the file is gone", []Robots{{Status: 200, Body: raw}, {Status: 410}}, Robots{Status: 410, HasBody: true, BodyStatus: 410}},
		{"a recorded file", []Robots{recorded}, Robots{Status: 200, Body: raw, HasBody: true, BodyStatus: 200, Earlier: recorded.Earlier}},
		{"a recorded file, then unreachable", []Robots{recorded, down},
			Robots{Status: 503, ErrorClass: "http_5xx", Unreachable: true, Body: raw, HasBody: true, BodyStatus: 200, Earlier: recorded.Earlier}},
		{"a recorded file, then one that is not", []Robots{recorded, {Status: 200, Body: raw}}, Robots{Status: 200, Body: raw, HasBody: true, BodyStatus: 200}},
		{"as long as may be", []Robots{{Status: 200, Body: make([]byte, 512<<10)}}, Robots{Status: 200, Body: make([]byte, 512<<10), HasBody: true, BodyStatus: 200}},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, row := range rows {
			f.exec(`DELETE FROM robots`)
			for _, r := range row.saves {
				r.Origin = origin
				must(t, f.SaveRobots(t.Context(), r))
			}
			if row.saves != nil {
				row.want.Origin = origin
			}
			got := f.robots(origin)
			if !bytes.Equal(got.Body, row.want.Body) {
				t.Errorf("%s: body %.40q, want %.40q", row.name, got.Body, row.want.Body)
			}
			if got.Origin != row.want.Origin || got.Status != row.want.Status || got.ErrorClass != row.want.ErrorClass ||
				got.Unreachable != row.want.Unreachable || got.HasBody != row.want.HasBody || got.BodyStatus != row.want.BodyStatus || got.Earlier != row.want.Earlier {
				got.Body, row.want.Body = nil, nil
				t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
			}
		}
	})
}

func TestRobotsAge(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const origin = "https://a.test:8443"
		rows := []struct {
			name           string
			unreachable    bool
			unreachableFor time.Duration
		}{
			{name: "reachable"},
			{name: "unreachable for the first time", unreachable: true},
			{name: "unreachable again", unreachable: true, unreachableFor: 2 * time.Hour},
			{name: "unreachable for long", unreachable: true, unreachableFor: 4 * time.Hour},
			{name: "reachable again"},
			{name: "unreachable again, from the start", unreachable: true},
		}
		for _, row := range rows {
			must(t, f.SaveRobots(t.Context(), Robots{Origin: origin, Unreachable: row.unreachable}))
			got := f.robots(origin)
			if got.Age.Round(time.Hour) != 0 || got.UnreachableFor.Round(time.Hour) != row.unreachableFor || got.Unreachable != row.unreachable {
				t.Errorf("%s: %+v, want it new, and unreachable for %v", row.name, got, row.unreachableFor)
			}
			// Two hours pass.
			f.exec(`UPDATE robots SET saved_at = saved_at - 7200000,
				unreachable_since = CASE WHEN unreachable_since = 0 THEN 0 ELSE unreachable_since - 7200000 END`)
			if got := f.robots(origin).Age.Round(time.Hour); got != 2*time.Hour {
				t.Errorf("%s: two hours later the age is %v", row.name, got)
			}
		}
	})
}

func TestRobotsOfManyOrigins(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		for _, origin := range []string{"http://a.test", "https://a.test", "http://b.test"} {
			must(t, f.SaveRobots(t.Context(), Robots{Origin: origin, Body: []byte(origin)}))
		}
		got, err := f.Robots(t.Context(), []string{"https://a.test", "http://b.test", "http://b.test", "http://c.test", "\x00\xff"})
		if err != nil || len(got) != 2 || string(got["https://a.test"].Body) != "https://a.test" || string(got["http://b.test"].Body) != "http://b.test" {
			t.Errorf("Robots = %v, %v, want the two that are known", got, err)
		}
		if got, err := f.Robots(t.Context(), nil); err != nil || len(got) != 0 {
			t.Errorf("Robots of none = %v, %v, want none", got, err)
		}
	})
}

func TestRobotsThatIsTooLong(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		if err := f.SaveRobots(t.Context(), Robots{Origin: "http://a.test", Body: make([]byte, 512<<10+1)}); err == nil {
			t.Error("SaveRobots of 512 KiB and a byte = nil, want an error")
		}
		if got := f.robots("http://a.test"); got.Origin != "" {
			t.Errorf("Robots = %+v, want none", got)
		}
	})
}

// TestRobotsHeads checks that RobotsHeads returns what Robots does, without the bodies.
func TestRobotsHeads(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const origin = "http://a.test"
		must(t, f.SaveRobots(t.Context(), Robots{Origin: origin, Status: 200, Body: []byte("Disallow: /")}))
		must(t, f.SaveRobots(t.Context(), Robots{Origin: origin, ErrorClass: "dns", Unreachable: true}))
		heads, err := f.RobotsHeads(t.Context(), []string{origin, "http://b.test"})
		got := heads[origin]
		if err != nil || len(heads) != 1 || got.Body != nil || got.BodySize != 11 || !got.HasBody || got.BodyStatus != 200 || !got.Unreachable || got.ErrorClass != "dns" {
			t.Errorf("RobotsHeads = %+v, %v, want the one that is known, without its body", heads, err)
		}
	})
}

// saveRobots saves a robots.txt for each of origins.
func (f *fixture) saveRobots(origins ...string) {
	f.t.Helper()
	for _, origin := range origins {
		must(f.t, f.SaveRobots(f.t.Context(), Robots{Origin: origin, Status: 200, Body: []byte("x")}))
	}
}

func TestForgetRobots(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "https://b.test:8443/", "http://[::1]/", "http://done.test/")
		for _, c := range f.claim(4) {
			if c.Host == "done.test" {
				f.fetched(c)
			}
		}
		if _, err := f.Reserve(t.Context(), "known.test", time.Minute); err != nil {
			t.Fatal(err)
		}
		kept := []string{"http://a.test", "https://a.test", "http://b.test:8443", "http://[::1]", "http://done.test", "http://unasked.test"}
		gone := []string{"http://b.test", "https://b.test", "http://a.test:8080", "http://known.test", "https://never.test"}
		for n := range 3 * 16 {
			gone = append(gone, fmt.Sprintf("http://h%d.test", n))
		}
		f.saveRobots(append(kept, gone...)...)
		n, err := f.ForgetRobots(t.Context(), append(kept[:5:5], append(gone, "http://nosuch.test")...))
		if err != nil || n != int64(len(gone)) {
			t.Errorf("ForgetRobots = %d, %v, want %d", n, err, len(gone))
		}
		for _, origin := range kept {
			if f.robots(origin).Origin == "" {
				t.Errorf("%s is gone", origin)
			}
		}
		if n := f.number(`SELECT count(*) FROM robots`); n != int64(len(kept)) {
			t.Errorf("%d rows are left, want %d", n, len(kept))
		}
	})
}

func TestSweepRobots(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const many = 1200
		f.put("http://a.test/", "http://z.test/")
		f.saveRobots("http://a.test", "http://z.test", "http://young.test")
		for n := range many {
			f.exec(`INSERT INTO robots (origin, saved_at, status, error_class) VALUES (?, 1, 404, '')`, fmt.Sprintf("http://h%d.test", n))
		}
		f.exec(`UPDATE robots SET saved_at = 1 WHERE origin <> 'http://young.test'`)
		after, deleted, calls := "", int64(0), 0
		for {
			next, n, err := f.SweepRobots(t.Context(), after, time.Hour)
			must(t, err)
			deleted += n
			if calls++; next == "" {
				break
			}
			after = next
		}
		if deleted != many || calls != 3 {
			t.Errorf("%d deleted in %d calls, want %d in 3", deleted, calls, many)
		}
		for _, origin := range []string{"http://a.test", "http://z.test", "http://young.test"} {
			if f.robots(origin).Origin == "" {
				t.Errorf("%s is gone", origin)
			}
		}
	})
}

// TestRetryForgetsVerdicts checks that RetryFailed makes only those robots.txt be fetched again
// that ended the retried URLs.
func TestRetryForgetsVerdicts(t *testing.T) {
	dead := []struct{ url, class, text string }{
		{"http://line.test/", "robots_disallowed", "line 2, Disallow: /"},
		{"https://away.test:8443/", "robots_unreachable", "status 503"},
		{"http://gone.test/", "dns_not_found", "of its robots.txt"},
		{"http://from.test/", "robots_disallowed", "line 2, Disallow: /, of b" + BehindRedirect("https://to.test:8443")},
		{"http://page.test/", "dns_not_found", "the host name does not exist"},
		{"http://open.test/", "http_server_error", "503"},
	}
	rows := []struct {
		class string
		want  []string // origins
	}{
		{"", []string{"http://gone.test", "http://line.test", "https://away.test:8443", "https://line.test", "https://to.test:8443"}},
		{"robots_disallowed", []string{"http://line.test", "https://line.test", "https://to.test:8443"}},
		{"robots_unreachable", []string{"https://away.test:8443"}},
		{"dns_not_found", []string{"http://gone.test"}},
		{"http_server_error", nil},
	}
	origins := []string{"http://line.test", "https://line.test", "http://line.test:8080", "https://away.test:8443", "https://away.test", "http://gone.test",
		"http://from.test", "https://to.test:8443", "https://to.test", "http://page.test", "http://open.test", "http://pending.test", "http://fetched.test"}
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://pending.test/", "http://fetched.test/")
		f.exec(`UPDATE urls SET last_error = 'robots_disallowed: an old error', error_class = 'robots_disallowed'`)
		f.exec(`UPDATE urls SET status = 'fetched' WHERE url LIKE '%fetched%'`)
		for _, d := range dead {
			f.put(d.url)
		}
		for _, row := range rows {
			f.saveRobots(origins...)
			for _, d := range dead {
				f.exec(`UPDATE urls SET status = 'dead', error_class = ?, last_error = ? WHERE url = ?`, d.class, d.class+": "+d.text, d.url)
			}
			if _, err := f.RetryFailed(t.Context(), row.class, "", nil); err != nil {
				t.Fatalf("RetryFailed(%q) = %v", row.class, err)
			}
			var got []string
			for _, origin := range origins {
				r := f.robots(origin)
				if r.Forgotten {
					got = append(got, origin)
				}
				if r.Forgotten != (r.Age > 24*time.Hour) || string(r.Body) != "x" {
					t.Errorf("class %q: %+v, want what is forgotten old, and its body there", row.class, r)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, row.want) {
				t.Errorf("class %q: forgotten are %q, want %q", row.class, got, row.want)
			}
		}
	})
}

// TestRefreshRobots checks that the files of some origins are to be fetched again until they are.
func TestRefreshRobots(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		save := func(origin string) {
			t.Helper()
			must(t, f.SaveRobots(t.Context(), Robots{Origin: origin, Status: 404}))
		}
		check := func(when string, want ...string) {
			t.Helper()
			got, next, err := f.RobotsToRefresh(t.Context(), "")
			if err != nil || next != "" || !slices.Equal(got, want) {
				t.Errorf("%s: %q, then after %q, %v, want %q", when, got, next, err, want)
			}
		}
		for _, origin := range []string{"http://a.test", "https://a.test", "http://b.test"} {
			save(origin)
		}
		check("saved")
		if n, err := f.RefreshRobots(t.Context(), []string{"http://a.test", "https://a.test", "http://c.test"}); n != 2 || err != nil {
			t.Errorf("RefreshRobots = %d, %v, want 2", n, err)
		}
		check("refreshed", "http://a.test", "https://a.test")
		if r := f.robots("http://a.test"); !r.Forgotten {
			t.Errorf("%+v, want it forgotten", r)
		}
		save("http://a.test")
		check("one saved again", "https://a.test")
	})
}

// TestRefreshManyRobots checks that no file is left out if there are more than one call returns.
func TestRefreshManyRobots(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.exec(`WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < ?)
			INSERT INTO robots (origin, saved_at, status, error_class) SELECT 'http://' || n || '.test', 0, 404, '' FROM g`, refreshPage+1)
		first, next, err := f.RobotsToRefresh(t.Context(), "")
		if err != nil || len(first) != refreshPage || next != first[refreshPage-1] {
			t.Fatalf("%d origins, then after %q, %v; want %d", len(first), next, err, refreshPage)
		}
		last, next, err := f.RobotsToRefresh(t.Context(), next)
		if err != nil || len(last) != 1 || slices.Contains(first, last[0]) || next != "" {
			t.Errorf("%q, then after %q, %v; want the last one", last, next, err)
		}
	})
}
