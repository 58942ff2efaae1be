//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
)

// TestReloadOfBrokenFiles checks that no file of certificates ends the service, or makes it wait.
func TestReloadOfBrokenFiles(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	s := start(t, append(f.certify(a, wish{}), "--origins-file", f.write("origins.yaml", []byte("{}")))...)
	cert, err := os.ReadFile(f.path("cert.pem"))
	must(t, err)
	for _, row := range []struct{ name, file, as, want string }{
		{"a pipe", "cert.pem", "pipe", "nothing is written to it"},
		{"a device", "key.pem", "/dev/zero", "has more than 16 MiB"},
		{"a link to itself", "cert.pem", "cert.pem", "too many levels"},
		{"a pipe for origins", "origins.yaml", "pipe", "nothing is written to it"},
		{"more certificates than a client reads", "cert.pem", "many", "more than clients read"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, f, a := s.in(t), f.in(t), a.in(t)
			good, err := os.ReadFile(f.path(row.file))
			must(t, err)
			must(t, os.Remove(f.path(row.file)))
			switch row.as {
			case "pipe":
				err = syscall.Mkfifo(f.path(row.file), 0o600)
			case "many":
				f.write(row.file, bytes.Repeat(cert, 300))
			default:
				err = os.Symlink(row.as, f.path(row.file))
			}
			must(t, err)
			if line := s.reload("not reloaded"); !strings.Contains(line, row.want) {
				t.Errorf("log line %s, want %q in it", line, row.want)
			}
			wantStatus(t, "a call meanwhile", call(t.Context(), s.dial(a.client(nil))), codes.OK, "")
			f.write(row.file, good)
			s.reload(`"reloaded"`)
		})
	}
}
