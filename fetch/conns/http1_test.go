package conns_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"weak"

	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
)

// TestInvalidRequests checks that a request which would be written as another one is not sent.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, method string
		header       http.Header
		valid        bool
		length       int64 // of the body, which is empty
	}{
		{"valid", "GET", http.Header{"X-A": {"b c"}, "X-B": {""}}, true, 0},
		{"a valid method of no standard", "PROPFIND", nil, true, 0},
		{"a line end in a value", "GET", http.Header{"X-A": {"b\r\nX-C: d"}}, false, 0},
		{"a control in the second value", "GET", http.Header{"X-A": {"b", "c\x00"}}, false, 0},
		{"a blank in a name", "GET", http.Header{"X A": {"b"}}, false, 0},
		{"a line end in a name", "GET", http.Header{"X-A\r\nX-B": {"b"}}, false, 0},
		{"an empty name", "GET", http.Header{"": {"b"}}, false, 0},
		{"a blank in the method", "GET /x HTTP/1.1\r\nA: b", nil, false, 0},
		{"no method", "", nil, false, 0},
		{"a body that is shorter than its length", "PUT", nil, false, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil)
				b.answer(b.target)
				x := b.pool.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
				if err := x.Connect(b.target); err != nil {
					t.Fatal(err)
				}
				req := &http.Request{Method: row.method, URL: b.target.URL, Host: b.target.URL.Host, Header: row.header}
				if row.length > 0 {
					req.Body, req.ContentLength = io.NopCloser(strings.NewReader("")), row.length
				}
				_, err := x.RoundTrip(req)
				if (err == nil) != row.valid || x.Report().Sent != row.valid {
					t.Errorf("sent %t, %v, want it sent: %t", x.Report().Sent, err, row.valid)
				}
				x.End()
			})
		})
	}
}

// TestSessions checks that a second connection to an origin resumes the TLS session of the first, and
// that an origin with its own settings gets a whole handshake.
func TestSessions(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.TLS.DidResume) }))
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := rootsOf(srv)
	pool := conns.New(conns.Config{RootCAs: roots,
		Guard: egress.New(egress.Policy{Unrestricted: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})})
	t.Cleanup(pool.Close)
	b := &bench{T: t, pool: pool, target: conns.Target{URL: u, Alone: true}}
	for i, want := range []string{"false", "true", "true"} {
		if got, _ := b.answer(b.target); got != want {
			t.Errorf("handshake %d: resumed %s, want %s", i+1, got, want)
		}
	}
	pool.SetOrigins(map[string]*conns.OriginTLS{u.Host: {RootCAs: roots}})
	if got, _ := b.answer(b.target); got != "false" {
		t.Errorf("with settings of the origin: resumed %s, want false", got)
	}
}

// TestReadAfterEnd checks that the body of an exchange that has ended gives nothing: its buffer belongs to
// another exchange.
func TestReadAfterEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		x, resp, err := b.send(t.Context(), b.target)
		if err != nil {
			t.Fatal(err)
		}
		x.End()
		if n, err := resp.Body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("Read after End = %d, %v", n, err)
		}
	})
}

// TestIdleConnectionKeepsNoExchange checks that the exchange which made a connection is collected while the
// connection is idle, with TLS too.
func TestIdleConnectionKeepsNoExchange(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		start func(http.Handler) *httptest.Server
	}{{"plain", httptest.NewServer}, {"TLS", httptest.NewTLSServer}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := row.start(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))
			t.Cleanup(srv.Close)
			u, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			pool := conns.New(conns.Config{RootCAs: rootsOf(srv),
				Guard: egress.New(egress.Policy{Unrestricted: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})})
			t.Cleanup(pool.Close)
			b := &bench{T: t, pool: pool, target: conns.Target{URL: u}}
			first := func() weak.Pointer[conns.Exchange] {
				x, resp, err := b.send(t.Context(), b.target)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.ReadAll(resp.Body)
				x.End()
				return weak.Make(x)
			}()
			if pool.Stats().Idle != 1 {
				t.Fatal("the connection is not idle")
			}
			for range 100 {
				if runtime.GC(); first.Value() == nil {
					return
				}
			}
			t.Error("the idle connection keeps the exchange in memory")
		})
	}
}

func rootsOf(srv *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	if c := srv.Certificate(); c != nil {
		roots.AddCert(c)
	}
	return roots
}
