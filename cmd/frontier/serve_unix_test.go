//go:build unix

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"fetchd/frontier/store"
	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/cli"
	"fetchd/test/selfsigned"
	"fetchd/test/wait"
)

// served is a "frontier serve" that runs. Its tests are not parallel, because every serve of the process
// receives the signals.
type served struct {
	*testing.T
	dir        string
	http, grpc string // addresses
	log        *bufio.Scanner
	stop       func()
	code       chan int
}

// startServe serves with the files of a folder.
func startServe(t *testing.T, dir string, args ...string) *served {
	t.Helper()
	signals := make(chan os.Signal, 1) // the process survives a signal that comes too late
	signal.Notify(signals, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(signals) })
	ctx, stop := context.WithCancel(t.Context())
	logged, log := io.Pipe()
	s := &served{T: t, dir: dir, log: bufio.NewScanner(logged), stop: stop, code: make(chan int, 1)}
	go func() {
		s.code <- run(ctx, append([]string{"serve", "--db", filepath.Join(dir, "frontier.db"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, args...),
			func(string) string { return "" }, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: log})
		log.Close()
	}()
	line := s.until("serving")
	s.http, s.grpc = fmt.Sprint(line["http_addr"]), fmt.Sprint(line["grpc_addr"])
	return s
}

// until returns the next line of the log with this message.
func (s *served) until(message string) (line map[string]any) {
	s.Helper()
	for s.log.Scan() {
		if err := json.Unmarshal(s.log.Bytes(), &line); err == nil && line["msg"] == message {
			return line
		}
	}
	s.Fatalf("the log ends before %q", message)
	return nil
}

// reload sends SIGHUP and waits until the log has the message.
func (s *served) reload(message string) {
	s.Helper()
	must(s, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	s.until(message)
}

// end stops serving.
func (s *served) end() {
	s.Helper()
	s.stop()
	s.until("stopped")
	if got := <-s.code; got != cli.ExitOK {
		s.Errorf("exit code %d, want %d", got, cli.ExitOK)
	}
}

// write writes a file of a folder.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// identity is a certificate for 127.0.0.1, which is its own authority.
type identity struct {
	pair      tls.Certificate
	cert, key []byte // PEM
}

func newIdentity(t *testing.T) identity {
	t.Helper()
	pair, cert, key, err := selfsigned.New()
	must(t, err)
	return identity{pair, cert, key}
}

// trusts returns the configuration of a client that trusts a server, and presents certificates.
func (i identity) trusts(presents ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(i.cert)
	return &tls.Config{RootCAs: roots, Certificates: presents}
}

// TestServeCallers serves with a certificate and tokens, and reads the tokens again on SIGHUP.
func TestServeCallers(t *testing.T) {
	dir := t.TempDir()
	server := newIdentity(t)
	caller := func(name string) string {
		return fmt.Sprintf("- {name: %s, sha256: %x}\n", name, sha256.Sum256([]byte("token-of-"+name)))
	}
	s := startServe(t, dir, "--tls-cert-file", write(t, dir, "cert.pem", string(server.cert)), "--tls-key-file", write(t, dir, "key.pem", string(server.key)),
		"--token-file", write(t, dir, "tokens.yaml", caller("alice")))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: server.trusts()}}
	defer client.CloseIdleConnections()
	statusFor := func(name string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.http+"/v1/stats", nil)
		must(t, err)
		if name != "" {
			request.Header.Set("Authorization", "Bearer token-of-"+name)
		}
		response, err := client.Do(request)
		must(t, err)
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
			write(t, dir, "tokens.yaml", step.tokens)
			s.reload(step.message)
		}
		for name, want := range step.want {
			if got := statusFor(name); got != want {
				t.Errorf("%s: the status for %q is %d, want %d", step.name, name, got, want)
			}
		}
	}
	s.end()
}

// TestServeCertificates serves callers with certificates, and reads their authorities again on SIGHUP.
// Each call has a new connection, but for the first client, which keeps its connection.
func TestServeCertificates(t *testing.T) {
	dir := t.TempDir()
	server, alice, bob := newIdentity(t), newIdentity(t), newIdentity(t)
	s := startServe(t, dir, "--tls-cert-file", write(t, dir, "cert.pem", string(server.cert)), "--tls-key-file", write(t, dir, "key.pem", string(server.key)),
		"--tls-client-ca-file", write(t, dir, "ca.pem", string(alice.cert)))
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: server.trusts(alice.pair)}}
	defer kept.CloseIdleConnections()
	if got := s.get(kept); got != "200" {
		t.Errorf("the first client: %s, want 200", got)
	}
	s.checkHealth(server, cli.ExitFailed) // the authority of callers has not signed it
	s.checkHealth(alice, cli.ExitOK)
	callers := []struct {
		name     string
		presents []tls.Certificate
	}{{"no certificate", nil}, {"alice", []tls.Certificate{alice.pair}}, {"bob", []tls.Certificate{bob.pair}}}
	for _, step := range []struct {
		name, authority, message string // after the file has this authority, SIGHUP logs the message
		accepted                 string
		kept                     string // status for the first client
	}{
		{"at the start", "", "", "alice", "200"},
		{"another authority", string(bob.cert), "reloaded", "bob", "401"},
		{"a broken file", "x", "not reloaded: everything stays as it was", "bob", "401"},
	} {
		if step.authority != "" {
			write(t, dir, "ca.pem", step.authority)
			s.reload(step.message)
		}
		if got := s.get(kept); got != step.kept {
			t.Errorf("%s: the first client: %s, want %s", step.name, got, step.kept)
		}
		for _, c := range callers {
			config := server.trusts(c.presents...)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			want, wantCode := "no connection", codes.Unavailable
			if c.name == step.accepted {
				want, wantCode = "200", codes.OK
			}
			if got := s.get(client); got != want {
				t.Errorf("%s: HTTP with %s: %s, want %s", step.name, c.name, got, want)
			}
			if got := s.call(config); got != wantCode {
				t.Errorf("%s: gRPC with %s: %s, want %s", step.name, c.name, got, wantCode)
			}
		}
	}
	s.end()
}

// TestServeWatchesCertificates checks that a certificate that ends soon, and a client that refuses it,
// are in the log and the metrics.
func TestServeWatchesCertificates(t *testing.T) {
	dir := t.TempDir()
	pair, cert, key, err := selfsigned.Until(time.Now().Add(15 * time.Minute)) // of 75
	must(t, err)
	server, stranger := identity{pair, cert, key}, newIdentity(t)
	s := startServe(t, dir, "--tls-cert-file", write(t, dir, "cert.pem", string(server.cert)), "--tls-key-file", write(t, dir, "key.pem", string(server.key)))
	if line := s.until("certificate expires soon"); line["level"] != "WARN" || line["use"] != "service" || line["name"] != "127.0.0.1" {
		t.Errorf("log line %v, want a warning about the certificate", line)
	}
	if got := s.call(stranger.trusts()); got != codes.Unavailable {
		t.Errorf("a client that does not trust the service: %s, want Unavailable", got)
	}
	if line := s.until("TLS handshakes failed"); line["last_cause"] != "service_certificate_refused" {
		t.Errorf("log line %v, want the cause", line)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.http+"/metrics", nil)
	must(t, err)
	response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: server.trusts(), DisableKeepAlives: true}}).Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	for _, want := range []string{`frontier_api_certificate_not_after_timestamp_seconds{name="127.0.0.1",serial="1",use="service"} `,
		`frontier_api_tls_handshake_failures_total{cause="service_certificate_refused"} `, `frontier_api_tls_handshake_failures_total{cause="client_certificate_expired"} 0`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	s.end()
}

// checkHealth runs healthcheck with a certificate.
func (s *served) checkHealth(i identity, want int) {
	s.Helper()
	got := runWith(s.Context(), strings.NewReader(""), nil, "serve", "healthcheck", "--grpc-addr", s.grpc, "--tls-client-ca-file", filepath.Join(s.dir, "ca.pem"),
		"--tls-cert-file", write(s.T, s.dir, "check-cert.pem", string(i.cert)), "--tls-key-file", write(s.T, s.dir, "check-key.pem", string(i.key)))
	if got.code != want {
		s.Errorf("healthcheck: %+v, want the exit code %d", got, want)
	}
}

// get returns the status of a call, or "no connection".
func (s *served) get(client *http.Client) string {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+s.http+"/v1/stats", nil)
	must(s, err)
	response, err := client.Do(request)
	if err != nil {
		return "no connection"
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil { // the connection is kept
		s.Fatal(err)
	}
	return fmt.Sprint(response.StatusCode)
}

// call returns the code of a call over a new connection.
func (s *served) call(config *tls.Config) codes.Code {
	s.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	must(s, err)
	defer conn.Close()
	_, err = pb.NewFrontierServiceClient(conn).Stats(s.Context(), new(pb.StatsRequest))
	return status.Code(err)
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
		{"--grpc-addr=", "--grpc-addr: is empty: give HOST:PORT"},
		{"--http-addr nowhere", "--http-addr: "},
		{"healthcheck --tls-cert-file cert.pem --tls-key-file key.pem", "cert.pem"},
		{"--delay=-1s", "--delay: -1s is negative: give a duration"},
		{"--console-host http://a.test", "--console-host: is not a host name"},
		{"--log-format xml", "--log-format: is not a format"},
	} {
		if got := c.cli(append([]string{"serve"}, strings.Fields(row.args)...)...); got.code != cli.ExitUsage || !strings.Contains(got.err, row.want) {
			t.Errorf("%s: %+v, want %q", row.args, got, row.want)
		}
	}
}

// TestServeCounts checks that serve has the metrics of the whole frontier.
func TestServeCounts(t *testing.T) {
	c := newCrawl(t, "http://a.test/", "https://a.test/", "https://b.test/")
	c.store(func(s store.Store) error { return s.Defer(t.Context(), "https://a.test", time.Hour) })
	s := startServe(t, filepath.Dir(c.db))
	defer s.end()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+"/metrics", nil)
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []string{`frontier_urls{status="pending"} 3`, `frontier_waiting_urls{cause="robots_unreachable"} 1`, `frontier_waiting_urls{cause="its_turn"} 2`,
		`frontier_waiting_urls{cause="crawl_paused"} 0`, "frontier_origins_deferred 1", "frontier_last_outcome_timestamp_seconds 0", `frontier_hosts{state="all"} 2`, "frontier_paused 0"} {
		if err := wait.Poll(ctx, 10*time.Millisecond, func() (bool, error) { // they are counted next to the start
			response, err := client.Do(request)
			if err != nil {
				return false, err
			}
			text, err := io.ReadAll(response.Body)
			return strings.Contains(string(text), "\n"+want+"\n"), errors.Join(err, response.Body.Close())
		}); err != nil {
			t.Errorf("/metrics has no %q: %v", want, err)
		}
	}
}
