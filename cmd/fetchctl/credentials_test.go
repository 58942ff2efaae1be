package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fetchd/fetch"
	"fetchd/internal/cli"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	"fetchd/test/clitest"
	"fetchd/test/rig"
)

// TestCredentials asks a service that speaks TLS and wants a certificate and a
// token.
func TestCredentials(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	dir := t.TempDir()
	pair, authority := clitest.Certificate(t, dir)
	address := secureServer(t, pair, authority)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		clitest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	right, wrong, empty := write("right", "right\n"), write("wrong", "wrong\n"), write("empty", "\n")
	ca, cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for _, row := range []struct {
		name string
		args []string
		code int
		text string // on standard error
	}{
		{"all that it takes", []string{"--tls-ca-file", ca, "--tls-cert-file", cert, "--tls-key-file", key, "--token-file", right}, 0, ""},
		{"https", []string{"--server", "https://" + address, "--tls-ca-file", ca, "--tls-cert-file", cert, "--tls-key-file", key, "--token-file", right}, 0, ""},
		{"https with the authorities of the system", []string{"--server", "https://" + address, "--token-file", right}, 20, "certificate"},
		{"http with TLS", []string{"--server", "http://" + address, "--tls"}, cli.ExitUsage, "which is plaintext, but a setting asks for TLS"},
		{"no token", []string{"--tls-ca-file", ca, "--tls-cert-file", cert, "--tls-key-file", key}, 20, "no token"},
		{"a wrong token", []string{"--tls-ca-file", ca, "--tls-cert-file", cert, "--tls-key-file", key, "--token-file", wrong}, 20, "no token"},
		{"no certificate", []string{"--tls-ca-file", ca, "--token-file", right}, 20, ""},
		{"an authority that is not trusted", []string{"--tls", "--tls-cert-file", cert, "--tls-key-file", key, "--token-file", right}, 20, ""},
		{"plaintext", []string{"--token-file", right}, 20, "At " + address + ", if the port uses TLS, give https://HOST:PORT."},
		{"no such token file", []string{"--token-file", filepath.Join(dir, "nothing")}, cli.ExitUsage, "--token-file"},
		{"an empty token file", []string{"--token-file", empty}, cli.ExitUsage, "--token-file"},
		{"no such authority", []string{"--tls-ca-file", filepath.Join(dir, "nothing")}, cli.ExitUsage, "--tls-ca-file"},
		{"an authority that is none", []string{"--tls-ca-file", right}, cli.ExitUsage, "--tls-ca-file"},
		{"a certificate without a key", []string{"--tls-cert-file", cert}, cli.ExitUsage, "--tls-key-file"},
		{"a key that is none", []string{"--tls-cert-file", cert, "--tls-key-file", right}, cli.ExitUsage, "--tls-cert-file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := fetchctl.Run(t, append([]string{"get", "--server", address, o.URL("http", "/s/k/200:size=10")}, row.args...)...)
			if got.Code != row.code || !strings.Contains(got.Err, row.text) {
				t.Errorf("exit %d, %q; want %d, with %q", got.Code, got.Err, row.code, row.text)
			}
			if strings.Contains(got.Err, "right\n") || strings.Contains(got.Err, "Bearer") {
				t.Errorf("the error has the token: %q", got.Err)
			}
		})
	}
	got := fetchctl.With(t.Context(), "", map[string]string{"FETCHD_SERVER": address, "FETCHD_SERVER_TOKEN_FILE": right},
		"get", o.URL("http", "/s/k/200:size=10"), "--tls-ca-file", ca, "--tls-cert-file", cert, "--tls-key-file", key)
	if got.Code != 0 {
		t.Errorf("by the environment: exit %d, %q", got.Code, got.Err)
	}
}

// secureServer returns the address of a fetchd that ends with the test.
func secureServer(t *testing.T, pair tls.Certificate, authority *x509.CertPool) string {
	t.Helper()
	return fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, Configure: func(c *server.Config) {
		c.Fetch.Egress = fetch.Egress{Unrestricted: true}
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: authority,
			ClientAuth: tls.RequireAndVerifyClientCert}
		c.Authenticate = func(shown server.Credentials) (string, error) {
			if shown.Token != "right" || shown.TLS == nil || len(shown.TLS.PeerCertificates) == 0 {
				return "", errors.New("no token that is known")
			}
			return "test", nil
		}
	}}).Addr
}
