package store

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"fetchd/test/need"
)

// TestScaleRetry measures "retry --fetched-before" of 300,000 of a million URLs on 10,000 hosts, next
// to two workers. Without FRONTIER_TEST_POSTGRES the server writes nothing to disk, so it is faster
// than one that does.
func TestScaleRetry(t *testing.T) {
	need.Long(t)
	const urls, hosts = 1_000_000, 10_000
	for _, row := range []struct {
		name string
		dsn  func(t *testing.T) string
		fill []string
	}{
		{"postgres", func(t *testing.T) string { return newPostgres(t) }, []string{
			`INSERT INTO hosts (host, due_at) SELECT 'h' || n || '.test', 0 FROM generate_series(0, ?::bigint - 1) AS n`,
			`INSERT INTO urls (host_id, url, url_hash, status, fetched_at)
				SELECT h.id, 'http://' || h.host || '/page/' || n, sha256(n::text::bytea), CASE WHEN n % 100 < 30 THEN 'fetched' ELSE 'pending' END, 1
				FROM generate_series(1, ?::bigint) AS n JOIN hosts h ON h.host = 'h' || (n * 7919 % ?) || '.test'`,
		}},
		{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "frontier.db") }, []string{
			`WITH RECURSIVE g (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < ? - 1)
				INSERT INTO hosts (host, due_at) SELECT 'h' || n || '.test', 0 FROM g`,
			`WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < ?)
				INSERT INTO urls (host_id, url, url_hash, status, fetched_at)
				SELECT h.id, 'http://' || h.host || '/page/' || n, randomblob(32), CASE WHEN n % 100 < 30 THEN 'fetched' ELSE 'pending' END, 1
				FROM g JOIN hosts h ON h.host = 'h' || (n * 7919 % ?) || '.test'`,
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := open(t, row.dsn(t))
			f.exec(row.fill[0], hosts)
			f.exec(row.fill[1], urls, hosts)
			ctx, stop := context.WithCancel(t.Context())
			var both sync.WaitGroup
			var loads [2]load
			for i := range loads {
				both.Go(func() { loads[i].work(ctx, t, f.dsn) })
			}
			pause(t, 3*time.Second)
			started := time.Now()
			n, err := f.Refetch(t.Context(), 0, "", nil)
			took := time.Since(started)
			stop()
			both.Wait()
			if err != nil || n < urls/10*3 {
				t.Errorf("Refetch = %d, %v", n, err)
			}
			for i, l := range loads {
				t.Logf("worker %d: %d recorded, longest claim %v, longest record %v", i, l.recorded, l.claim, l.record)
			}
			t.Logf("%d URLs in %v, %.0f/s", n, took, float64(n)/took.Seconds())
		})
	}
}

// load is what a worker does, and the longest times that it waited.
type load struct {
	recorded      int
	claim, record time.Duration
}

// work claims and records URLs until ctx ends.
func (l *load) work(ctx context.Context, t *testing.T, dsn string) {
	s, err := Open(ctx, dsn, Config{Delay: time.Second})
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	for ctx.Err() == nil {
		started := time.Now()
		claims, err := s.Claim(ctx, ClaimParams{Limit: 128, Worker: "test"})
		l.claim = max(l.claim, time.Since(started))
		var fetches []Fetch
		for _, c := range claims {
			fetches = append(fetches, Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1, Duration: time.Second, ETag: `"0123456789"`}, Status: Fetched})
		}
		started = time.Now()
		if err == nil {
			_, err = s.RecordFetch(ctx, fetches)
		}
		l.record = max(l.record, time.Since(started))
		l.recorded += len(fetches)
		if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			t.Error(err)
			return
		}
	}
}
