package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/conformance"
	"fetchd/conformance/kit"
	"fetchd/conformance/observations"
	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/server"
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

// TestServiceWithoutTheAuthority checks that a service that does not trust the origin is judged by the rest.
func TestServiceWithoutTheAuthority(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		*c = server.Config{Fetch: fetch.Config{Egress: fetch.Egress{Unrestricted: true}}}
	}})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	var code int
	var out, err string
	for range 5 { // the port after a free one may be in use
		code, out, err = call(t, "service", "--wait", "1m", "--origin-addr", rig.FreeAddress(t, "127.0.0.1"), "--only", "H6", "--only", "5 redirects", "--write-ca", ca, s.Addr)
		if !strings.Contains(err, "address already in use") {
			break
		}
	}
	if code != cli.ExitOK || !strings.Contains(out, "(2 more not judged)") || !strings.Contains(out, "--egress-ca-file") {
		t.Errorf("exit code %d, want 0, two not judged, and why\n%s%s", code, out, err)
	}
	if text, failed := os.ReadFile(ca); failed != nil || !strings.Contains(string(text), "BEGIN CERTIFICATE") {
		t.Errorf("%s has no certificate: %v", ca, failed)
	}
}

// TestGenerated judges a program by generated observations: one that says what the service says, and one that
// contradicts it once.
func TestGenerated(t *testing.T) {
	t.Parallel()
	s := fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true})
	vectors, err := observations.Vectors(7, 200)
	if err == nil {
		err = kit.Ask(t.Context(), s.Client, vectors)
	}
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"decide", "--seed", "7", "--count", "200", "--reference", s.Addr}
	if code, out, err := call(t, append(args, answering(t, vectors)...)...); code != cli.ExitOK || !strings.Contains(out, "200 vectors: 200 held") {
		t.Errorf("exit code %d\n%s\n%s", code, out, err)
	}
	vectors[99].Verdict = conformance.Verdict{Outcome: "wrong"}
	if code, out, err := call(t, append(args, answering(t, vectors)...)...); code != cli.ExitFailed || !strings.Contains(out, "generated-7-100") || !strings.Contains(out, "199 held, 1 failed") {
		t.Errorf("exit code %d\n%s\n%s", code, out, err)
	}
}
