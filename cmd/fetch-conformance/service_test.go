package main

import (
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/server/fetchdtest"
	"fetchd/test/rig"
)

// TestService judges a real service, which cannot reach the origin.
func TestService(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true})
	at := rig.FreeAddress(t, "127.0.0.1")
	_, port, _ := strings.Cut(at, ":")
	code, out, err := call(t, "service", "--origin-addr", at, "--only", "404", "--only", "standard-404", s.Addr)
	if code != cli.ExitUsage || !strings.Contains(out, "1 vector: 1 held") || !strings.Contains(err, "--egress-allow-port "+port) {
		t.Errorf("exit code %d\n%s\n%s", code, out, err)
	}
}

func TestServiceDown(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, wait, want string
	}{
		{"does not answer", "0s", "Unavailable"},
		{"is awaited in vain", "1ms", "DeadlineExceeded"},
	} {
		code, _, err := call(t, "service", "--wait", row.wait, "--origin-addr", rig.FreeAddress(t, "127.0.0.1"), "--only", "404", "127.0.0.1:1")
		if code != cli.ExitService || !strings.Contains(err, row.want) {
			t.Errorf("%s: exit code %d, want %d: %s", row.name, code, cli.ExitService, err)
		}
	}
}
