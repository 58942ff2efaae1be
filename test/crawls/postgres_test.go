//go:build linux

package crawls

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"fetchd/test/rig"
)

// postgres is a private server that can be stopped. It writes commits to disk, because fsync
// is on.
type postgres struct {
	*testing.T
	dir, binary string
	as          *syscall.Credential // the user it runs as; nil for the current one
	cmd         *exec.Cmd           // nil while it is stopped
}

// newPostgres starts a server until the test ends.
func newPostgres(ctx context.Context, t *testing.T) *postgres {
	t.Helper()
	initdb, err := serverProgram("initdb")
	if err != nil {
		rig.Cannot(t, "PostgreSQL is not installed: %v", err)
	}
	p := &postgres{T: t}
	if p.binary, err = serverProgram("postgres"); err != nil {
		rig.Cannot(t, "PostgreSQL is not installed: %v", err)
	}
	// The server's user could not enter t.TempDir.
	if p.dir, err = os.MkdirTemp("", "crawlspg"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(p.dir) })
	p.become()
	init := exec.CommandContext(ctx, initdb, "-D", p.data(), "-U", "frontier", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	init.Dir, init.SysProcAttr = p.dir, &syscall.SysProcAttr{Credential: p.as}
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	p.start(ctx)
	t.Cleanup(p.crash)
	return p
}

// databases are the kinds of databases. Each function returns the connection string of a new one.
var databases = map[string]func(context.Context, *testing.T) string{
	"sqlite":   func(_ context.Context, t *testing.T) string { return filepath.Join(t.TempDir(), "frontier.db") },
	"postgres": func(ctx context.Context, t *testing.T) string { return newPostgres(ctx, t).dsn() },
}

// serverProgram finds a program of PostgreSQL. Debian installs them outside the PATH.
func serverProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	found, globErr := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if globErr != nil || len(found) == 0 {
		return "", err
	}
	return found[len(found)-1], nil
}

// become gives the folder to another user if this one is root, as which PostgreSQL does not run.
func (p *postgres) become() {
	p.Helper()
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			p.Fatal(err)
		}
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err1 != nil || err2 != nil {
		p.Fatalf("user %s has the ids %s and %s", u.Username, u.Uid, u.Gid)
	}
	p.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Chown(p.dir, int(uid), int(gid)); err != nil {
		p.Fatal(err)
	}
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }
func (p *postgres) log() string  { return filepath.Join(p.dir, "log") }

// dsn returns the connection string of the server's database.
func (p *postgres) dsn() string {
	u := url.URL{Scheme: "postgres", User: url.User("frontier"), Path: "/postgres", RawQuery: url.Values{"host": {p.dir}}.Encode()}
	return u.String()
}

// start runs the server and waits until it answers.
func (p *postgres) start(ctx context.Context) {
	p.Helper()
	log, err := os.OpenFile(p.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(p.binary, "-D", p.data(), "-k", p.dir, "-c", "listen_addresses=")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as, Pdeathsig: syscall.SIGQUIT}
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.answers(ctx, p.dsn())
}

// answers waits until the server or the PgBouncer of a connection string answers.
func (p *postgres) answers(ctx context.Context, dsn string) {
	p.Helper()
	db, err := sql.Open("pgx", dsn+"&default_query_exec_mode=exec") // PgBouncer knows no prepared statements
	if err != nil {
		p.Fatal(err)
	}
	defer db.Close()
	rig.Until(ctx, p.T, dsn+" answers", func() bool { return db.PingContext(ctx) == nil })
}

// crash does what pg_ctl stop -m immediate does: every process of the server ends at once,
// and the next start recovers.
func (p *postgres) crash() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended
	_ = p.cmd.Wait()                          // it returns the crash as an error
	p.cmd = nil
}

var (
	serverError = regexp.MustCompile(`(?m)^.*(ERROR|FATAL|PANIC|deadlock).*$`)
	// expectedError matches errors caused by a crash, or by a program that ends during a statement.
	expectedError = regexp.MustCompile(`the database system is (starting up|shutting down|in recovery mode|not yet accepting connections)|` +
		`terminating connection|connection to client lost|canceling statement due to user request`)
)

// logged fails the test for logged errors that a crash does not explain.
func (p *postgres) logged() {
	p.Helper()
	text, err := os.ReadFile(p.log())
	if err != nil {
		p.Fatal(err)
	}
	for _, line := range serverError.FindAllString(string(text), -1) {
		if !expectedError.MatchString(line) {
			p.Errorf("the server logged: %s", line)
		}
	}
	if !regexp.MustCompile(`automatic recovery in progress`).Match(text) {
		p.Errorf("the server has not recovered from a crash, so the test did not cause one")
	}
}
