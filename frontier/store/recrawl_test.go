package store

import (
	"fmt"
	"testing"
	"time"
)

func TestRecrawl(t *testing.T) {
	rows := []struct {
		name   string
		first  time.Duration // RecrawlIn of a success before
		status Status
		in     time.Duration
		due    time.Duration // from now; zero means never
		claim  time.Duration // Recrawl of a claim after it
	}{
		{"a success", 0, Fetched, time.Hour, time.Hour, time.Hour},
		{"never", 0, Fetched, 0, 0, 0},
		{"never again", time.Hour, Fetched, 0, 0, 0},
		{"another interval", time.Hour, Fetched, 2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		{"a failure keeps the interval", time.Hour, Failed, 0, 0, time.Hour},
		{"a dead URL is not due", time.Hour, Dead, 2 * time.Hour, 0, time.Hour},
	}
	onBoth(t, func(t *testing.T, f *fixture) {
		for n, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				f := f.in(t)
				u := fmt.Sprintf("http://h%d.test/", n)
				f.put(u)
				record := func(status Status, in time.Duration) {
					c := f.claim(1)[0]
					f.mustRecord(Fetch{ID: c.ID, Status: status, RetryIn: time.Hour, FetchedParams: FetchedParams{
						Token: c.Token, HTTPStatus: 200, Attempts: 1, ETag: `"e"`, RecrawlIn: in}})
					f.exec(`UPDATE hosts SET next_at = 0, due_at = NULL`)
				}
				again := func(want int64) {
					t.Helper()
					if got, err := f.Recrawl(t.Context()); got != want || err != nil {
						t.Errorf("Recrawl = %d, %v, want %d", got, err, want)
					}
				}
				if row.first > 0 {
					record(Fetched, row.first)
					f.exec(`UPDATE urls SET recrawl_at = 1`)
					again(1)
				}
				record(row.status, row.in)
				again(0)
				due := f.number(`SELECT recrawl_at - {now} FROM urls WHERE status = 'fetched' AND recrawl_at > 0 UNION ALL SELECT 0 LIMIT 1`)
				if got := (time.Duration(due) * time.Millisecond).Round(time.Minute); got != row.due {
					t.Errorf("due in %v, want %v", got, row.due)
				}
				f.exec(`UPDATE urls SET recrawl_at = 1 WHERE recrawl_at > 0`)
				if row.due > 0 {
					again(1)
					again(0)
				} else {
					again(0)
					f.exec(`UPDATE urls SET status = 'pending', ready_at = 0`)
					f.exec(`UPDATE hosts SET due_at = 0`)
				}
				if c := f.claim(1)[0]; c.URL != u || c.Recrawl != row.claim || c.ETag != `"e"` {
					t.Errorf("claim = %+v, want it with the interval %v and its validator", c, row.claim)
				}
				f.exec(`DELETE FROM fetches`)
				f.exec(`DELETE FROM urls`)
				f.exec(`DELETE FROM hosts`)
			})
		}
	})
}

// A chunk has the URLs that are due first. Those that were never fetched are claimed before them.
func TestRecrawlChunks(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		const urls = recrawlChunk + 20
		list := make([]string, urls)
		for n := range list {
			list[n] = fmt.Sprintf("http://a.test/%d", n)
		}
		f.put(list...)
		f.exec(`UPDATE urls SET status = 'fetched', recrawl_at = 5000 - id`)
		f.exec(`UPDATE hosts SET due_at = NULL`)
		for _, want := range []int64{recrawlChunk, 20, 0} {
			if n, err := f.Recrawl(t.Context()); n != want || err != nil {
				t.Errorf("Recrawl = %d, %v, want %d", n, err, want)
			}
			if want == recrawlChunk {
				if n := f.number(`SELECT max(id) FROM urls WHERE status = 'fetched'`); n != 20 {
					t.Errorf("URL %d is not pending, want the 20 that are due last", n)
				}
			}
		}
		f.put("http://a.test/new")
		for _, want := range []string{"http://a.test/new", list[urls-1]} {
			c := f.claim(1)[0]
			if c.URL != want {
				t.Errorf("claimed %s, want %s", c.URL, want)
			}
			f.fetched(c)
			f.openHosts()
		}
	})
}

// The sums of a host are those of the outcomes that had a request.
func TestSumsOfHosts(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var entries []string
		for n := range 5 {
			entries = append(entries, fmt.Sprintf("http://a.test/%d", n))
		}
		f.put(append(entries, "http://b.test/")...)
		must(t, f.SetHost(t.Context(), "a.test", HostParams{MaxInFlight: new(5)}))
		claims := f.claim(6)
		outcome := func(c Claim, status Status, attempts int) Fetch {
			return Fetch{ID: c.ID, Status: status, RetryIn: time.Hour, FetchedParams: FetchedParams{Token: c.Token, Attempts: attempts, Duration: 7 * time.Millisecond, Bytes: 100}}
		}
		var a []Claim
		for _, c := range claims {
			if c.Host == "a.test" {
				a = append(a, c)
			}
		}
		if _, err := f.RecordFetch(t.Context(), []Fetch{outcome(a[0], Dead, 0)}); err != nil {
			t.Fatal(err)
		}
		if n := f.number(`SELECT first_at FROM hosts WHERE host = 'a.test'`); n != 0 {
			t.Errorf("first_at = %d after an outcome without a request, want 0", n)
		}
		before := f.number(`SELECT {now}`)
		for _, batch := range [][]Fetch{{outcome(a[1], Fetched, 1), outcome(a[2], Failed, 3)}, {outcome(a[3], Dead, 1)}, {outcome(a[3], Dead, 1)}} {
			if _, err := f.RecordFetch(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		for query, want := range map[string]int64{
			`SELECT fetch_count FROM hosts WHERE host = 'a.test'`:   3,
			`SELECT failure_count FROM hosts WHERE host = 'a.test'`: 2,
			`SELECT duration_ms FROM hosts WHERE host = 'a.test'`:   28,
			`SELECT bytes FROM hosts WHERE host = 'a.test'`:         400,
			`SELECT fetch_count FROM hosts WHERE host = 'b.test'`:   0,
		} {
			if got := f.number(query); got != want {
				t.Errorf("%s: %d, want %d", query, got, want)
			}
		}
		if first := f.number(`SELECT first_at FROM hosts WHERE host = 'a.test'`); first < before || first > f.number(`SELECT {now}`) {
			t.Errorf("first_at = %d, want the time of the first outcome with a request, %d or later", first, before)
		}
	})
}
