package origin_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// TestSilentListeners checks that the silent listeners neither answer nor close.
func TestSilentListeners(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, listener := range []string{"tls-silent", "tcp-silent", "tcp-noread"} {
		t.Run(listener, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, o.Addr(listener))
			if _, err := io.WriteString(conn, "\x16\x03\x01\x00\x01x"); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			n, err := conn.Read(make([]byte, 1))
			if netErr, ok := errors.AsType[net.Error](err); n != 0 || !ok || !netErr.Timeout() {
				t.Errorf("%s: read %d, %v; want silence", listener, n, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	o := start(t)
	_, err := get(t, newClient(t, o), o.URL("refused", "/"))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v, want ECONNREFUSED", err)
	}
}

func TestOldTLSWorksForThoseWhoAllowIt(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newTLSClient(t, &tls.Config{RootCAs: o.CA(), MinVersion: tls.VersionTLS10})
	if g := mustGet(t, c, o.URL("tls-old", "/s/k/200")); g.TLS.Version != tls.VersionTLS10 {
		t.Errorf("version %x, want TLS 1.0", g.TLS.Version)
	}
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct {
		name  string
		certs []tls.Certificate
		ok    bool
	}{
		{"with certificate", []tls.Certificate{o.ClientCertificate()}, true},
		{"without", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			conn := tls.Client(dial(t, o.Addr("mtls")), &tls.Config{
				RootCAs: o.CA(), ServerName: "localhost", Certificates: tc.certs,
			})
			if _, err := io.WriteString(conn, "GET /s/k/200:close HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
				t.Fatalf("write: %v", err)
			}
			// In TLS 1.3 the client receives the alert with its first read.
			answer, err := io.ReadAll(conn)
			if tc.ok != (err == nil && len(answer) > 0) || !tc.ok && !as[*net.OpError](err) {
				t.Errorf("answer %q, error %v (%T); want ok %v, else an alert", answer, err, err, tc.ok)
			}
		})
	}
}

// TestClientPEM checks the client certificate in PEM, which clients in other languages use.
func TestClientPEM(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := newClient(t, o)
	file := mustGet(t, c, o.URL("http", "/_client.pem")).body
	cert, err := tls.X509KeyPair(file, file)
	if err != nil {
		t.Fatalf("X509KeyPair: %v", err)
	}
	c = newTLSClient(t, &tls.Config{RootCAs: o.CA(), Certificates: []tls.Certificate{cert}})
	if g := mustGet(t, c, o.URL("mtls", "/s/k/200")); g.StatusCode != 200 {
		t.Errorf("status %d, want 200", g.StatusCode)
	}
	if ca := mustGet(t, c, o.URL("http", "/_ca.pem")).body; string(ca) != string(o.CAPEM()) {
		t.Errorf("/_ca.pem is not CAPEM")
	}
}

// TestPlainOnTLSPort checks that tls-plain serves clients that speak plain HTTP.
func TestPlainOnTLSPort(t *testing.T) {
	t.Parallel()
	o := start(t)
	g := mustGet(t, newClient(t, o), "http://"+o.Addr("tls-plain")+"/s/k/204")
	if g.StatusCode != 204 {
		t.Errorf("status %d, want 204", g.StatusCode)
	}
}
