package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fetchd/conformance/judge"
	"fetchd/conformance/kit"
	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/internal/rules"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/need"
	"fetchd/test/rig"
)

func TestConformanceOfTheServiceInside(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "report.md")
	got := fetchctl(t, "conformance", "--markdown", page)
	if got.code != cli.ExitOK || !strings.Contains(got.out, " 0 failed\n") || strings.Contains(got.out, "not judged") {
		t.Errorf("conformance: exit status %d, want 0 and nothing that failed or was not judged\n%s%s", got.code, got.out, got.err)
	}
	if text := string(readAll(t, page)); !strings.Contains(text, "| W2 |") {
		t.Errorf("report in Markdown lacks rule W2:\n%s", text)
	}
}

func readAll(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

func TestConformanceOnly(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "conformance", "--only", "r2", "--only", "204", "--json")
	var report struct{ Reports []kit.Report }
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || len(report.Reports) != 1 {
		t.Fatalf("report: %v, %d subjects, want 1\n%s%s", err, len(report.Reports), got.out, got.err)
	}
	names := map[string]bool{}
	for _, r := range report.Reports[0].Results {
		names[r.Name] = true
		if r.Verdict != kit.Held {
			t.Errorf("%s: %s %v", r.Name, r.Verdict, r.Wrong)
		}
	}
	if !names["redirect loop"] || !names["204"] || names["404"] {
		t.Errorf("ran %v, want those about R2, and 204", names)
	}
	if got.code != cli.ExitOK {
		t.Errorf("exit status %d, want 0", got.code)
	}
}

func TestConformanceUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		told string
	}{
		{"no such rule", []string{"--only", "Z9"}, "--only"},
		{"target and client", []string{"--target", "127.0.0.1:1", "--client", "curl"}, "--client"},
		{"no program", []string{"--client", "name="}, "names no program"},
		{"a program that is not there", []string{"--client", "./there-is-no-such-client"}, "--client"},
		{"an address without a port", []string{"--origin-addr", "127.0.0.1"}, "--origin-addr"},
		{"a URL without a port", []string{"--origin-addr", "127.0.0.1:1", "--origin-url", "http://origin.test"}, "--origin-url"},
	} {
		got := fetchctl(t, append([]string{"conformance"}, tt.args...)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, tt.told) {
			t.Errorf("%s: exit status %d, %q; want %d and %q", tt.name, got.code, got.err, cli.ExitUsage, tt.told)
		}
	}
}

// startTarget serves a service on loopback and returns its address.
func startTarget(t *testing.T, cfg server.Config) string {
	t.Helper()
	return fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) { *c = cfg }}).Addr
}

// The default guard forbids loopback: the report says which flags are missing, and
// is no verdict on the rules.
func TestConformanceOfATargetThatMayNotReachTheOrigin(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "conformance", "--target", startTarget(t, server.Config{}), "--only", "H6")
	if got.code != cli.ExitUsage || strings.Contains(got.out, "FAILED") {
		t.Errorf("exit status %d, want %d and nothing failed\n%s", got.code, cli.ExitUsage, got.out)
	}
	for _, want := range []string{"--egress-allow-cidr 127.0.0.0/8", "--egress-allow-port", "--origin-addr"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("told %q, which lacks %q", got.err, want)
		}
	}
	if !strings.Contains(got.out, "held, 0 failed\n0 wire") || !strings.Contains(got.out, "does not reach the origin") {
		t.Errorf("the vectors were not judged, or it is not told why the scenarios were not:\n%s", got.out)
	}
}

// Without trust in the origin's authority only what needs it is left out.
func TestConformanceOfATargetWithoutTheAuthority(t *testing.T) {
	t.Parallel()
	address := startTarget(t, server.Config{Fetch: fetch.Config{Egress: fetch.Egress{Unrestricted: true}}})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	got := fetchctl(t, "conformance", "--target", address, "--wait", "10s", "--only", "H6", "--only", "5 redirects", "--write-ca", ca)
	if got.code != cli.ExitOK || !strings.Contains(got.out, "(1 more not judged)") || !strings.Contains(got.out, "--egress-ca-file") {
		t.Errorf("exit status %d, want 0, one not judged, and why\n%s%s", got.code, got.out, got.err)
	}
	if !strings.Contains(string(readAll(t, ca)), "BEGIN CERTIFICATE") {
		t.Errorf("%s holds no certificate", ca)
	}
}

// An origin whose ports are fixed is reached there.
func TestConformanceOriginAddress(t *testing.T) {
	t.Parallel()
	got := fetchctl(t, "conformance", "--only", "D4", "--origin-addr", rig.FreeAddress(t, "127.0.0.1"))
	if got.code != cli.ExitOK && !strings.Contains(got.err, "address already in use") { // the ports after it are anybody's
		t.Errorf("exit status %d, want 0\n%s%s", got.code, got.out, got.err)
	}
}

// A client is judged by what the origin saw of it.
func TestConformanceOfAClient(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		need.Missing(t, "run it on Linux", "the clients are scripts of a shell")
	}
	fails := filepath.Join(t.TempDir(), "fails")
	if err := os.WriteFile(fails, []byte("#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'fails 1'; exit; fi\necho \"$ORIGIN_CA $1\" >&2\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	got := fetchctl(t, "conformance", "--client", "mine="+fails, "--only", "expired certificate", "--only", "404", "--only", "wrong digest", "--only", "right size")
	for _, want := range []string{"mine  fails 1", "FAILED  404", "requests: expected 1, got 0", "2 wire scenarios: 1 held, 1 failed (2 more not judged)"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("output lacks %q:\n%s%s", want, got.out, got.err)
		}
	}
	if got.code != cli.ExitFailed {
		t.Errorf("exit status %d, want %d", got.code, cli.ExitFailed)
	}
}

func TestConformanceList(t *testing.T) {
	t.Parallel()
	scenarios, vectors, err := judge.Select(nil)
	must(t, err)
	got := fetchctl(t, "conformance", "--list")
	for _, s := range scenarios {
		if !strings.Contains(got.out, s.Story) {
			t.Errorf("--list lacks %q", s.Name)
		}
		for _, rule := range s.Rules {
			if rules.Sentence(rule) == "" {
				t.Errorf("scenario %q: rule %s has no sentence", s.Name, rule)
			}
		}
	}
	for i := range vectors {
		if rules.Sentence(vectors[i].Rule) == "" {
			t.Errorf("vector %s: rule %s has no sentence", vectors[i].Name, vectors[i].Rule)
		}
	}
	if got.code != cli.ExitOK {
		t.Errorf("exit status %d, want 0", got.code)
	}
}
