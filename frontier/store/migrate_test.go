package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// second is a migration that only tests have, so that the first real one is not the first that is tested.
var second = map[string]string{
	"sqlite": "-- +goose Up\nALTER TABLE urls ADD COLUMN second INTEGER NOT NULL DEFAULT 2;\n",
	"postgres": "-- +goose Up\nSELECT frontier_lock_tables();\n" +
		"ALTER TABLE fetches ADD COLUMN second BIGINT NOT NULL DEFAULT 2;\nALTER TABLE urls ADD COLUMN second BIGINT NOT NULL DEFAULT 2;\n" +
		"ALTER TABLE hosts ADD COLUMN second BIGINT NOT NULL DEFAULT 2;\n",
}

// openSecond opens a frontier as a later version does, which has the second migration.
func openSecond(ctx context.Context, dsn string, config Config) (Store, error) {
	folder := fstest.MapFS{}
	for kind, text := range second {
		path := "migrations/" + kind + "/00001_frontier.sql"
		first, err := fs.ReadFile(migrations, path)
		if err != nil {
			return nil, err
		}
		folder[path] = &fstest.MapFile{Data: first}
		folder["migrations/"+kind+"/00002_second.sql"] = &fstest.MapFile{Data: []byte(text)}
	}
	return openDatabase(ctx, dsn, config, folder)
}

// TestMigrate checks that a later version keeps what is in the database, that a worker that started before the migration
// continues, and that an earlier version does not start any more.
func TestMigrate(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.put("http://a.test/1", "http://b.test/")
		f.fetched(f.claim(2)[0])
		if _, err := openSecond(t.Context(), f.dsn, Config{ReadOnly: true}); !errors.Is(err, ErrOlderSchema) || !strings.Contains(fmt.Sprint(err), "its schema is version 1, this program needs 2") {
			t.Errorf("a later version that only reads: Open = %v, want %v", err, ErrOlderSchema)
		}
		s, err := openSecond(t.Context(), f.dsn, Config{})
		must(t, err)
		later := newFixture(t, s, f.dsn)
		defer func() { must(t, s.Close()) }()
		if n := later.number(`SELECT sum(second) FROM urls`); n != 4 {
			t.Errorf("the sum of the new column is %d, want 2 for each URL", n)
		}
		f.put("http://a.test/2")
		f.expire()
		if n, err := f.Reap(t.Context()); n != 1 || err != nil {
			t.Errorf("Reap of the earlier version = %d, %v, want the claim that was open", n, err)
		}
		f.openHosts()
		claims := f.claim(2)
		f.fetched(claims[0])
		later.fetched(claims[1])
		if u := later.url(claims[0].URL); u.Status != Fetched {
			t.Errorf("%+v, want it fetched", u)
		}
		f.wantSoundHosts("at the end")
		for _, readOnly := range []bool{false, true} {
			if _, err := Open(t.Context(), f.dsn, Config{ReadOnly: readOnly}); !errors.Is(err, ErrNewerSchema) {
				t.Errorf("the earlier version: Open = %v, want %v", err, ErrNewerSchema)
			}
		}
	})
}

// TestNoMigrationToRead checks that a database that is no frontier does not become one if it is opened to read it.
func TestNoMigrationToRead(t *testing.T) {
	for kind, dsn := range map[string]string{"sqlite": filepath.Join(t.TempDir(), "frontier.db"), "postgres": newPostgres(t)} {
		t.Run(kind, func(t *testing.T) {
			db := rawDatabase(t, dsn)
			_, err := db.ExecContext(t.Context(), `CREATE TABLE other (id BIGINT)`)
			must(t, err)
			if _, err := Open(t.Context(), dsn, Config{ReadOnly: true}); !errors.Is(err, ErrOlderSchema) || !strings.Contains(fmt.Sprint(err), "it has no frontier yet") {
				t.Errorf("Open = %v, want %v: it has no frontier yet", err, ErrOlderSchema)
			}
			if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM goose_db_version`).Scan(new(int)); err == nil {
				t.Error("there is a version, although the database was only read")
			}
			open(t, dsn)
			if s, err := Open(t.Context(), dsn, Config{ReadOnly: true}); err != nil {
				t.Errorf("Open after the migration = %v", err)
			} else {
				s.Close()
			}
		})
	}
}

// TestMigrateBesideTransactions checks that a migration waits for transactions that use the tables, in
// whichever order, and that none of them ends in a deadlock.
func TestMigrateBesideTransactions(t *testing.T) {
	for _, row := range []struct{ first, second string }{{"hosts", "urls"}, {"urls", "hosts"}, {"urls", "fetches"}, {"fetches", "urls"}} {
		t.Run(row.first+" before "+row.second, func(t *testing.T) {
			f := open(t, newPostgres(t))
			tx, err := f.db().BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { _ = tx.Rollback() }() // it was committed
			if _, err := tx.Exec(`SELECT 1 FROM ` + row.first); err != nil {
				t.Fatal(err)
			}
			migrated := make(chan error, 1)
			go func() {
				s, err := openSecond(context.WithoutCancel(t.Context()), f.dsn, Config{})
				if err == nil {
					err = s.Close()
				}
				migrated <- err
			}()
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
