package store

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"fetchd/frontier/store/database"
)

// TestOlderSchema checks that a database of any earlier version keeps its fetches, without what later
// versions have added, and that a worker that started before it was migrated can continue.
func TestOlderSchema(t *testing.T) {
	const newest = 10
	for version := int64(1); version < newest; version++ {
		if version != 9 { // only of PostgreSQL
			t.Run(fmt.Sprintf("sqlite %d", version), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "frontier.db")
				migrateFrom(t, version, goose.DialectSQLite3, "sqlite", path, "file:"+path)
			})
		}
		t.Run(fmt.Sprintf("postgres %d", version), func(t *testing.T) {
			dsn := newPostgres(t)
			migrateFrom(t, version, goose.DialectPostgres, "postgres", dsn, dsn)
		})
	}
}

// TestOriginsInMidCrawl checks that a crawl of version 7, whose host an unreachable robots.txt of https has closed, goes
// on by origins, and that a worker of that version leaves out URLs that are deferred.
func TestOriginsInMidCrawl(t *testing.T) {
	midCrawl := func(t *testing.T, dialect goose.Dialect, driver, dsn, raw string) *fixture {
		t.Helper()
		db, p := unmigrated(t, dialect, driver, raw)
		if _, err := p.UpTo(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		now := strings.NewReplacer("{now}", map[string]string{"pgx": "frontier_now()", "sqlite": "CAST(unixepoch('subsec') * 1000 AS INTEGER)"}[driver])
		for _, query := range []string{
			`INSERT INTO hosts (host, due_at, next_at, blocked_until) VALUES ('a.test', {now} + 300000, 1, {now} + 300000)`,
			`INSERT INTO urls (host_id, url, url_hash, priority) VALUES (1, 'https://a.test/1', '1', 1), (1, 'http://a.test/2', '2', 0), (1, 'http://a.test/3', '3', 0)`,
			`INSERT INTO robots (origin, saved_at, status, error_class, unreachable_since) VALUES ('https://a.test', {now}, 0, 'connect_refused', {now} - 600000)`,
			`UPDATE urls SET status = 'fetched', fetched_at = 1 WHERE id = 3`,
		} {
			if _, err := db.ExecContext(t.Context(), now.Replace(query)); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		}
		return open(t, dsn)
	}
	check := func(t *testing.T, f *fixture) {
		t.Helper()
		if r := f.robots("https://a.test"); !r.Unreachable || r.ErrorText != "" || r.UnreachableFor < 9*time.Minute {
			t.Errorf("robots.txt = %+v, want it as it was", r)
		}
		if got, err := f.Counts(t.Context()); err != nil || got.Waits != (Waits{HostBlocked: 2}) {
			t.Errorf("Counts = %+v, %v, want two URLs of a closed host", got, err)
		}
		f.claim(0)
		if got := f.claimed(1); got != "s://a.test/1" { // a worker finds out that its robots.txt is unreachable
			t.Errorf("claimed %q, want the URL of the highest priority", got)
		}
		f.deferOrigin("https://a.test", time.Hour)
		if got := f.claimed(10); got != "://a.test/2" {
			t.Errorf("claimed %q, want only that of http", got)
		}
		f.wantSoundHosts("at the end")
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "frontier.db")
		check(t, midCrawl(t, goose.DialectSQLite3, "sqlite", path, "file:"+path))
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := newPostgres(t)
		f := midCrawl(t, goose.DialectPostgres, "pgx", dsn, dsn)
		check(t, f)
		f.openHosts()
		var url string
		if err := f.db().QueryRow(`SELECT url FROM frontier_take(10, 60000, 'of version 7')`).Scan(&url); err != nil || url != "http://a.test/2" {
			t.Errorf("a worker of version 7 claims %q, %v, want what is not deferred", url, err)
		}
	})
}

// unmigrated opens a database without migrating it.
func unmigrated(t *testing.T, dialect goose.Dialect, driver, raw string) (*sql.DB, *goose.Provider) {
	t.Helper()
	db, err := sql.Open(driver, raw)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	files, err := fs.Sub(migrations, "migrations/"+map[string]string{"sqlite": "sqlite", "pgx": "postgres"}[driver])
	must(t, err)
	p, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	must(t, err)
	return db, p
}

// migrateFrom opens a database of an earlier version. raw is its address for the driver.
func migrateFrom(t *testing.T, version int64, dialect goose.Dialect, kind, dsn, raw string) {
	t.Helper()
	driver := map[string]string{"sqlite": "sqlite", "postgres": "pgx"}[kind]
	db, p := unmigrated(t, dialect, driver, raw)
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	const insert = `INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts,
		retry_count, duration_ms, wait_ms, bytes, body_digest, ended_at) VALUES (1, 1, 'http://a.test/', '', 'fetched', 200, '', '', 1, 0, 5, 0, 7, 'd', 9)`
	for _, query := range []string{`INSERT INTO hosts (host, due_at) VALUES ('a.test', 0)`,
		`INSERT INTO urls (host_id, url, url_hash) VALUES (1, 'http://a.test/', '1')`, insert} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	f := open(t, dsn)
	if _, err := db.ExecContext(t.Context(), insert); err != nil {
		t.Errorf("an older program cannot record: %v", err)
	}
	want := 2
	if kind == "postgres" {
		olderWorker(t, f, db)
		want++
	}
	rows := 0
	for got, err := range f.Fetches(t.Context()) {
		if rows++; err != nil || got.BodyDigest != "d" || got.Content != (Content{}) || got.Archived != (Archived{}) {
			t.Errorf("%+v, %v; want the old row without content and record", got, err)
		}
	}
	if rows != want {
		t.Errorf("%d rows, want %d", rows, want)
	}
	f.exec(`UPDATE urls SET status = 'pending', ready_at = 0`)
	f.openHosts()
	if c := f.claim(1)[0]; c.Earlier != (Earlier{}) {
		t.Errorf("the claim has the earlier record %+v, want none", c.Earlier)
	}
}

// TestMigrateBesideTransactions checks that a migration waits for transactions that use the tables, in
// whichever order, and that none of them ends in a deadlock.
func TestMigrateBesideTransactions(t *testing.T) {
	for _, row := range []struct{ first, second string }{{"hosts", "urls"}, {"urls", "hosts"}, {"urls", "fetches"}, {"fetches", "urls"}} {
		t.Run(row.first+" before "+row.second, func(t *testing.T) {
			dsn := newPostgres(t)
			db, p := unmigrated(t, goose.DialectPostgres, "pgx", dsn)
			if _, err := p.UpTo(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { _ = tx.Rollback() }() // it was committed
			if _, err := tx.Exec(`SELECT 1 FROM ` + row.first); err != nil {
				t.Fatal(err)
			}
			migrated := make(chan error, 1)
			go func() {
				s, err := Open(t.Context(), dsn, Config{})
				if err == nil {
					err = s.Close()
				}
				migrated <- err
			}()
			f := &fixture{Store: &Store{core: &core{db: &database.DB{DB: db}}}, t: t}
			f.until(`SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
			if _, err := tx.Exec(`SELECT 1 FROM ` + row.second); err != nil {
				t.Errorf("the transaction: %v", err)
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			if err := <-migrated; err != nil {
				t.Errorf("the migration: %v", err)
			}
		})
	}
}

// olderWorker claims and records a URL as earlier programs do. What it fetches is not recorded in a
// WARC file, so the next fetch must not refer to a record of the content before.
func olderWorker(t *testing.T, f *fixture, db *sql.DB) {
	t.Helper()
	f.exec(`UPDATE urls SET earlier_record_id = 'urn:x'`)
	var id, token, failures, crashes int64
	var texts [5]string
	err := db.QueryRowContext(t.Context(), `SELECT * FROM frontier_claim(1, 60000, 'old')`).
		Scan(&id, &token, &texts[0], &texts[1], &failures, &crashes, &texts[2], &texts[3], &texts[4])
	if err != nil {
		t.Fatalf("an older worker cannot claim: %v", err)
	}
	fetch := fmt.Sprintf(`[{"id":%d,"token":%d,"status":"fetched","final_url":"","last_error":"","error_class":"","retry_in_ms":0,"http_status":200,"attempts":1,`+
		`"retry_count":0,"duration_ms":5,"wait_ms":0,"bytes":7,"etag":"","last_modified":"","body_digest":"d","whole":true}]`, id, token)
	if _, err := db.ExecContext(t.Context(), `SELECT frontier_record($1, 0)`, fetch); err != nil {
		t.Fatalf("an older worker cannot record: %v", err)
	}
}
