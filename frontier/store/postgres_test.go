package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// server is a PostgreSQL for the tests of this package. The first test that needs it starts it.
var server struct {
	once sync.Once
	dsn  string // of an administrator; empty without a server
	log  string // a file; empty if the server is not ours
	why  string // why there is no server
	stop func()
	used atomic.Int64
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.stop != nil {
		server.stop()
	}
	os.Exit(code) //nolint:forbidigo // TestMain is a main.
}

// newPostgres creates an empty database.
func newPostgres(t testing.TB) string {
	t.Helper()
	server.once.Do(startServer)
	if server.dsn == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no PostgreSQL to test with: %s", server.why)
		}
		t.Skipf("no PostgreSQL to test with: %s", server.why)
	}
	name := fmt.Sprintf("frontier_%d_%d", os.Getpid(), server.used.Add(1))
	admin(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { admin(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	dsn, err := url.Parse(server.dsn)
	if err != nil {
		t.Fatalf("url.Parse(%q): %v", server.dsn, err)
	}
	dsn.Path = "/" + name
	return dsn.String()
}

func admin(t testing.TB, query string) {
	t.Helper()
	db, err := sql.Open("pgx", server.dsn)
	if err != nil {
		t.Fatalf("open %s: %v", server.dsn, err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func startServer() {
	if server.dsn = os.Getenv("FRONTIER_TEST_POSTGRES"); server.dsn != "" {
		return
	}
	if err := runServer(); err != nil {
		server.why = fmt.Sprint(err)
	}
}

// runServer starts a private server on a socket in its own directory. It runs as the owner of the
// directory, because PostgreSQL does not run as root.
func runServer() error {
	initdb, err := program("initdb")
	if err != nil {
		return err
	}
	postgres, err := program("postgres")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "frontierpg")
	if err != nil {
		return err
	}
	as, err := owner(dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	data := filepath.Join(dir, "data")
	init := exec.Command(initdb, "-D", data, "-U", "frontier", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	init.SysProcAttr, init.Dir = as, dir
	if out, err := init.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("initdb: %w: %s", err, out), os.RemoveAll(dir))
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	run := exec.Command(postgres, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200")
	run.SysProcAttr, run.Dir, run.Stdout, run.Stderr = as, dir, log, log
	if err := run.Start(); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	server.log = log.Name()
	server.stop = func() {
		_ = run.Process.Signal(syscall.SIGQUIT)
		_ = run.Wait()
		_ = os.RemoveAll(dir)
	}
	dsn := url.URL{Scheme: "postgres", User: url.User("frontier"), Path: "/postgres", RawQuery: url.Values{"host": {dir}}.Encode()}
	if err := answers(dsn.String()); err != nil {
		return err
	}
	server.dsn = dsn.String()
	return nil
}

// program finds a program of PostgreSQL. Debian does not put them on the PATH.
func program(name string) (string, error) {
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

// owner gives dir to a user who is not root, and returns how to run as that user.
func owner(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, int(uid), int(gid))
}

func answers(dsn string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return patiently(context.Background(), func(error) bool { return false }, db.Ping)
}

var unexpected = regexp.MustCompile(`(?m)^.*(ERROR|FATAL|PANIC|deadlock).*$`)

// serverLog returns a function that fails the test if the server has logged an error since.
func serverLog(t *testing.T) func() {
	t.Helper()
	if server.log == "" {
		return func() {}
	}
	before, err := os.ReadFile(server.log)
	if err != nil {
		t.Fatalf("read the server's log: %v", err)
	}
	return func() {
		t.Helper()
		after, err := os.ReadFile(server.log)
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
	f := open(t, newPostgres(t))
	f.put("http://a.test/1")
	f.exec(`INSERT INTO hosts (host) VALUES ('b.test')`)
	c := f.claim(1)[0]
	other, err := f.db().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	b, err := normalise("http://b.test/")
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

// The owner of a host's lock may lock its URLs next, so AbortHost waits for the host first.
func TestPostgresAbortHostLocksTheHostFirst(t *testing.T) {
	f := open(t, newPostgres(t))
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
