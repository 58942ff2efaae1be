package fetch_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestOriginThatStopsReading uses an HTTP/2 origin that opens its window for the request and then
// stops reading its connection. The attempt ends by its own limit, and the connection and the
// goroutines that write to it end soon after.
func TestOriginThatStopsReading(t *testing.T) {
	t.Parallel()
	certificate, roots := selfSigned(t)
	given := make(chan struct{})
	c := newClient(t, fetch.Config{
		Egress: unrestricted, RootCAs: roots,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, its := net.Pipe()
			go deafOrigin(tls.Server(its, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"},
				SessionTicketsDisabled: true})) // a pipe has no buffer for a ticket that no one reads
			return &closing{Conn: ours, closed: sync.OnceFunc(func() { close(given) })}, nil
		},
	})
	r := get(t, "https://example.com/")
	r.Method, r.Body = "PUT", make([]byte, 1<<20)
	r.Policy.MaxAttempts = 1
	r.HeaderTimeout = time.Second
	if f := c.Fetch(t.Context(), r, nil).Failure; f == nil || f.Class != classify.WriteTimeout {
		t.Errorf("%+v, want write_timeout", f)
	}
	select {
	case <-given:
	case <-time.After(20 * time.Second):
		t.Error("the connection is still open 20 s later")
	}
}

// closing is a connection that reports its close.
type closing struct {
	net.Conn
	closed func()
}

func (c *closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

// deafOrigin completes the handshake, opens its windows and reads nothing more.
func deafOrigin(conn *tls.Conn) {
	if conn.Handshake() != nil {
		return
	}
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, nil)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 16 << 20})
	_ = f.WriteWindowUpdate(0, 16<<20)
}

// selfSigned returns a certificate for 127.0.0.1 and example.com, and a pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
}
