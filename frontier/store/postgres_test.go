package store

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fetchd/test/rig/pgtest"
)

// server is a PostgreSQL for the tests of this package. The first test that needs it starts it.
var server struct {
	once sync.Once
	ours *pgtest.Server // nil if FRONTIER_TEST_POSTGRES names another one
	dsn  string         // of an administrator
	err  error          // why there is no server
	used atomic.Int64

	mu   sync.Mutex
	free []string // databases of newEmpty that no test uses
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.ours != nil {
		server.ours.Remove()
	} else {
		for _, dsn := range server.free {
			_ = dropDatabase(dsn) // it may have gone
		}
	}
	os.Exit(code) //nolint:forbidigo // TestMain is a main.
}

// newPostgres creates a database without a schema.
func newPostgres(t testing.TB) string {
	t.Helper()
	dsn := createDatabase(t)
	t.Cleanup(func() { must(t, dropDatabase(dsn)) })
	return dsn
}

// newEmpty returns a database without rows. It is one that an earlier test has used, unless that has changed the
// schema: to create one takes a quarter of a second.
func newEmpty(t testing.TB) string {
	t.Helper()
	server.mu.Lock()
	defer server.mu.Unlock()
	var dsn string
	if n := len(server.free); n > 0 {
		dsn, server.free = server.free[n-1], server.free[:n-1]
	} else {
		dsn = createDatabase(t)
		s, err := Open(t.Context(), dsn, Config{})
		must(t, err)
		must(t, s.Close())
	}
	before := schema(t, dsn)
	t.Cleanup(func() {
		if schema(t, dsn) != before {
			must(t, dropDatabase(dsn))
			return
		}
		must(t, admin(dsn, `DO $$ BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(tablename, ', ') || ' RESTART IDENTITY' FROM pg_tables
			WHERE schemaname = 'public' AND tablename <> 'goose_db_version'); END $$;
			DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)`))
		server.mu.Lock()
		defer server.mu.Unlock()
		server.free = append(server.free, dsn)
	})
	return dsn
}

// schema returns a text that changes with the schema.
func schema(t testing.TB, dsn string) (s string) {
	t.Helper()
	db := rawDatabase(t, dsn)
	defer db.Close()
	must(t, db.QueryRow(`SELECT concat((SELECT sum(version_id) FROM goose_db_version), ' ', (SELECT sum(oid::bigint) FROM pg_class),
		' ', (SELECT sum(oid::bigint) FROM pg_trigger), ' ', (SELECT string_agg(xmin::text, ' ') FROM pg_proc WHERE oid > 16383))`).Scan(&s))
	return s
}

func createDatabase(t testing.TB) string {
	t.Helper()
	server.once.Do(startServer)
	pgtest.Need(t, server.err)
	name := fmt.Sprintf("frontier_%d_%04d", os.Getpid(), server.used.Add(1))
	must(t, admin(server.dsn, "CREATE DATABASE "+name))
	dsn, err := url.Parse(server.dsn)
	if err != nil {
		t.Fatalf("url.Parse(%q): %v", server.dsn, err)
	}
	dsn.Path = "/" + name
	return dsn.String()
}

func dropDatabase(dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	return admin(server.dsn, "DROP DATABASE "+strings.TrimPrefix(u.Path, "/")+" WITH (FORCE)")
}

func admin(dsn, query string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(query)
	return err
}

func startServer() {
	if server.dsn = os.Getenv("FRONTIER_TEST_POSTGRES"); server.dsn != "" {
		return
	}
	if server.ours, server.err = pgtest.Start("-c", "fsync=off", "-c", "max_connections=200"); server.err == nil {
		server.dsn = server.ours.DSN("postgres")
	}
}

// newBouncer starts a PgBouncer with fewer connections to the server than the tests have to it, and
// returns the address of the database behind it.
func newBouncer(t *testing.T, dsn string) string {
	t.Helper()
	behind, remove, err := pgtest.Bouncer(dsn, 3)
	pgtest.Need(t, err)
	t.Cleanup(remove)
	return behind
}

var unexpected = regexp.MustCompile(`(?m)^.*(ERROR|FATAL|PANIC|deadlock).*$`)

// serverLog returns a function that fails the test if the server has logged an error since.
func serverLog(t *testing.T) func() {
	t.Helper()
	if server.ours == nil {
		return func() {}
	}
	before, err := os.ReadFile(server.ours.LogFile())
	if err != nil {
		t.Fatalf("read the server's log: %v", err)
	}
	return func() {
		t.Helper()
		after, err := os.ReadFile(server.ours.LogFile())
		if err != nil {
			t.Fatalf("read the server's log: %v", err)
		}
		for _, line := range unexpected.FindAllString(string(after[len(before):]), -1) {
			t.Errorf("the server logged: %s", line)
		}
	}
}

// A writer that ignores the order of locks can insert the final URL between the check and the
// update. Then the constraint decides.
func TestPostgresViolationIsCaught(t *testing.T) {
	f := open(t, newEmpty(t))
	f.put("http://a.test/1")
	f.exec(`INSERT INTO hosts (host) VALUES ('b.test')`)
	c := f.claim(1)[0]
	other, err := f.db().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	b, err := normalise("http://b.test/", false)
	if err != nil {
		t.Fatalf("normalise: %v", err)
	}
	// host_id is that of a.test. Otherwise the update would wait for the key of b.test's row and
	// not for the URL.
	if _, err := other.Exec(`INSERT INTO urls (host_id, url, url_hash) SELECT host_id, $1, $2 FROM urls`, b.URL, b.hash); err == nil {
		t.Cleanup(func() { _ = other.Rollback() })
	} else {
		t.Fatalf("insert: %v", err)
	}
	recorded := make(chan error, 1)
	go func() {
		recorded <- f.record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched, FinalURL: b.URL})
	}()
	f.until(`SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%frontier_record%' AND datname = current_database()`)
	if err := other.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if err := <-recorded; err != nil {
		t.Fatalf("RecordFetch = %v, want nil", err)
	}
	if got := f.url("http://a.test/1"); got.Status != Fetched {
		t.Errorf("status = %s, want fetched", got.Status)
	}
}

// TestPostgresRecordNextToPruneHosts checks that a URL gets its final URL although the host of that is
// deleted at the same time.
func TestPostgresRecordNextToPruneHosts(t *testing.T) {
	f := open(t, newEmpty(t))
	f.put("http://a.test/")
	f.exec(`INSERT INTO hosts (host) VALUES ('b.test')`)
	c := f.claim(1)[0]
	prune, err := f.db().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = prune.Rollback() }() // after a failure
	if _, err := prune.Exec(`SELECT frontier_prune_hosts(array_agg(id), 0) FROM hosts`); err != nil {
		t.Fatal(err)
	}
	recorded := make(chan error, 1)
	go func() {
		recorded <- f.record(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token}, Status: Fetched, FinalURL: "http://b.test/"})
	}()
	f.until(`SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%frontier_record%' AND datname = current_database()`)
	must(t, prune.Commit())
	if err := <-recorded; err != nil {
		t.Fatalf("RecordFetch = %v, want nil", err)
	}
	if got := f.url("http://b.test/"); got.Host != "b.test" || got.Status != Fetched {
		t.Errorf("the URL is %s of %s, want it fetched of b.test", got.Status, got.Host)
	}
}

// The owner of a host's lock may lock its URLs next, so AbortHost waits for the host first.
func TestPostgresAbortHostLocksTheHostFirst(t *testing.T) {
	f := open(t, newEmpty(t))
	f.put("http://a.test/1", "http://a.test/2")
	other, err := f.db().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	t.Cleanup(func() { _ = other.Rollback() })
	if _, err := other.Exec(`SELECT 1 FROM hosts WHERE host = 'a.test' FOR UPDATE`); err != nil {
		t.Fatalf("lock the host: %v", err)
	}
	ended := make(chan int64, 1)
	go func() {
		n, err := f.AbortHost(t.Context(), "a.test", "x", "given up")
		if err != nil {
			t.Errorf("AbortHost = %v", err)
		}
		ended <- n
	}()
	f.until(`SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%abort%' AND datname = current_database()`)
	if _, err := other.Exec(`UPDATE urls SET status = 'fetched' WHERE url LIKE '%/1'`); err != nil {
		t.Fatalf("update a URL of the host: %v", err)
	}
	if err := other.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	if n := <-ended; n != 1 {
		t.Errorf("AbortHost = %d, want the one URL that waits still", n)
	}
}
