package store

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fixture is a frontier with the helpers of a test.
type fixture struct {
	engine
	t   testing.TB
	dsn string
}

// onBoth runs a test on an empty frontier of each kind.
func onBoth(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, open(t, filepath.Join(t.TempDir(), "frontier.db"))) })
	t.Run("postgres", func(t *testing.T) { test(t, open(t, newEmpty(t))) })
}

func open(t testing.TB, dsn string) *fixture {
	t.Helper()
	r, err := Open(t.Context(), dsn, Config{Delay: time.Hour})
	if err != nil {
		t.Fatalf("Open(%s) = %v", dsn, err)
	}
	t.Cleanup(func() { r.Close() })
	return newFixture(t, r, dsn)
}

// newFixture returns a fixture of a store that Open has returned.
func newFixture(t testing.TB, s Store, dsn string) *fixture {
	return &fixture{engine: s.(engine), t: t, dsn: dsn} //nolint:errcheck // Open returns no other
}

// rawDatabase opens a database without its schema.
func rawDatabase(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	driver := "pgx"
	if !strings.HasPrefix(dsn, "postgres:") {
		driver, dsn = "sqlite", "file:"+dsn
	}
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// in returns f for a subtest.
func (f *fixture) in(t testing.TB) *fixture {
	return newFixture(t, f.engine, f.dsn)
}

func (f *fixture) db() *sql.DB { return f.base().db.DB }

func (f *fixture) exec(query string, args ...any) {
	f.t.Helper()
	if _, err := f.base().db.Update(context.Background(), "exec", query, args...); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
}

func (f *fixture) number(query string) int64 {
	f.t.Helper()
	var n int64
	if err := f.db().QueryRow(f.base().db.Translate(query)).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// until waits until the query returns true.
func (f *fixture) until(query string) {
	f.t.Helper()
	for range 1000 {
		var ok bool
		if err := f.db().QueryRow(query).Scan(&ok); err != nil {
			f.t.Fatalf("%s: %v", query, err)
		}
		if ok {
			return
		}
		pause(f.t, 5*time.Millisecond)
	}
	f.t.Fatalf("%s: never", query)
}

func (f *fixture) put(urls ...string) PutResult {
	f.t.Helper()
	r, err := f.Put(context.Background(), Entries(urls...), Limits{})
	if err != nil {
		f.t.Fatalf("Put(%q) = %v", urls, err)
	}
	return r
}

// claim fails the test unless a claim of at most 100 URLs returns n.
func (f *fixture) claim(n int) []Claim {
	f.t.Helper()
	claims, err := f.Claim(context.Background(), ClaimParams{Limit: 100, Worker: "test"})
	if err != nil || len(claims) != n {
		f.t.Fatalf("Claim = %v, %v, want %d URLs", claims, err, n)
	}
	return claims
}

// record records one fetch.
func (f *fixture) record(fetch Fetch) error {
	each, err := f.RecordFetch(context.Background(), []Fetch{fetch})
	return errors.Join(append(each, err)...)
}

func (f *fixture) mustRecord(fetch Fetch) {
	f.t.Helper()
	must(f.t, f.record(fetch))
}

func (f *fixture) fetched(c Claim) {
	f.t.Helper()
	f.mustRecord(Fetch{ID: c.ID, FetchedParams: FetchedParams{Token: c.Token, HTTPStatus: 200, Attempts: 1}, Status: Fetched})
}

func (f *fixture) why(url string) Explanation {
	f.t.Helper()
	e, err := f.Why(context.Background(), url)
	if err != nil {
		f.t.Fatalf("Why(%s) = %v", url, err)
	}
	return e
}

func (f *fixture) url(url string) URL { f.t.Helper(); return f.why(url).URL }

// wantNext fails the test unless host has nothing in flight and is due after d, within the
// precision of a test. Zero means now.
func (f *fixture) wantNext(host string, d time.Duration) {
	f.t.Helper()
	const which = ` FROM hosts WHERE host = `
	if n := f.number(`SELECT in_flight` + which + `'` + host + `'`); n != 0 {
		f.t.Errorf("%s: %d in flight, want 0", host, n)
	}
	for _, column := range []string{"next_at", "due_at"} {
		left := max(0, f.number(`SELECT `+column+` - {now}`+which+`'`+host+`'`))
		if got := (time.Duration(left) * time.Millisecond).Round(10 * time.Minute); got != d {
			f.t.Errorf("%s: %s in %v, want %v", host, column, got, d)
		}
	}
}

// openHosts ends every delay and every block.
func (f *fixture) openHosts() {
	f.t.Helper()
	f.exec(`UPDATE hosts SET next_at = 0, blocked_until = 0, due_at = 0`)
}

func (f *fixture) expire() { f.t.Helper(); f.exec(`UPDATE urls SET lease_until = 1`) }

// pause waits for the database's clock, which is outside of any bubble.
func pause(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended")
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
