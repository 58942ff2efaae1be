package conns_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
)

// freezer is a listener whose connections can fall silent.
type freezer struct {
	net.Listener
	frozen atomic.Bool
	ended  chan struct{}
}

func (f *freezer) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	return &freezing{c, f}, err
}

// freezing is a connection that neither reads nor writes once its listener is frozen.
type freezing struct {
	net.Conn
	of *freezer
}

func (c *freezing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.of.frozen.Load() {
		<-c.of.ended
	}
	return n, err
}

func (c *freezing) Write(p []byte) (int, error) {
	if c.of.frozen.Load() {
		<-c.of.ended
	}
	return c.Conn.Write(p)
}

// newHTTP2Bench starts an origin that speaks HTTP/2 on l.
func newHTTP2Bench(t *testing.T, l net.Listener, h http.Handler) *bench {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	if l != nil {
		_ = srv.Listener.Close()
		srv.Listener = l
	}
	srv.StartTLS()
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	u, _ := url.Parse(srv.URL)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	p := conns.New(conns.Config{
		Guard:    egress.New(egress.Policy{Unrestricted: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}),
		Resolver: net.DefaultResolver,
		RootCAs:  roots,
	})
	t.Cleanup(p.Close)
	return &bench{T: t, pool: p, target: conns.Target{URL: u}}
}

// TestSilentConnection checks that an HTTP/2 connection takes no further request after one
// timed out on it and nothing was received since.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		body     int
		limit    time.Duration // of the exchange
		deadline time.Duration // of its caller
		cancel   time.Duration // when its caller gives it up
		reused   bool
	}{
		{name: "after the limit for the head", limit: 200 * time.Millisecond},
		{name: "after the limit for sending", body: 8 << 20, limit: 200 * time.Millisecond},
		{name: "after the deadline of the caller", deadline: 200 * time.Millisecond},
		{name: "not after a cancellation", cancel: 200 * time.Millisecond, reused: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			f := &freezer{Listener: l, ended: make(chan struct{})}
			b := newHTTP2Bench(t, f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			t.Cleanup(func() { close(f.ended) })
			b.answer(b.target)
			f.frozen.Store(true)
			ctx := t.Context()
			if row.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.deadline)
				defer cancel()
			}
			x := b.pool.NewExchange(ctx, new(timers.Clock), conns.Settings{HeaderTimeout: row.limit})
			if err := x.Connect(b.target); err != nil || !x.Report().Reused {
				t.Fatalf("%v, reused: %t", err, x.Report().Reused)
			}
			if row.cancel > 0 {
				time.AfterFunc(row.cancel, func() { x.Cancel(context.Canceled) })
			}
			req := &http.Request{Method: http.MethodPut, URL: b.target.URL, Host: b.target.URL.Host, Header: http.Header{},
				Body: io.NopCloser(bytes.NewReader(make([]byte, row.body))), ContentLength: int64(row.body)}
			if _, err := x.RoundTrip(req); err == nil {
				t.Fatal("a silent origin has answered")
			}
			x.End()
			f.frozen.Store(false)
			x = b.pool.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
			defer x.End()
			if err := x.Connect(b.target); err != nil || x.Report().Reused != row.reused {
				t.Errorf("%v, reused: %t, want %t", err, x.Report().Reused, row.reused)
			}
		})
	}
}

// TestSmallFrames checks that an origin may fill the window of a stream byte by byte while the
// caller reads nothing.
func TestSmallFrames(t *testing.T) {
	t.Parallel()
	b := newHTTP2Bench(t, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range conns.WindowBytes {
			_, _ = w.Write([]byte{'x'})
			_ = http.NewResponseController(w).Flush()
		}
	}))
	x, resp, err := b.send(t.Context(), b.target)
	defer x.End()
	if err != nil {
		t.Fatal(err)
	}
	// Without a call of Permit all bytes count as received at once.
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != conns.WindowBytes {
		t.Errorf("%d bytes, %v, want %d", n, err, conns.WindowBytes)
	}
}
