package store

import (
	"database/sql"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"fetchd/test/rig/pgtest"
)

// statements counts what a server does, with pg_stat_statements: also the statements in functions.
type statements struct {
	*pgtest.Server
	*sql.DB
	databases int
}

func countStatements(t *testing.T) *statements {
	t.Helper()
	server, err := pgtest.Start("-c", "fsync=off", "-c", "shared_preload_libraries=pg_stat_statements", "-c", "pg_stat_statements.track=all")
	pgtest.Need(t, err)
	t.Cleanup(server.Remove)
	db, err := sql.Open("pgx", server.DSN("postgres"))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	s := &statements{Server: server, DB: db}
	s.run(t, `CREATE EXTENSION pg_stat_statements`)
	return s
}

func (s *statements) run(t *testing.T, query string) {
	t.Helper()
	_, err := s.Exec(query)
	must(t, err)
}

// newDatabases returns the connection strings of new databases.
func (s *statements) newDatabases(t *testing.T, n int) (dsns []string) {
	t.Helper()
	for range n {
		s.databases++
		name := fmt.Sprintf("counted_%d", s.databases)
		s.run(t, `CREATE DATABASE `+name)
		dsns = append(dsns, s.DSN(name))
	}
	return dsns
}

// work is what some calls have caused.
type work struct{ Calls, Statements, Rows int64 }

// of returns what f causes in all databases. It leaves out the constant function frontier_shard, which is called when a
// statement is planned, and the table of slots, which is read again from time to time.
func (s *statements) of(t *testing.T, f func()) (w work) {
	t.Helper()
	s.run(t, `SELECT pg_stat_statements_reset()`)
	f()
	must(t, s.QueryRow(`SELECT COALESCE(sum(calls) FILTER (WHERE toplevel), 0), COALESCE(sum(calls), 0), COALESCE(sum(rows), 0) FROM pg_stat_statements AS s
		JOIN pg_database AS d ON d.oid = s.dbid WHERE d.datname LIKE 'counted%' AND query <> 'SELECT $1::bigint' AND query NOT LIKE 'SELECT COALESCE((SELECT value FROM settings%'`).Scan(&w.Calls, &w.Statements, &w.Rows))
	return w
}

// openSchema opens a database with the schema of a version.
func openSchema(t *testing.T, dsn string, version string) *Store {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations, "migrations/postgres/*.sql")
	must(t, err)
	for _, path := range names {
		name := path[strings.LastIndex(path, "/")+1:]
		if name[:len(version)] <= version {
			text, err := fs.ReadFile(migrations, path)
			must(t, err)
			files[name] = &fstest.MapFile{Data: text}
		}
	}
	config, err := databaseConfig(Config{}, "postgres", postgresWords)
	must(t, err)
	config.Migrations = files
	s, err := openPostgres(t.Context(), dsn, config, 0)
	must(t, err)
	return s
}

// TestStatements compares the statements and rows of puts, claims and outcomes: before the schema for many databases,
// and with one, two and four of them. They must be the same for each. Only a redirect into another database and groups cost more.
func TestStatements(t *testing.T) {
	t.Parallel()
	const hosts, batch, batches = 4096, 128, 8
	server := countStatements(t)
	var first map[string]work
	for _, row := range []struct {
		name      string
		databases int
		version   string
		groups    string
	}{
		{"version 8", 1, "00008", ByHost},
		{"one database", 1, "", ByHost},
		{"two databases", 2, "", ByHost},
		{"four databases", 4, "", ByHost},
		{"groups", 1, "", ByDomain},
		{"groups in four", 4, "", ByDomain},
	} {
		dsns := server.newDatabases(t, row.databases)
		var s *Store
		var err error
		if row.version != "" {
			s = openSchema(t, dsns[0], row.version)
		} else {
			groups, wrong := NewGrouping(row.groups, nil)
			must(t, wrong)
			s, err = Open(t.Context(), dsns[0], Config{Groups: groups}, dsns[1:]...)
			must(t, err)
		}
		got := map[string]work{}
		var urls []string
		for n := range hosts {
			urls = append(urls, fmt.Sprintf("http://h%d.test/", n))
		}
		_, err = s.Put(t.Context(), Entries(urls...), Limits{})
		must(t, err)
		// Each batch of links is to one host. Those to several databases are as many calls.
		got["put"] = server.of(t, func() {
			for n := range batches {
				var urls []string
				for i := range batch {
					urls = append(urls, fmt.Sprintf("http://h%d.test/%d", n, i))
				}
				_, err := s.Put(t.Context(), Entries(urls...), Limits{})
				must(t, err)
			}
		})
		claims := make([][]Claim, 2*batches)
		got["claim"] = server.of(t, func() {
			for n := range claims {
				claims[n], err = s.Claim(t.Context(), ClaimParams{Limit: batch, Worker: "test"})
				must(t, err)
				if len(claims[n]) != batch {
					t.Fatalf("%s: %d claims, want %d", row.name, len(claims[n]), batch)
				}
			}
		})
		record := func(claims [][]Claim, final func(host string) string) func() {
			return func() {
				for _, some := range claims {
					fetches := make([]Fetch, len(some))
					for i, c := range some {
						fetches[i] = Fetch{ID: c.ID, Status: Fetched, FinalURL: final(c.Host), FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1, Duration: time.Second}}
					}
					each, err := s.RecordFetch(t.Context(), fetches)
					must(t, err)
					for _, err := range each {
						must(t, err)
					}
				}
			}
		}
		got["outcome"] = server.of(t, record(claims[:batches], func(string) string { return "" }))
		got["redirect"] = server.of(t, record(claims[batches:], func(host string) string { return "http://final-" + host + "/" }))
		must(t, s.Close())
		for _, what := range []string{"put", "claim", "outcome", "redirect"} {
			w, urls := got[what], int64(batch*batches)
			if what == "claim" {
				urls *= 2
			}
			t.Logf("%-15s %-8s %3d calls; a URL: %.4f statements, %.3f rows", row.name, what, w.Calls, float64(w.Statements)/float64(urls), float64(w.Rows)/float64(urls))
			if what == "redirect" && row.databases > 1 || row.groups != ByHost {
				continue
			}
			if first != nil && w != first[what] {
				t.Errorf("%s: %s: %+v, want %+v as before", row.name, what, w, first[what])
			}
		}
		if first == nil {
			first = got
		}
	}
}
