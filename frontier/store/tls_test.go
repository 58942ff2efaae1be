package store

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/test/rig"
	"fetchd/test/rig/pgtest"
	"fetchd/test/selfsigned"
)

// TestPostgresTLS checks what docs/postgresql.md says about sslmode: which certificates each mode accepts, and
// that the connection is encrypted.
func TestPostgresTLS(t *testing.T) {
	_, cert, key, err := selfsigned.New() // for 127.0.0.1
	must(t, err)
	_, other, _, err := selfsigned.New()
	must(t, err)
	ours, err := pgtest.Start("-c", "fsync=off")
	pgtest.Need(t, err)
	t.Cleanup(ours.Remove)
	address := rig.FreeAddress(t, "127.0.0.1")
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	must(t, ours.Listen(port, cert, key))

	authority, wrong := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "wrong.pem")
	must(t, os.WriteFile(authority, cert, 0o600))
	must(t, os.WriteFile(wrong, other, 0o600))
	isUnknown := func(err error) bool { _, ok := errors.AsType[x509.UnknownAuthorityError](err); return ok }
	isOfAnotherHost := func(err error) bool { _, ok := errors.AsType[x509.HostnameError](err); return ok }
	for _, tc := range []struct {
		name, host, options string
		refused             func(error) bool // nil if it connects
		text                string           // of the error
	}{
		{"require", address, "sslmode=require", nil, ""},
		{"verify-full", address, "sslmode=verify-full&sslrootcert=" + authority, nil, ""},
		{"another authority", address, "sslmode=verify-full&sslrootcert=" + wrong, isUnknown, "certificate signed by unknown authority"},
		{"the system's authorities", address, "sslmode=verify-full", isUnknown, "certificate signed by unknown authority"},
		{"another host", "localhost:" + port, "sslmode=verify-full&sslrootcert=" + authority, isOfAnotherHost, "wanted to match localhost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Open(t.Context(), "postgres://frontier@"+tc.host+"/postgres?"+tc.options, Config{})
			if tc.refused != nil {
				if err == nil {
					must(t, s.Close())
				}
				if !tc.refused(err) || !strings.Contains(fmt.Sprint(err), tc.text) {
					t.Fatalf("Open = %v, want an error with %q", err, tc.text)
				}
				return
			}
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			f := newFixture(t, s, tc.host)
			if n := f.number(`SELECT count(*) FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl`); n != 1 {
				t.Error("the connection is not encrypted")
			}
		})
	}
}
