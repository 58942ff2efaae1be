// Package pgtest starts private PostgreSQL servers, and PgBouncers in front of them, for tests.
package pgtest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"fetchd/test/need"
	"fetchd/test/wait"
)

// Need skips a test if err says that a program is not installed, and fails it if err is another error.
func Need(t testing.TB, err error) {
	t.Helper()
	if missing, ok := errors.AsType[*exec.Error](err); ok && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)) {
		pkg := "postgresql"
		if missing.Name == bouncer {
			pkg = "pgbouncer"
		}
		need.Missing(t, "install the Debian package "+pkg, "%s is not installed", missing.Name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bouncer is where Debian puts PgBouncer. The folder is not on the PATH of an ordinary user.
const bouncer = "/usr/sbin/pgbouncer"

// startTime limits the time until a server answers.
const startTime = time.Minute

// Server is a PostgreSQL on a socket in its own folder.
type Server struct {
	folder
	binary string
	flags  []string
	port   string          // empty is the usual one
	stop   func(os.Signal) // nil while it is stopped
}

// Start starts a new server. The caller calls Remove. [Need] handles the error.
func Start(flags ...string) (*Server, error) {
	return start(flags, "initdb", "-U", "frontier", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
}

// Standby starts a hot standby of the server. The caller calls Remove.
func (s *Server) Standby() (*Server, error) {
	return start(s.flags, "pg_basebackup", "-R", "-c", "fast", "-N", "-h", s.dir, "-U", "frontier")
}

// start starts a server on the data that another program makes.
func start(flags []string, maker string, args ...string) (*Server, error) {
	maker, err := program(maker)
	if err != nil {
		return nil, err
	}
	s := &Server{flags: flags}
	if s.binary, err = program("postgres"); err != nil {
		return nil, err
	}
	if s.folder, err = newFolder(); err != nil {
		return nil, err
	}
	if out, err := s.command(append([]string{maker, "-D", s.data()}, args...)...).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %s", maker, err, out), os.RemoveAll(s.dir))
	}
	if err := s.Restart(); err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// Restart starts the server after Crash, and waits until it answers.
func (s *Server) Restart() (err error) {
	s.stop, err = s.run(append([]string{s.binary, "-D", s.data(), "-k", s.dir, "-c", "listen_addresses="}, s.flags...)...)
	if err != nil {
		return err
	}
	return Answers(s.DSN("postgres"))
}

// Crash does what pg_ctl stop -m immediate does: every process of the server ends at once, and the next
// start recovers.
func (s *Server) Crash() {
	if s.stop != nil {
		s.stop(syscall.SIGQUIT)
		s.stop = nil
	}
}

// Listen restarts the server so that it listens on a TCP port of 127.0.0.1, with TLS. The certificate and its
// key are PEM.
func (s *Server) Listen(port string, cert, key []byte) error {
	s.Crash()
	for name, text := range map[string][]byte{"server.crt": cert, "server.key": key} {
		path := filepath.Join(s.data(), name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		if s.as != nil {
			if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
				return err
			}
		}
	}
	s.port = port
	s.flags = append(slices.Clip(s.flags), "-c", "listen_addresses=127.0.0.1", "-c", "ssl=on", "-c", "port="+port)
	return s.Restart()
}

// Remove ends the server and removes its files.
func (s *Server) Remove() {
	s.Crash()
	_ = os.RemoveAll(s.dir) // it is temporary
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// DSN returns the connection string of a database. A new server has the database postgres.
func (s *Server) DSN(database string) string {
	return s.dsn("frontier", database, url.Values{"port": {cmp.Or(s.port, "5432")}})
}

// Version describes the program.
func (s *Server) Version() string {
	out, err := exec.Command(s.binary, "--version").Output()
	if err != nil {
		return fmt.Sprint(err)
	}
	return strings.TrimSpace(string(out))
}

// Bouncer starts a PgBouncer in transaction mode, with a number of connections to the server of dsn. It
// returns the connection string of the same database behind it. The caller calls remove.
func Bouncer(dsn string, connections int) (behind string, remove func(), err error) {
	if _, err := exec.LookPath(bouncer); err != nil {
		return "", nil, err
	}
	server, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", nil, err
	}
	f, err := newFolder()
	if err != nil {
		return "", nil, err
	}
	config := filepath.Join(f.dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s\n[pgbouncer]\npool_mode = transaction\ndefault_pool_size = %d\nmax_client_conn = 200\n"+
		"auth_type = any\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = %s\nserver_login_retry = 1\n", server.Host, server.Port, server.User, connections, f.dir)
	if err = os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(f.dir))
	}
	stop, err := f.run(bouncer, "-q", config)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(f.dir))
	}
	remove = func() {
		stop(syscall.SIGTERM)
		_ = os.RemoveAll(f.dir) // it is temporary
	}
	behind = f.dsn(server.User, server.Database, url.Values{"port": {"6432"}})
	if err := Answers(behind); err != nil {
		remove()
		return "", nil, err
	}
	return behind, remove, nil
}

// folder has the socket, the log and the files of a program.
type folder struct {
	dir string
	as  *syscall.Credential // the user that the program runs as; nil for the current one
}

// newFolder returns a folder, which belongs to another user if this one is root, as which PostgreSQL does
// not run. That user could not enter the folders of package testing.
func newFolder() (f folder, err error) {
	if f.dir, err = os.MkdirTemp("", "frontierpg"); err != nil || os.Getuid() != 0 {
		return f, err
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err == nil {
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		f.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		err = cmp.Or(err1, err2, os.Chown(f.dir, int(uid), int(gid)))
	}
	if err != nil {
		return f, errors.Join(err, os.RemoveAll(f.dir))
	}
	return f, nil
}

// LogFile is the path of the log.
func (f *folder) LogFile() string { return filepath.Join(f.dir, "log") }

func (f *folder) dsn(user, database string, options url.Values) string {
	options.Set("host", f.dir)
	u := url.URL{Scheme: "postgres", User: url.User(user), Path: "/" + database, RawQuery: options.Encode()}
	return u.String()
}

func (f *folder) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.SysProcAttr = f.dir, &syscall.SysProcAttr{Credential: f.as}
	return cmd
}

// run starts a program that writes to the log. stop ends it with a signal.
func (f *folder) run(args ...string) (stop func(os.Signal), err error) {
	log, err := os.OpenFile(f.LogFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the program has its own descriptor
	cmd := f.command(args...)
	cmd.Stdout, cmd.Stderr = log, log
	endWithTest(cmd.SysProcAttr)
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		// To Linux, the death of a test is that of the thread. It must not end with this goroutine either:
		// other processes of the test may have been started on it before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it returns the signal as an error
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return func(signal os.Signal) {
		_ = cmd.Process.Signal(signal) // it may have ended
		<-ended
	}, nil
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

// Answers waits until the server or the PgBouncer of a connection string answers.
func Answers(dsn string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // nothing was written
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if err := wait.Until(ctx, 10*time.Millisecond, func() bool { return db.PingContext(ctx) == nil }); err != nil {
		return fmt.Errorf("%s does not answer: %w", dsn, err)
	}
	return nil
}
