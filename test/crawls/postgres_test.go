//go:build linux

package crawls

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"fetchd/test/rig/pgtest"
)

// postgres is a private server that can be stopped. It writes commits to disk, because fsync
// is on.
type postgres struct {
	*testing.T
	*pgtest.Server
	crashed bool
}

// newPostgres starts a server until the test ends.
func newPostgres(t *testing.T) *postgres {
	t.Helper()
	s, err := pgtest.Start()
	pgtest.Need(t, err)
	t.Cleanup(s.Remove)
	return &postgres{T: t, Server: s}
}

func (p *postgres) dsn() string { return p.DSN("postgres") }

// bouncer starts a PgBouncer in front of the server, and returns the connection string of the database
// behind it. Workers have more connections to it than it has to the server.
func (p *postgres) bouncer() string {
	p.Helper()
	behind, remove, err := pgtest.Bouncer(p.dsn(), 6)
	pgtest.Need(p.T, err)
	p.Cleanup(remove)
	return behind
}

// kill crashes the server.
func (p *postgres) kill() {
	p.crashed = true
	p.Crash()
}

// restart starts the server after a crash, and waits until a connection string works.
func (p *postgres) restart(dsn string) {
	if err := errors.Join(p.Restart(), pgtest.Answers(dsn)); err != nil {
		p.Errorf("start PostgreSQL again: %v", err)
	}
}

// databases are the kinds of databases. Each function returns the connection string of a new one.
var databases = map[string]func(*testing.T) string{
	"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "frontier.db") },
	"postgres": func(t *testing.T) string { return newPostgres(t).dsn() },
}

var (
	serverError = regexp.MustCompile(`(?m)^.*(ERROR|FATAL|PANIC|deadlock).*$(\n.*(DETAIL|HINT|CONTEXT|STATEMENT):.*$(\n\t.*$)*)*`)
	// expectedError matches errors caused by a crash, by a program that ends during a statement, or by a lock that vacuum yields to.
	expectedError = regexp.MustCompile(`the database system is (starting up|shutting down|in recovery mode|not yet accepting connections)|` +
		`terminating connection|connection to client lost|canceling statement due to user request|canceling autovacuum task`)
)

// logged fails the test for logged errors that are neither expected nor explained by a crash.
func (p *postgres) logged() {
	p.Helper()
	text, err := os.ReadFile(p.LogFile())
	must(p, err)
	for _, line := range serverError.FindAllString(string(text), -1) {
		if !expectedError.MatchString(line) {
			p.Errorf("the server logged: %s", line)
		}
	}
	if p.crashed && !regexp.MustCompile(`automatic recovery in progress`).Match(text) {
		p.Errorf("the server has not recovered from a crash, so the test did not cause one")
	}
}
