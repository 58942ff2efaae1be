package store

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3"
)

// TestOlderSchema checks that a database of version 3 keeps its fetches, without what version 4 has
// added, and takes those of a worker that started before it was migrated.
func TestOlderSchema(t *testing.T) {
	for _, row := range []struct {
		name, driver string
		dialect      goose.Dialect
		dsn          func(t *testing.T) (open, raw string)
	}{
		{"sqlite", "sqlite", goose.DialectSQLite3, func(t *testing.T) (string, string) {
			path := filepath.Join(t.TempDir(), "frontier.db")
			return path, "file:" + path
		}},
		{"postgres", "pgx", goose.DialectPostgres, func(t *testing.T) (string, string) {
			dsn := newPostgres(t)
			return dsn, dsn
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dsn, raw := row.dsn(t)
			db, err := sql.Open(row.driver, raw)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			files, err := fs.Sub(migrations, "migrations/"+row.name)
			if err != nil {
				t.Fatal(err)
			}
			p, err := goose.NewProvider(row.dialect, db, files, goose.WithDisableGlobalRegistry(true))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.UpTo(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			const insert = `INSERT INTO fetches (url_id, token, url, final_url, status, http_status, error_class, last_error, attempts,
				retry_count, duration_ms, wait_ms, bytes, body_digest, ended_at) VALUES (1, 1, 'http://a.test/', '', 'fetched', 200, '', '', 1, 0, 5, 0, 7, 'd', 9)`
			for _, query := range []string{`INSERT INTO hosts (host) VALUES ('a.test')`,
				`INSERT INTO urls (host_id, url, url_hash) VALUES (1, 'http://a.test/', '1')`, insert} {
				if _, err := db.ExecContext(t.Context(), query); err != nil {
					t.Fatalf("%s: %v", query, err)
				}
			}
			f := open(t, dsn)
			if _, err := db.ExecContext(t.Context(), insert); err != nil {
				t.Errorf("an older program cannot record: %v", err)
			}
			if row.name == "postgres" {
				f.exec(`UPDATE urls SET status = 'fetching', token = 3`)
				f.exec(`UPDATE hosts SET in_flight = 1`)
				old := `[{"id":1,"token":3,"status":"fetched","final_url":"","last_error":"","error_class":"","retry_in_ms":0,"http_status":200,"attempts":1,` +
					`"retry_count":0,"duration_ms":5,"wait_ms":0,"bytes":7,"etag":"","last_modified":"","body_digest":"d","whole":true}]`
				if _, err := db.ExecContext(t.Context(), `SELECT frontier_record($1, 0)`, old); err != nil {
					t.Errorf("an older worker cannot record: %v", err)
				}
			}
			rows := 0
			for got, err := range f.Fetches(t.Context()) {
				if rows++; err != nil || got.BodyDigest != "d" || got.Content != (Content{}) {
					t.Errorf("%+v, %v; want the old row without content", got, err)
				}
			}
			if want := map[string]int{"sqlite": 2, "postgres": 3}[row.name]; rows != want {
				t.Errorf("%d rows, want %d", rows, want)
			}
		})
	}
}
