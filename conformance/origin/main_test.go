package origin_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"fetchd/conformance/origin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns an origin on loopback that is closed when the test ends.
func start(t *testing.T) *origin.Origin {
	t.Helper()
	o, err := origin.Start(origin.Config{Seed: 1})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return o
}

// newClient returns a client that trusts o and neither follows redirects nor decodes bodies. Its
// connections are closed when the test ends.
func newClient(t *testing.T, o *origin.Origin) *http.Client {
	t.Helper()
	return newTLSClient(t, &tls.Config{RootCAs: o.CA()})
}

func newTLSClient(t *testing.T, cfg *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig:    cfg,
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// got is a response with its body, as far as it could be read.
type got struct {
	*http.Response
	body []byte
	err  error // of the body
}

// get requests a URL and reads the body. It returns an error only if there is no head.
func get(t *testing.T, c *http.Client, url string, headers ...string) (got, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatalf("NewRequest(%q): %v", url, err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return do(c, req)
}

func do(c *http.Client, req *http.Request) (got, error) {
	resp, err := c.Do(req)
	if err != nil {
		return got{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return got{Response: resp, body: body, err: err}, nil
}

// mustGet is like get, but fails the test if there is no head.
func mustGet(t *testing.T, c *http.Client, url string, headers ...string) got {
	t.Helper()
	g, err := get(t, c, url, headers...)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return g
}

// dialer returns a dial function that ignores the address and dials l.
func dialer(l *bufconn.Listener) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }
}

// dial opens a connection that is closed when the test ends.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("dial %s: %v", addr, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// closeWrite closes the sending side.
func closeWrite(t *testing.T, c net.Conn) {
	t.Helper()
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T cannot close one side", c)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatalf("CloseWrite: %v", err)
	}
}

// ask writes a minimal request for path and returns everything until the connection closes.
func ask(t *testing.T, o *origin.Origin, path string) (string, error) {
	t.Helper()
	c := dial(t, o.Addr("http"))
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: origin.test\r\n\r\n"); err != nil {
		t.Fatalf("write request for %s: %v", path, err)
	}
	b, err := io.ReadAll(c)
	return string(b), err
}
