package store

import (
	"slices"
	"testing"
	"time"
)

// TestPruneURLs checks which URLs are deleted, and that their outcomes stay.
func TestPruneURLs(t *testing.T) {
	hour := time.Hour
	for _, row := range []struct {
		name   string
		params PruneParams
		want   []string // URLs that are left
		n      int64
	}{
		{"dead", PruneParams{URLs: []Status{Dead}}, []string{"a.test/failed", "a.test/new", "a.test/old", "a.test/pending", "b.test/new"}, 2},
		{"dead of a host", PruneParams{URLs: []Status{Dead}, Host: "b.test"}, []string{"a.test/dead", "a.test/failed", "a.test/new", "a.test/old", "a.test/pending", "b.test/new"}, 1},
		{"fetched an hour ago", PruneParams{URLs: []Status{Fetched}, URLsAge: &hour}, []string{"a.test/dead", "a.test/failed", "a.test/new", "a.test/pending", "b.test/dead", "b.test/new"}, 1},
		{"never fetched", PruneParams{URLs: []Status{Pending}, URLsAge: &hour}, []string{"a.test/dead", "a.test/failed", "a.test/new", "a.test/old", "a.test/pending", "b.test/dead", "b.test/new"}, 0},
		{"several states", PruneParams{URLs: []Status{Pending, Failed, Fetched, Dead}, Host: "a.test"}, []string{"b.test/dead", "b.test/new"}, 5},
		{"an unknown host", PruneParams{URLs: []Status{Dead}, Host: "c.test"}, []string{"a.test/dead", "a.test/failed", "a.test/new", "a.test/old", "a.test/pending", "b.test/dead", "b.test/new"}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fixture) {
				for url, set := range map[string]string{
					"a.test/dead": `'dead', fetched_at = {now}`, "a.test/failed": `'failed', fetched_at = {now}`, "a.test/new": `'fetched', fetched_at = {now}`,
					"a.test/old": `'fetched', fetched_at = {now} - 3600000`, "a.test/pending": `'pending'`,
					"b.test/dead": `'dead', fetched_at = {now}`, "b.test/new": `'fetched', fetched_at = {now}`,
				} {
					f.put("http://" + url)
					f.exec(`UPDATE urls SET status = `+set+` WHERE url = ?`, "http://"+url)
				}
				f.exec(`INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts, retry_count, duration_ms,
					wait_ms, bytes, body_digest, ended_at) SELECT id, 1, url, '', 'fetched', 200, '', '', 1, 0, 0, 0, 0, '', 1 FROM urls`)
				f.exec(`UPDATE hosts SET url_count = 5`)
				f.exec(`INSERT INTO settings (name, value) VALUES ('url_count', '7')`)
				dry := row.params
				dry.DryRun = true
				for _, params := range []PruneParams{dry, row.params} {
					if got, err := f.Prune(t.Context(), params, nil); got != (Pruned{URLs: row.n}) || err != nil {
						t.Errorf("dry run %v: %+v, %v; want %d URLs", params.DryRun, got, err, row.n)
					}
					left := f.number(`SELECT count(*) FROM urls`)
					if want := map[bool]int64{true: 7, false: 7 - row.n}[params.DryRun]; left != want {
						t.Errorf("dry run %v: %d URLs are left, want %d", params.DryRun, left, want)
					}
				}
				var left []string
				for u, err := range f.URLs(t.Context()) {
					must(t, err)
					left = append(left, u.URL[len("http://"):])
				}
				slices.Sort(left)
				if !slices.Equal(left, row.want) {
					t.Errorf("%q are left, want %q", left, row.want)
				}
				if n := f.number(`SELECT count(*) FROM fetches`); n != 7 {
					t.Errorf("%d outcomes are left, want all 7", n)
				}
				known := f.number(`SELECT count(*) FROM settings WHERE name = 'url_count'`)
				if want := map[bool]int64{true: 0, false: 1}[row.n > 0]; known != want {
					t.Errorf("the number of URLs is known: %d, want %d", known, want)
				}
			})
		})
	}
}

// TestPruneClaimed checks that a URL that is being fetched stays, and can be recorded.
func TestPruneClaimed(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/")
		c := f.claim(1)[0]
		if _, err := f.Prune(t.Context(), PruneParams{URLs: []Status{Fetching}}, nil); err == nil {
			t.Error("URLs that are being fetched can be pruned")
		}
		got, err := f.Prune(t.Context(), PruneParams{URLs: []Status{Pending, Failed, Fetched, Dead}, Hosts: true}, nil)
		if got != (Pruned{}) || err != nil {
			t.Errorf("Prune = %+v, %v; want none", got, err)
		}
		f.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, ETag: `"x"`}, Status: Fetched})
		if got, err := f.Prune(t.Context(), PruneParams{URLs: []Status{Fetched}}, nil); got.URLs != 1 || err != nil {
			t.Errorf("Prune = %+v, %v; want the URL", got, err)
		}
		if r := f.put("http://a.test/"); r.Added != 1 {
			t.Errorf("Put = %+v, want a new URL", r)
		}
		f.openHosts()
		if again := f.claim(1)[0]; again.Token == c.Token || again.ETag != "" {
			t.Errorf("claimed %+v, want a new token and no validator", again)
		}
	})
}

// TestPrunedURLsKeepIDs checks that a URL never gets the id of one that was deleted, which has outcomes.
func TestPrunedURLsKeepIDs(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		last := int64(0)
		for _, u := range []string{"http://a.test/", "http://b.test/", "http://c.test/"} {
			f.put(u)
			c := f.claim(1)[0]
			if c.ID <= last {
				t.Errorf("%s has the id %d, want one after %d", u, c.ID, last)
			}
			last = c.ID
			f.fetched(c)
			if got, err := f.Prune(t.Context(), PruneParams{URLs: []Status{Fetched}}, nil); got.URLs != 1 || err != nil {
				t.Fatalf("Prune = %+v, %v; want the URL", got, err)
			}
		}
	})
}

// TestPruneOutcomes checks that outcomes are deleted by age, in chunks.
func TestPruneOutcomes(t *testing.T) {
	const old, young = chunkSize + chunkSize/2, chunkSize
	day := 24 * time.Hour
	onBoth(t, func(t *testing.T, f *fixture) {
		largest := func() int64 { return chunkSize }
		if _, ok := f.engine.(*postgresDB); ok {
			largest = f.changes()
		}
		f.exec(`WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < ?)
			INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts, retry_count, duration_ms,
				wait_ms, bytes, body_digest, ended_at)
			SELECT n, 1, '', '', 'fetched', 200, '', '', 1, 0, 0, 0, 0, '', CASE WHEN n > ? THEN {now} ELSE 1 END FROM g`, old+young, old)
		for _, dry := range []bool{true, false} {
			var steps []int64
			got, err := f.Prune(t.Context(), PruneParams{OutcomesAge: &day, DryRun: dry}, func(p Pruned) { steps = append(steps, p.Outcomes) })
			if got != (Pruned{Outcomes: old}) || err != nil || !slices.Equal(steps, []int64{chunkSize, old}) {
				t.Errorf("dry run %v: %+v in steps %v, %v; want %d", dry, got, steps, err, old)
			}
		}
		if n := f.number(`SELECT count(*) FROM fetches`); n != young {
			t.Errorf("%d outcomes are left, want %d", n, young)
		}
		if n := largest(); n != chunkSize {
			t.Errorf("the largest transaction deletes %d rows, want %d", n, chunkSize)
		}
	})
}

// TestPruneKeepsIDs checks that an outcome never gets the id of one that was deleted.
func TestPruneKeepsIDs(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var none time.Duration
		f.put("http://a.test/", "http://b.test/", "http://c.test/")
		claims := f.claim(3)
		record := func(c Claim) {
			f.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched})
		}
		record(claims[0])
		record(claims[1])
		last := f.number(`SELECT max(id) FROM fetches`)
		if got, err := f.Prune(t.Context(), PruneParams{OutcomesAge: &none}, nil); got.Outcomes != 1 || err != nil {
			t.Errorf("Prune = %+v, %v; want all but the last outcome", got, err)
		}
		record(claims[2])
		if id := f.number(`SELECT max(id) FROM fetches`); id <= last {
			t.Errorf("the next outcome has the id %d, want one after %d", id, last)
		}
	})
}

// TestPruneHosts checks which hosts are deleted.
func TestPruneHosts(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		rows := []struct{ host, set string }{
			{"blocked.test", `blocked_until = {now} - 1000`}, {"crawldelay.test", `next_at = {now} - 89000000, crawl_delay_ms = 5`}, {"delay.test", `delay_ms = 5`}, {"fetch.test", `in_flight = 1`},
			{"just.test", `next_at = {now} - 1000`}, {"many.test", `max_in_flight = 2`}, {"paused.test", `paused = TRUE`}, {"reserved.test", `next_at = {now} + 1000`},
		}
		for _, r := range append(rows, struct{ host, set string }{"gone.test", `next_at = {now} - 90000000, crawl_delay_ms = 5, fetch_count = 7`}, struct{ host, set string }{"blocking.test", `next_at = 5`}) {
			f.exec(`INSERT INTO hosts (host) VALUES (?)`, r.host)
			f.exec(`UPDATE hosts SET `+r.set+` WHERE host = ?`, r.host)
		}
		for _, host := range []string{"blocking.test", "new.test"} { // a setting or a block follows in another transaction
			must(t, f.base().addHost(t.Context(), host))
		}
		f.put("http://urls.test/")
		f.saveRobots("http://gone.test", "http://urls.test", "http://young.test")
		f.exec(`UPDATE robots SET saved_at = saved_at - 3600000 WHERE origin <> 'http://young.test'`)
		f.exec(`INSERT INTO workers (name, started_at, seen_at) SELECT 'gone', 1, {now} - 86400000 UNION ALL SELECT 'here', 1, {now} - 1000`)
		want := Pruned{Hosts: 1, Robots: 1, Workers: 1}
		for _, dry := range []bool{true, false} {
			if got, err := f.Prune(t.Context(), PruneParams{Hosts: true, DryRun: dry}, nil); got != want || err != nil {
				t.Errorf("dry run %v: %+v, %v; want %+v", dry, got, err, want)
			}
		}
		for _, r := range append(rows, []struct{ host, set string }{{host: "urls.test"}, {host: "blocking.test"}, {host: "new.test"}}...) {
			if known, err := f.Knows(t.Context(), r.host); !known || err != nil {
				t.Errorf("%s was deleted, or %v", r.host, err)
			}
		}
		if known, err := f.Knows(t.Context(), "gone.test"); known || err != nil {
			t.Errorf("gone.test is still there, or %v", err)
		}
		for query, want := range map[string]int64{`SELECT count(*) FROM robots`: 2, `SELECT count(*) FROM workers WHERE name = 'here'`: 1} {
			if got := f.number(query); got != want {
				t.Errorf("%s: %d, want %d", query, got, want)
			}
		}
	})
}
