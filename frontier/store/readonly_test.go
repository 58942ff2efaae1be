package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"fetchd/test/need"
)

// readable fails the test unless the frontier at dsn, which has the URL http://a.test/ and an outcome,
// can be read.
func readable(t *testing.T, dsn string) {
	t.Helper()
	s, err := Open(t.Context(), dsn, Config{ReadOnly: true})
	must(t, err)
	f := newFixture(t, s, dsn)
	if n, err := f.Counts(t.Context()); n.Fetched != 1 || err != nil {
		t.Errorf("Counts = %+v, %v; want one URL", n, err)
	}
	f.url("http://a.test/")
	rows := 0
	for _, err := range f.URLs(t.Context()) {
		if rows++; err != nil {
			t.Errorf("URLs: %v", err)
		}
	}
	for _, err := range f.Fetches(t.Context()) {
		if rows++; err != nil {
			t.Errorf("Fetches: %v", err)
		}
	}
	if rows != 2 {
		t.Errorf("%d rows, want a URL and an outcome", rows)
	}
	if robots := f.robots("http://a.test"); string(robots.Body) != "x" {
		t.Errorf("Robots = %+v", robots)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// notWritable fails the test unless a program that writes is refused at the start.
func notWritable(t *testing.T, dsn, why string) {
	t.Helper()
	s, err := Open(t.Context(), dsn, Config{})
	if err == nil {
		err = s.Close()
	}
	if !errors.Is(err, ErrReadOnly) || !strings.Contains(fmt.Sprint(err), why) {
		t.Errorf("Open = %v, want %v: %s", err, ErrReadOnly, why)
	}
}

// toRead gives f what readable expects.
func (f *fixture) toRead() {
	f.t.Helper()
	f.put("http://a.test/")
	f.saveRobots("http://a.test")
	f.fetched(f.claim(1)[0])
}

// TestPostgresRoleThatReads opens a frontier with a role that has only SELECT.
func TestPostgresRoleThatReads(t *testing.T) {
	f := open(t, newPostgres(t))
	f.toRead()
	dsn, err := url.Parse(f.dsn)
	must(t, err)
	owner, role := dsn.User, "reader"+strings.TrimPrefix(dsn.Path, "/")
	f.exec(`CREATE ROLE ` + role + ` LOGIN`)
	defer f.exec(`DROP ROLE ` + role)
	f.exec(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ` + role)
	defer f.exec(`DROP OWNED BY ` + role)
	dsn.User = url.User(role)
	readable(t, dsn.String())
	s, err := Open(t.Context(), dsn.String(), Config{ReadOnly: true})
	must(t, err)
	defer s.Close()
	if _, err := s.Put(t.Context(), Entries("http://b.test/"), Limits{}); err == nil {
		t.Error("the role can put a URL, so the test shows nothing")
	}
	notWritable(t, dsn.String(), "the role may not update the table urls")
	dsn.User = owner
	dsn.RawQuery += "&default_transaction_read_only=on"
	notWritable(t, dsn.String(), "default_transaction_read_only is on")
}

// TestPostgresStandby opens a frontier on a hot standby.
func TestPostgresStandby(t *testing.T) {
	f := open(t, newPostgres(t))
	if server.ours == nil {
		need.Request(t, "run it without FRONTIER_TEST_POSTGRES", "the server is not ours, so it may not allow a standby")
	}
	f.toRead()
	standby, err := server.ours.Standby()
	must(t, err)
	t.Cleanup(standby.Remove)
	at, err := url.Parse(f.dsn)
	must(t, err)
	dsn := standby.DSN(strings.TrimPrefix(at.Path, "/"))
	readable(t, dsn)
	s, err := Open(t.Context(), dsn, Config{ReadOnly: true})
	must(t, err)
	defer s.Close()
	if err := s.Pause(t.Context(), ""); err == nil || !strings.Contains(fmt.Sprint(err), "read-only") {
		t.Errorf("Pause on a standby = %v, want an error about a read-only transaction", err)
	}
	notWritable(t, dsn, "this server is a standby")
}

// TestPostgresIsolation checks that a default other than read committed is refused.
func TestPostgresIsolation(t *testing.T) {
	dsn := newPostgres(t)
	open(t, dsn)
	for _, row := range []struct {
		level string
		want  error
	}{{"repeatable read", ErrIsolation}, {"serializable", ErrIsolation}, {"read committed", nil}} {
		s, err := Open(t.Context(), dsn+"&default_transaction_isolation="+url.PathEscape(row.level), Config{})
		if !errors.Is(err, row.want) {
			t.Errorf("%s: Open = %v, want %v", row.level, err, row.want)
		}
		if err == nil {
			s.Close()
		}
	}
}

// TestPostgresConnections counts the connections of a busy store.
func TestPostgresConnections(t *testing.T) {
	dsn := newPostgres(t)
	f := open(t, dsn)
	for _, limit := range []int{1, 3} {
		s, err := Open(t.Context(), dsn+fmt.Sprintf("&application_name=limit%d", limit), Config{Connections: limit})
		must(t, err)
		ended := make(chan error)
		const calls = 10
		for range calls {
			go func() {
				_, err := newFixture(t, s, dsn).db().ExecContext(context.Background(), `SELECT pg_sleep(0.05)`)
				ended <- err
			}()
		}
		most := int64(0)
		for left := calls; left > 0; {
			select {
			case err := <-ended:
				if left--; err != nil {
					t.Error(err)
				}
			case <-time.After(time.Millisecond):
			}
			most = max(most, f.number(fmt.Sprintf(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'limit%d'`, limit)))
		}
		if most != int64(limit) {
			t.Errorf("at most %d connections, want %d", most, limit)
		}
		s.Close()
	}
}
