package classify_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/conformance/origin"
	"fetchd/test/need"
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

// newClient returns a client that trusts o and follows no redirects. tune may set
// limits.
func newClient(t *testing.T, o *origin.Origin, tune ...func(*http.Transport)) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: o.CA()},
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
	}
	for _, f := range tune {
		f(transport)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// headError requests a URL and returns the error that occurred before the head.
func headError(t *testing.T, c *http.Client, url string) error {
	t.Helper()
	return headErrorOf(t, c, request(t.Context(), t, http.MethodGet, url, nil))
}

func headErrorOf(t *testing.T, c *http.Client, req *http.Request) error {
	t.Helper()
	resp, err := c.Do(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatalf("%s %s: status %d, want an error", req.Method, req.URL, resp.StatusCode)
	}
	return err
}

// bodyError requests a URL and returns the error of reading its body.
func bodyError(t *testing.T, c *http.Client, url string) error {
	t.Helper()
	return bodyErrorOf(t, c, request(t.Context(), t, http.MethodGet, url, nil), func() {})
}

// bodyErrorOf calls begun after the head has arrived, and then reads the body.
func bodyErrorOf(t *testing.T, c *http.Client, req *http.Request, begun func()) error {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s: %v before the body", req.URL, err)
	}
	defer resp.Body.Close()
	begun()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil {
		t.Fatalf("%s: a body of %d bytes came whole, want an error", req.URL, n)
	}
	return err
}

func request(ctx context.Context, t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// cancelWhenSent gives a request a context that is cancelled once the head is
// sent, so that only the cancellation can end the request.
func cancelWhenSent(t *testing.T, url string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	hooks := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }}
	return request(httptrace.WithClientTrace(ctx, hooks), t, http.MethodGet, url, nil)
}

// endless is a request body without an end that cannot be read twice.
func endless() io.Reader { return struct{ io.Reader }{zeros{}} }

type zeros struct{}

// Read fills p.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
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

// connectError dials and returns the error.
func connectError(t *testing.T, d *net.Dialer, addr string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
		t.Fatalf("dial %s succeeded, want an error", addr)
	}
	return err
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

// handshakeError runs a TLS handshake without net/http.
func handshakeError(ctx context.Context, t *testing.T, addr string, cfg *tls.Config) error {
	t.Helper()
	cfg.ServerName = "127.0.0.1"
	conn := tls.Client(dialed(t, addr), cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	t.Fatalf("handshake with %s succeeded, want an error", addr)
	return nil
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

// serveFrames speaks HTTP/2 with prior knowledge until a request arrives, and then
// calls end.
func serveFrames(t *testing.T, end func(f *http2.Framer, stream uint32)) string {
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
				end(f, frame.Header().StreamID)
				// Everything is read first: closing with unread bytes sends a reset.
				if half, ok := conn.(*net.TCPConn); ok && half.CloseWrite() == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
				return
			}
		}
	})
}

// inBubble produces an error between a client and an in-memory listener of the
// origin, under a fake clock.
func inBubble(listener string, do func(t *testing.T, c *http.Client, o *origin.Origin) error) func(*testing.T) error {
	return func(t *testing.T) error {
		var err error
		synctest.Test(t, func(t *testing.T) {
			o := origin.New(origin.Config{Seed: 1})
			l := bufconn.Listen(64 << 10)
			served := make(chan error, 1)
			go func() { served <- o.ServeAs(listener, l) }()
			defer func() {
				if err := errors.Join(o.Close(), <-served); err != nil {
					t.Error(err)
				}
			}()
			c := newClient(t, o, func(tr *http.Transport) {
				tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }
			})
			defer c.CloseIdleConnections()
			err = do(t, c, o)
		})
		return err
	}
}

// priorKnowledge makes a transport speak HTTP/2 without TLS.
func priorKnowledge(transport *http.Transport) {
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
}

// unreachable dials unroutable addresses until one fails immediately.
func unreachable(t *testing.T, is ...error) error {
	t.Helper()
	for _, addr := range []string{"[2001:db8::1]:80", "240.0.0.1:80", "255.255.255.255:80", "198.51.100.1:80"} {
		d := net.Dialer{Timeout: short}
		conn, err := d.DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
			continue
		}
		for _, target := range is {
			if errors.Is(err, target) {
				return err
			}
		}
	}
	need.Missing(t, "run it without routes to addresses for documentation", "every address has a route here")
	return nil
}

// key derives a key for the origin from the name of a row.
func key(name string) string {
	return strings.NewReplacer(" ", "-", "/", "-", ":", "-", ",", "").Replace(name)
}
