package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// putMany puts n URLs of each host, and gives them a status.
func (f *fixture) putMany(n int, status Status, hosts ...string) {
	f.t.Helper()
	var urls []string
	for i := range n {
		for _, host := range hosts {
			urls = append(urls, fmt.Sprintf("http://%s/%d", host, i))
		}
	}
	f.put(urls...)
	for _, host := range hosts {
		f.exec(`UPDATE urls SET status = ?, fetched_at = 1, error_class = CASE WHEN ? = 'fetched' THEN '' ELSE 'dns' END
			WHERE host_id = (SELECT id FROM hosts WHERE host = ?)`, status, status, host)
	}
}

// changes has PostgreSQL count how many rows of urls each transaction changes. largest returns the
// maximum since the last call.
func (f *fixture) changes() (largest func() int64) {
	for _, query := range []string{
		`CREATE TABLE changes (xact BIGINT, n BIGINT)`,
		`CREATE FUNCTION count_changes() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO changes SELECT txid_current(), count(*) FROM changed; RETURN NULL; END'`,
		`CREATE TRIGGER count_updates AFTER UPDATE ON urls REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changes()`,
		`CREATE TRIGGER count_deletes AFTER DELETE ON urls REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changes()`,
		`CREATE TRIGGER count_outcomes AFTER DELETE ON fetches REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_changes()`,
	} {
		f.exec(query)
	}
	return func() int64 {
		n := f.number(`SELECT COALESCE(max(n), 0) FROM (SELECT sum(n) AS n FROM changes GROUP BY xact) AS x`)
		f.exec(`DELETE FROM changes`)
		return n
	}
}

// TestPostgresTransactionsAreChunks counts the rows that a transaction of a long operation changes.
func TestPostgresTransactionsAreChunks(t *testing.T) {
	f := open(t, newEmpty(t))
	const n = chunkSize + chunkSize/2
	f.putMany(n, Dead, "dead.test")
	f.putMany(n, Fetched, "fetched.test")
	largest := f.changes()
	for _, row := range []struct {
		name string
		run  func() (int64, error)
	}{
		{"retry", func() (int64, error) { return f.RetryFailed(t.Context(), "dns", "", nil) }},
		{"retry of a host", func() (int64, error) {
			f.exec(`UPDATE urls SET status = 'dead' WHERE url LIKE '%dead.test%'`)
			largest()
			return f.RetryFailed(t.Context(), "", "dead.test", nil)
		}},
		{"abort-host", func() (int64, error) { return f.AbortHost(t.Context(), "dead.test", "host_aborted", "x") }},
		{"retry --fetched-before", func() (int64, error) { return f.Refetch(t.Context(), 0, "", nil) }},
		{"prune", func() (int64, error) {
			n, err := f.Prune(t.Context(), PruneParams{URLs: []Status{Pending}}, nil)
			return n.URLs, err
		}},
	} {
		changed, err := row.run()
		if err != nil || changed != n {
			t.Errorf("%s: %d, %v; want %d", row.name, changed, err, n)
		}
		if got := largest(); got != chunkSize {
			t.Errorf("%s: the largest transaction changes %d rows, want %d", row.name, got, chunkSize)
		}
	}
}

// TestProgressIsCommitted checks that what progress reports is visible to others by then.
func TestProgressIsCommitted(t *testing.T) {
	const hosts, each = 3, chunkSize * 3 / 4
	onBoth(t, func(t *testing.T, f *fixture) {
		f.putMany(each, Fetched, "a.test", "b.test", "c.test")
		for _, row := range []struct {
			name string
			run  func(ctx context.Context, progress func(int64)) (int64, error)
		}{
			{"retry --fetched-before", func(ctx context.Context, progress func(int64)) (int64, error) { return f.Refetch(ctx, 0, "", progress) }},
			{"retry", func(ctx context.Context, progress func(int64)) (int64, error) {
				return f.RetryFailed(ctx, "", "", progress)
			}},
		} {
			var calls, before int64
			n, err := row.run(t.Context(), func(done int64) {
				if got := f.number(`SELECT count(*) FROM urls WHERE status = 'pending'`); got != done || done-before > chunkSize {
					t.Errorf("%s: after %d, %d URLs are reported and %d pending", row.name, before, done, got)
				}
				calls, before = calls+1, done
			})
			if err != nil || n != hosts*each || calls != 3 {
				t.Errorf("%s: %d in %d chunks, %v; want %d in 3", row.name, n, calls, err, hosts*each)
			}
			f.exec(`UPDATE urls SET status = 'dead'`)
		}
	})
}

// TestRetryContinues interrupts a retry, and repeats it.
func TestRetryContinues(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.putMany(chunkSize+10, Dead, "a.test", "b.test")
		ctx, stop := context.WithCancel(t.Context())
		n, err := f.RetryFailed(ctx, "", "", func(int64) { stop() })
		if n != chunkSize || !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted after a chunk: %d, %v", n, err)
		}
		if got := f.number(`SELECT count(*) FROM urls WHERE status = 'pending'`); got != n {
			t.Errorf("%d URLs are pending, want %d", got, n)
		}
		if n, err := f.RetryFailed(t.Context(), "", "", nil); n != chunkSize+20 || err != nil {
			t.Errorf("repeated: %d, %v; want the other %d", n, err, chunkSize+20)
		}
	})
}

// TestRetryOpensHosts checks that a claim finds a host again that had no URL left.
func TestRetryOpensHosts(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/", "http://b.test/")
		for _, c := range f.claim(2) {
			f.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Dead, ErrorClass: "dns"})
		}
		f.claim(0)
		if due := f.number(`SELECT count(*) FROM hosts WHERE due_at IS NOT NULL`); due != 0 {
			t.Fatalf("%d hosts are due before, want none", due)
		}
		if n, err := f.RetryFailed(t.Context(), "", "a.test", nil); n != 1 || err != nil {
			t.Fatalf("RetryFailed = %d, %v", n, err)
		}
		if c := f.claim(1)[0]; c.Host != "a.test" {
			t.Errorf("claimed %s, want the URL of a.test", c.URL)
		}
	})
}
