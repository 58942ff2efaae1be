//go:build unix

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fetchd/internal/cli"
	"fetchd/internal/selfsigned"
)

// TestServeCallers serves with a certificate and tokens, and reads the tokens again on SIGHUP. It is not
// parallel, because every serve of the process receives the signal.
func TestServeCallers(t *testing.T) {
	signals := make(chan os.Signal, 1) // the process survives a signal that comes too late
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, cert, key, err := selfsigned.New()
	if err != nil {
		t.Fatal(err)
	}
	caller := func(name string) string {
		return fmt.Sprintf("- {name: %s, sha256: %x}\n", name, sha256.Sum256([]byte("token-of-"+name)))
	}
	tokens := file("tokens.yaml", caller("alice"))
	ctx, stop := context.WithCancel(t.Context())
	logged, log := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"serve", "--db", filepath.Join(dir, "frontier.db"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0",
			"--tls-cert-file", file("cert.pem", string(cert)), "--tls-key-file", file("key.pem", string(key)), "--token-file", tokens},
			func(string) string { return "" }, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: log})
		log.Close()
	}()
	lines := bufio.NewScanner(logged)
	// until returns the next line of the log with this message.
	until := func(message string) (line map[string]any) {
		t.Helper()
		for lines.Scan() {
			if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line["msg"] == message {
				return line
			}
		}
		t.Fatalf("the log ends before %q", message)
		return nil
	}
	address := fmt.Sprint(until("serving")["http_addr"])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	status := func(name string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/v1/stats", nil)
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			request.Header.Set("Authorization", "Bearer token-of-"+name)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for _, step := range []struct {
		name, tokens, message string // after the file has these tokens, SIGHUP logs the message
		want                  map[string]int
	}{
		{"at the start", "", "", map[string]int{"": 401, "alice": 200, "bob": 401}},
		{"another caller", caller("bob"), "reloaded", map[string]int{"": 401, "alice": 401, "bob": 200}},
		{"a broken file", "[]", "not reloaded: everything stays as it was", map[string]int{"alice": 401, "bob": 200}},
	} {
		if step.tokens != "" {
			file("tokens.yaml", step.tokens)
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			until(step.message)
		}
		for name, want := range step.want {
			if got := status(name); got != want {
				t.Errorf("%s: the status for %q is %d, want %d", step.name, name, got, want)
			}
		}
	}
	stop()
	until("stopped")
	if got := <-code; got != cli.ExitOK {
		t.Errorf("exit code %d, want %d", got, cli.ExitOK)
	}
}

func TestServeUsage(t *testing.T) {
	t.Parallel()
	c := newCrawl(t)
	for _, row := range []struct{ args, want string }{
		{"--tls-cert-file c.pem", "--tls-cert-file: needs --tls-key-file"},
		{"--tls-key-file k.pem", "--tls-key-file: needs --tls-cert-file"},
		{"--tls-client-ca-file ca.pem", "--tls-client-ca-file: needs --tls-cert-file"},
		{"--tls-allow-san a.test", "--tls-allow-san: needs --tls-client-ca-file"},
		{"--grpc-addr 0.0.0.0:0", "--grpc-addr: is not on loopback"},
		{"--http-addr nowhere", "--http-addr: "},
		{"--delay=-1s", "--delay: is negative"},
		{"--console-host http://a.test", "--console-host: is not a host name"},
		{"--log-format xml", "--log-format: is not a format"},
	} {
		if got := c.cli(append([]string{"serve"}, strings.Fields(row.args)...)...); got.code != cli.ExitUsage || !strings.Contains(got.err, row.want) {
			t.Errorf("%s: %+v, want %q", row.args, got, row.want)
		}
	}
}
