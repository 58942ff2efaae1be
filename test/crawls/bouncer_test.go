//go:build linux

package crawls

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"fetchd/test/rig"
)

// bouncer starts a PgBouncer in transaction mode in front of the server, and returns the connection
// string of the database behind it. Workers have more connections to it than it has to the server.
func (p *postgres) bouncer(ctx context.Context) string {
	p.Helper()
	const binary = "/usr/sbin/pgbouncer"
	if _, err := os.Stat(binary); err != nil {
		rig.Cannot(p.T, "PgBouncer is not installed: %v", err)
	}
	text := fmt.Sprintf("[databases]\n* = host=%s user=frontier\n[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 6\nauth_type = any\n"+
		"listen_addr =\nlisten_port = 6432\nunix_socket_dir = %s\nserver_login_retry = 1\n", p.dir, p.dir)
	config := filepath.Join(p.dir, "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		p.Fatal(err)
	}
	log, err := os.Create(filepath.Join(p.dir, "pgbouncer.log"))
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	run := exec.Command(binary, config)
	run.Dir, run.Stdout, run.Stderr = p.dir, log, log
	run.SysProcAttr = &syscall.SysProcAttr{Credential: p.as, Pdeathsig: syscall.SIGQUIT}
	if err := run.Start(); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		_ = run.Wait()
	})
	u := url.URL{Scheme: "postgres", User: url.User("frontier"), Path: "/postgres", RawQuery: url.Values{"host": {p.dir}, "port": {"6432"}}.Encode()}
	p.answers(ctx, u.String())
	return u.String()
}
