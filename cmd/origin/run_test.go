package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fetchd/internal/cli"
	"fetchd/test/must"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFlags(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{"help", []string{"--help"}, cli.ExitOK, "--write-ca", ""},
		{"unknown flag", []string{"--nonsense"}, cli.ExitUsage, "", "--help"},
		{"bad seed", []string{"--seed=x"}, cli.ExitUsage, "", "--help"},
		{"argument", []string{"more"}, cli.ExitUsage, "", "--help"},
		{"taken address", []string{"--tls-addr=127.0.0.1:0", "--addr", taken.Addr().String()}, cli.ExitFailed, "", "open listener http"},
		{"no folder", []string{"--addr=127.0.0.1:0", "--tls-addr=127.0.0.1:0", "--write-ca", "no/such/folder/ca.pem"}, cli.ExitOutput, "", "authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tc.args, &stdout, &stderr)
			if code != tc.code || !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("run(%q) = %d, stdout %q, stderr %q; want %d, %q, %q",
					tc.args, code, stdout.String(), stderr.String(), tc.code, tc.stdout, tc.stderr)
			}
		})
	}
}

func TestServesUntilTheEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	read, write := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"--addr=127.0.0.1:0", "--tls-addr=127.0.0.1:0", "--log", "--write-ca", ca}, write, &stderr)
		_ = write.Close()
	}()
	index := make([]byte, 8<<10) // one write
	n, err := read.Read(index)
	if err != nil {
		t.Fatalf("read the listeners: %v", err)
	}
	if lines := bytes.Count(index[:n], []byte("\n")); lines > 24 {
		t.Errorf("%d lines at the start, want no more than a terminal shows", lines)
	}
	url := regexp.MustCompile(`https://\S+`).FindString(string(index))
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if status := getTrusting(t, ca, url+"/s/k/418"); status != http.StatusTeapot {
		t.Errorf("status %d, want 418", status)
	}
	cancel()
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("exit code %d, want 0; stderr %s", code, stderr.String())
	}
	if !strings.Contains(stderr.String(), "key=k step=418 end=answered") {
		t.Errorf("log %q, want a line for the request", stderr.String())
	}
	if _, err := os.Stat(ca); !os.IsNotExist(err) {
		t.Errorf("authority's file at the end: %v, want it gone", err)
	}
}

// getTrusting asks for url, trusting the authority in the file.
func getTrusting(t *testing.T, file, url string) int {
	t.Helper()
	pem, err := os.ReadFile(file)
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
