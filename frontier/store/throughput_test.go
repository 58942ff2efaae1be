package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/test/need"
)

// throughput measures what a PostgreSQL does for puts, claims and records.
type throughput struct{ *fixture }

// TestScaleThroughput measures puts, and claims and records with 1, 4 and 8 workers, in a frontier of 300,000 URLs and in
// a larger one, with one host, and while a session holds a snapshot. A URL should cost the same in both. Set
// FRONTIER_TEST_POSTGRES to a server that writes to a disk, and FRONTIER_URLS to the number of URLs of the larger one.
func TestScaleThroughput(t *testing.T) {
	need.Long(t)
	many := 1_000_000
	if text := os.Getenv("FRONTIER_URLS"); text != "" {
		var err error
		many, err = strconv.Atoi(text)
		must(t, err)
	}
	var all []throughput
	sizes := []int{300_000, many}
	title := func(urls int) string { return fmt.Sprintf("%d URLs of %d hosts", urls, urls/100) }
	for _, urls := range sizes {
		f := throughput{open(t, newPostgres(t))}
		f.base().delayMS = 0
		f.fill(urls, urls/100)
		t.Logf("%s: put 200,000 URLs of 10,000 hosts: %s", title(urls), f.putAll(200_000, func(n int) string { return fmt.Sprintf("http://p%d.test/page/%d", n%10_000, n) }))
		t.Logf("%s: put links, three of four known:   %s", title(urls), f.putAll(100_000, func(n int) string { return fmt.Sprintf("http://l%d.test/link/%d", n/1000, n/4) }))
		all = append(all, f)
	}
	for round := range 3 {
		for _, workers := range []int{1, 4, 8} {
			for i, urls := range sizes {
				t.Logf("%s, %d workers, round %d: %s", title(urls), workers, round+1, all[i].work(workers, time.Minute, int64(urls/10)))
			}
		}
	}
	f := all[0]
	f.fill(200_000, 1)
	f.exec(`UPDATE hosts SET max_in_flight = 128`)
	t.Logf("one host, 4 workers: %s", f.work(4, 5*time.Second, math.MaxInt64))
	tx, err := f.db().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	must(t, err)
	defer tx.Rollback() //nolint:errcheck // it has written nothing
	must(t, tx.QueryRow(`SELECT 1`).Scan(new(int)))
	t.Logf("one host, 4 workers, a snapshot is held: %s", f.work(4, 10*time.Second, math.MaxInt64))
}

// measure returns the rate of what call does, and the WAL and the CPU time of the server that it uses. Unlike the rate, the
// CPU time does not depend much on what else the machine does. It is zero if the server is on another machine.
func (f throughput) measure(call func() int64) string {
	const tick = 10 * time.Millisecond
	wal := func() int64 { return f.number(`SELECT pg_current_wal_lsn() - '0/0'`) }
	before, cpu, started := wal(), f.cpu(), time.Now()
	n := max(1, call())
	took := time.Since(started)
	return fmt.Sprintf("%.0f URLs/s, %d B of WAL and %.0f µs of CPU a URL", float64(n)/took.Seconds(), (wal()-before)/n,
		float64((time.Duration(f.cpu()-cpu)*tick).Microseconds())/float64(n))
}

// cpu returns the CPU time that the sessions of the database have used, in hundredths of a second.
func (f throughput) cpu() (ticks int64) {
	rows, err := f.db().Query(`SELECT pid FROM pg_stat_activity WHERE datname = current_database()`)
	pids, err := collect(rows, err, func(pid *int) []any { return []any{pid} })
	must(f.t, err)
	for _, pid := range pids {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // is gone if the session has ended
		_, fields, _ := strings.Cut(string(stat), ") ")
		for i, field := range strings.Fields(fields) {
			if i == 11 || i == 12 { // utime and stime
				n, _ := strconv.ParseInt(field, 10, 64) // it is a number
				ticks += n
			}
		}
	}
	return ticks
}

func (f throughput) putAll(urls int, url func(n int) string) string {
	return f.measure(func() int64 {
		const batch = 1000
		for n := 0; n < urls; n += batch {
			var list []string
			for i := n; i < n+batch; i++ {
				list = append(list, url(i))
			}
			f.put(list...)
		}
		return int64(urls)
	})
}

// fill adds URLs without a put.
func (f throughput) fill(urls, hosts int) {
	f.exec(`TRUNCATE fetches, urls, hosts`)
	f.exec(`INSERT INTO hosts (host, due_at) SELECT 'h' || n || '.test', 0 FROM generate_series(0, ?::bigint - 1) AS n`, hosts)
	f.exec(`INSERT INTO urls (host_id, url, url_hash) SELECT h.id, 'http://' || h.host || '/page/' || n, sha256(n::text::bytea)
		FROM generate_series(1, ?::bigint) AS n JOIN hosts h ON h.host = 'h' || (n * 7919 % ?) || '.test'`, urls, hosts)
	f.exec(`VACUUM ANALYZE`)
	f.exec(`CHECKPOINT`)
}

// work has workers claim and record for some time, or as many URLs as there may be.
func (f throughput) work(workers int, d time.Duration, most int64) string {
	ctx, cancel := context.WithTimeout(f.t.Context(), d)
	defer cancel()
	return f.measure(func() int64 {
		var wait sync.WaitGroup
		var done atomic.Int64
		for range workers {
			wait.Go(func() {
				for ctx.Err() == nil && done.Load() < most {
					claims, err := f.Claim(f.t.Context(), ClaimParams{Limit: 128, Worker: "test"})
					if err == nil && len(claims) == 0 {
						pause(f.t, time.Millisecond)
						continue
					}
					if err == nil {
						_, err = f.RecordFetch(f.t.Context(), outcomes(claims))
					}
					if err != nil {
						f.t.Error(err)
						return
					}
					done.Add(int64(len(claims)))
				}
			})
		}
		wait.Wait()
		return done.Load()
	})
}

// outcomes returns successes with the values that a page usually has.
func outcomes(claims []Claim) []Fetch {
	fetches := make([]Fetch, len(claims))
	for i, c := range claims {
		fetches[i] = Fetch{ID: c.ID, Status: Fetched, FetchedParams: FetchedParams{
			Token: c.Token, HTTPStatus: 200, Attempts: 1, Duration: 100 * time.Millisecond, Bytes: 40_000, ETag: `"5f3a-1c0d"`,
			BodyDigest: strings.Repeat("0123456789abcdef", 4), Content: Content{ContentType: "text/html", Charset: "utf-8"},
		}}
	}
	return fetches
}
