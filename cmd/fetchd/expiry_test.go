package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"fetchd/internal/cli"
	"fetchd/test/wait"
)

// metric returns the lines of a metric.
//
// They are no older than the call: the page is made at most once a second.
func (s *service) metric(a *authority, name string) string {
	s.Helper()
	wait.For(s.Context(), time.Second)
	client := a.client(nil)
	client.InsecureSkipVerify = true // as Prometheus does that still reads the metrics
	code, text, err := ask(s.Context(), client, s.http, "/metrics", "")
	if err != nil || code != http.StatusOK {
		s.Fatalf("GET /metrics: %d, %v", code, err)
	}
	var lines strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// wantSays runs a command, and checks its exit code and what standard error has. Empty means nothing.
func wantSays(t *testing.T, want int, says string, args ...string) {
	t.Helper()
	if code, _, stderr := command(t, args...); code != want || !strings.Contains(stderr, says) || says == "" && stderr != "" {
		t.Errorf("%q: exit code %d, standard error %q, want %d and %q", args, code, stderr, want, says)
	}
}

// TestCertificateExpires runs a service whose certificate ends meanwhile, and checks each sign in the
// order in which an operator sees it.
func TestCertificateExpires(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	ends := time.Now().Add(3 * time.Second).Truncate(time.Second)
	args := f.certify(a, wish{ends: ends, dns: "fetchd.example"})

	// 1. fetchd config, before the start.
	code, stdout, stderr := command(t, append([]string{"config"}, args...)...)
	if want := fmt.Sprintf("# certificate service \"fetchd.example\" serial 2: not after %s: ", ends.UTC().Format(time.RFC3339)); code != cli.ExitOK || !strings.Contains(stdout, want) {
		t.Errorf("fetchd config: exit code %d, want 0 and %q:\n%s", code, want, stdout)
	}
	if !strings.HasPrefix(stderr, `fetchd: certificate service "fetchd.example" serial 2: expire`) {
		t.Errorf("fetchd config: standard error %q, want the certificate", stderr)
	}

	// 2. The log at the start, unless the start took so long that the certificate has ended. 3. The metric.
	s := start(t, args...)
	line := s.await(`"msg":"certificate `)
	if strings.Contains(line, `"msg":"certificate expires soon"`) {
		if !strings.Contains(line, `"level":"WARN"`) || !strings.Contains(line, `"use":"service","name":"fetchd.example"`) {
			t.Errorf("log line %s, want a warning about the certificate", line)
		}
		line = s.await(`"msg":"certificate `)
	}
	// Prometheus's text format cuts zeros at the end of a number.
	notAfter := strconv.FormatFloat(float64(ends.Unix()), 'e', -1, 64)
	if got, want := s.metric(a, "fetchd_certificate_not_after"), `{name="fetchd.example",serial="2",use="service"} `+notAfter+"\n"; !strings.Contains(got, want) {
		t.Errorf("metrics %s, want %s", got, want)
	}

	// 4. The log when it expires.
	if !strings.Contains(line, `"level":"ERROR","msg":"certificate has expired"`) || !strings.Contains(line, `"days_left":-1`) {
		t.Errorf("log line %s, want an error", line)
	}

	// 5. Callers refuse it: the log and a metric say so.
	wantStatus(t, "a caller", call(t.Context(), s.dial(a.client(nil))), codes.Unavailable, "certificate has expired")
	if line := s.await(`"msg":"TLS handshakes failed"`); !strings.Contains(line, `"level":"WARN"`) || !strings.Contains(line, `"causes":{"service_certificate_expired":`) {
		t.Errorf("log line %s, want a warning with the cause", line)
	}
	if got := s.metric(a, `fetchd_tls_handshake_failures_total{cause="service_certificate_expired"}`); got == "" || strings.HasSuffix(got, " 0\n") {
		t.Errorf("metrics %q, want failures", got)
	}

	// 6. The health check.
	healthcheck := append([]string{"healthcheck", "--grpc-addr", s.grpc}, args...)
	wantSays(t, cli.ExitFailed, "presents a certificate that expired at", healthcheck...)
	wantSays(t, cli.ExitOK, "expired ", append([]string{"config"}, args...)...) // fetchd starts with it

	// 7. A new certificate ends it, without a restart.
	f.certify(a, wish{serial: 1, ends: time.Now().Add(90 * 24 * time.Hour)})
	s.look <- time.Time{}
	s.await(`"reloaded"`)
	wantStatus(t, "a caller, after the renewal", call(t.Context(), s.dial(a.client(nil))), codes.OK, "")
	wantSays(t, cli.ExitOK, "", healthcheck...)
	wantSays(t, cli.ExitOK, "", append([]string{"config"}, args...)...)
	if got := s.metric(a, "fetchd_certificate_not_after"); strings.Contains(got, `serial="2"`) || !strings.Contains(got, `serial="3"`) {
		t.Errorf("metrics %s, want the new certificate alone", got)
	}
}

// TestEachCertificateIsWatched checks the series of every file that has certificates, and that a reload
// changes them.
func TestEachCertificateIsWatched(t *testing.T) {
	f, a := newFolder(t), newAuthority(t)
	cert, key := a.sign(wish{serial: 40})
	f.write("client.pem", cert)
	f.write("client.key", key)
	f.write("ca.pem", a.pem)
	origins := fmt.Sprintf("profiles:\n  https://A.example: {ca-file: %q, cert-file: %q, key-file: %q}\n", f.path("ca.pem"), f.path("client.pem"), f.path("client.key"))
	own, ownKey := a.sign(wish{dns: "fetchd.example"})
	s := start(t, "--tls-cert-file", f.write("cert.pem", append(own, a.pem...)), "--tls-key-file", f.write("key.pem", ownKey),
		"--egress-ca-file", f.path("ca.pem"), "--origins-file", f.write("origins.yaml", []byte(origins)))
	labels := func() string {
		var all []string
		for line := range strings.Lines(s.metric(a, "fetchd_certificate_not_after")) {
			name, _, _ := strings.Cut(line, "} ")
			all = append(all, strings.TrimPrefix(name, "fetchd_certificate_not_after_timestamp_seconds{"))
		}
		return strings.Join(all, "\n")
	}
	const want = `name="a.example:443",serial="2a",use="origin_client"
name="a.example:443",serial="1",use="origin_authority"
name="authority",serial="1",use="egress_authority"
name="authority",serial="1",use="service_chain"
name="fetchd.example",serial="2",use="service"`
	if got := labels(); sorted(got) != sorted(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	must(t, os.WriteFile(f.path("origins.yaml"), []byte("{}\n"), 0o600))
	s.reload(`"reloaded"`)
	if got := labels(); strings.Contains(got, "origin_client") || !strings.Contains(got, `use="service"`) {
		t.Errorf("after the profile has gone:\n%s", got)
	}
}

// sorted returns lines in order.
func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(text, "\n")), "\n")
}
