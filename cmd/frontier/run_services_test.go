package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"fetchd/cmd/frontier/site"
	"fetchd/internal/cli"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// startServer returns the address of a fetchd that reaches the site by its names, and ends with the
// test. Its first DNS lookup sets used.
func startServer(t *testing.T, s *site.Site, used *atomic.Bool, more func(*server.Config)) string {
	t.Helper()
	names := s.Resolver()
	return fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(cfg *server.Config) {
		cfg.Fetch.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			used.Store(true)
			return names.Dial(ctx, network, address)
		}}
		cfg.Fetch.Egress.AllowPorts = []uint16{uint16(s.Port())} //nolint:gosec // a port
		if more != nil {
			more(cfg)
		}
	}}).Addr
}

func TestOneServer(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	var used atomic.Bool
	address := startServer(t, s, &used, nil)
	for name, servers := range map[string][]string{"alone": {address}, "beside one that is not there": {rig.FreeAddress(t, "127.0.0.1"), address}} {
		c := newCrawl(t, s.URL("a", "/p/1"), s.URL("b", "/p/1"))
		got := c.cli("crawl", "--delay", "1ms", "--log-level", "error", "--server", strings.Join(servers, ","))
		if want := "2 completed, 0 failed, 0 retries in "; got.code != cli.ExitOK || !strings.HasPrefix(got.err, want) || !used.Load() {
			t.Errorf("%s: exit status %d, %q, want 0 and %q", name, got.code, got.err, want)
		}
	}
	c := newCrawl(t, s.URL("c", "/p/1"))
	got := runWith(t.Context(), strings.NewReader(""), map[string]string{"FETCHD_SERVER": address}, "crawl", "--delay", "1ms", "--db", c.db)
	if got.code != cli.ExitOK || !strings.HasPrefix(got.err, "1 completed") {
		t.Errorf("by the environment: exit status %d, %q", got.code, got.err)
	}
}

func TestServerWithTLS(t *testing.T) {
	t.Parallel()
	s := startSite(t, site.Config{})
	dir := t.TempDir()
	pair, _ := clitest.Certificate(t, dir)
	for name, token := range map[string]string{"right": "right\n", "wrong": "wrong\n", "empty": "\n"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(token), 0o600))
	}
	var used atomic.Bool
	address := startServer(t, s, &used, func(cfg *server.Config) {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		cfg.Authenticate = func(shown server.Credentials) (string, error) {
			if shown.Token != "right" {
				return "", errors.New("no token that is known")
			}
			return "test", nil
		}
	})
	ca, token := "--tls-ca-file="+filepath.Join(dir, "cert.pem"), "--token-file="+filepath.Join(dir, "right")
	for _, tt := range []struct {
		name  string
		flags []string
		code  int
		told  string
	}{
		{"no token", []string{ca}, cli.ExitService, "frontier: no service answers: " + address + ": "},
		{"a wrong token", []string{ca, "--token-file", filepath.Join(dir, "wrong")}, cli.ExitService, "no token that is known"},
		{"an empty token file", []string{ca, "--token-file", filepath.Join(dir, "empty")}, cli.ExitUsage, "--token-file: "},
		{"an authority that is not trusted", []string{"--tls", token}, cli.ExitService, "certificate"},
		{"plaintext", []string{token}, cli.ExitService, "no service answers"},
		{"no such authority", []string{"--tls-ca-file", filepath.Join(dir, "no"), token}, cli.ExitUsage, "--tls-ca-file: "},
		{"all that it takes", []string{ca, token}, cli.ExitOK, "1 completed, "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCrawl(t, s.URL("a", "/p/1"))
			before := s.Count()
			got := c.cli(append([]string{"crawl", "--delay", "1ms", "--server", address}, tt.flags...)...)
			if got.code != tt.code || !strings.Contains(got.err, tt.told) || strings.Contains(got.err, "Bearer") {
				t.Errorf("exit status %d, %q, want %d and %q", got.code, got.err, tt.code, tt.told)
			}
			if tt.code != cli.ExitOK && (s.Count() != before || strings.Contains(got.err, "completed") || c.statuses()["pending"] != 1) {
				t.Errorf("%d requests, %v, %q, want nothing done", s.Count()-before, c.statuses(), got.err)
			}
		})
	}
}

func TestNoService(t *testing.T) {
	t.Parallel()
	c := newCrawl(t, page)
	one, two := rig.FreeAddress(t, "127.0.0.1"), rig.FreeAddress(t, "127.0.0.1")
	got := c.cli("crawl", "--server", one, "--server", two)
	for _, want := range []string{"frontier: no service answers: " + one + ": ", two + ": ", "\n  No URL was fetched. Is the service running, and are --server"} {
		if got.code != cli.ExitService || !strings.Contains(got.err, want) || strings.Contains(got.err, "completed") {
			t.Errorf("exit status %d, %q, want %d and %q", got.code, got.err, cli.ExitService, want)
		}
	}
	if got := c.statuses(); got["pending"] != 1 {
		t.Errorf("URLs = %v, want one pending", got)
	}
}
