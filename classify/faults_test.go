package classify_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/conformance/origin"
)

// These helpers produce real network errors for the tables of neterror_test.go.

// short is a limit that is certain to pass if the peer never answers.
const short = 20 * time.Millisecond

func startOrigin(t *testing.T) *origin.Origin {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// http2Error requests a URL over HTTP/2, and returns the error of the head or of the body. begun is called
// between the two. A POST is sent once, because its body cannot be read twice: net/http sends a GET again after
// some errors.
func http2Error(ctx context.Context, t *testing.T, o *origin.Origin, method, url string, begun func()) error {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: o.CA()}, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	var body io.Reader
	if method == http.MethodPost {
		body = struct{ io.Reader }{strings.NewReader("once")}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	begun()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// dialed returns a raw connection that is closed at the end of the test.
func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// resetError reads from a connection that is reset after the first byte sent.
func resetError(t *testing.T) error {
	addr := serveRaw(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // closing sends RST
		}
	})
	conn := dialed(t, addr)
	if _, err := io.WriteString(conn, "a"); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
	return err
}

// handshakeError runs a TLS handshake with a listener of the origin.
func handshakeError(t *testing.T, o *origin.Origin, listener string) error {
	t.Helper()
	return tls.Client(dialed(t, o.Addr(listener)), &tls.Config{RootCAs: o.CA(), ServerName: "127.0.0.1"}).HandshakeContext(t.Context())
}

// serveRaw listens on a port, calls do with the first connection and closes it.
// It returns the address.
func serveRaw(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		do(conn)
	}()
	return l.Addr().String()
}

// serveGoAway speaks HTTP/2 with prior knowledge until a request arrives, and then sends a GOAWAY.
func serveGoAway(t *testing.T, code http2.ErrCode) string {
	t.Helper()
	return serveRaw(t, func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		if f.WriteSettings() != nil {
			return
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if frame.Header().Type == http2.FrameHeaders {
				_ = f.WriteGoAway(frame.Header().StreamID, code, nil)
				// Everything is read first: closing with unread bytes sends a reset.
				if half, ok := conn.(*net.TCPConn); ok && half.CloseWrite() == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
				return
			}
		}
	})
}
