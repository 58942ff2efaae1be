package store

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// newBouncer starts a PgBouncer in transaction mode, with fewer connections to the server than the
// tests have to it, and returns the address of a database behind it.
func newBouncer(t *testing.T, dsn string) string {
	t.Helper()
	settings, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	binary := "/usr/sbin/pgbouncer"
	if _, err := os.Stat(binary); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "frontierpool") // its user could not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s\n[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n"+
		"auth_type = any\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = %s\n", settings.Host, settings.Port, settings.User, dir)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	as, err := owner(dir)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(binary, "-q", config)
	run.SysProcAttr, run.Dir = as, dir
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		_ = run.Wait()
	})
	u := url.URL{Scheme: "postgres", User: url.User(settings.User), Path: "/" + settings.Database, RawQuery: url.Values{"host": {dir}, "port": {"6432"}}.Encode()}
	if err := answers(u.String()); err != nil {
		t.Fatal(err)
	}
	return u.String()
}
