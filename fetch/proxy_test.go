package fetch_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// connectProxy is a proxy on loopback that carries CONNECT and plain requests to
// one address, whatever they name.
type connectProxy struct {
	target  string
	carried atomic.Int64
	refuse  bool
}

// ServeHTTP implements http.Handler.
func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.carried.Add(1)
	if p.refuse {
		http.Error(w, "no", http.StatusBadGateway)
		return
	}
	there, err := net.Dial("tcp", p.target)
	if err != nil {
		http.Error(w, "unreachable", http.StatusBadGateway)
		return
	}
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = there.Close()
		return
	}
	if r.Method == http.MethodConnect {
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	} else {
		_ = r.Write(there)
	}
	go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
	_, _ = io.Copy(here, there)
	_ = here.Close()
}

// TestProxy: an explicit proxy carries the requests; what the URL tells is still
// judged, and what the proxy refuses is no answer of the origin's.
func TestProxy(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, host string
		refuse               bool
		class                classify.Class
		carried              int64
	}{
		{"http", "http", "origin.test", false, 0, 1},
		{"https", "https1", "localhost", false, 0, 1},
		{"https over HTTP/2", "https", "localhost", false, 0, 1},
		{"a certificate that does not verify", "tls-expired", "localhost", false, classify.TLSCertificate, 1},
		{"a proxy that refuses", "https1", "localhost", true, classify.ConnectFailure, 3},
		{"a forbidden address is not asked for", "http", "10.0.0.1", false, classify.TargetBlocked, 0},
		{"a metadata name is not asked for", "http", "metadata.google.internal", false, classify.TargetBlocked, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			proxy := &connectProxy{target: w.origin.Addr(row.listener), refuse: row.refuse}
			server := httptest.NewServer(proxy)
			t.Cleanup(server.Close)
			at, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			c, err := fetch.New(fetch.Config{Proxy: at, RootCAs: w.origin.CA(),
				Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports(t, w.origin)}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			w.client = c
			r := w.request(row.listener, "/s/proxied/200")
			_, port, _ := net.SplitHostPort(r.URL.Host)
			r.URL.Host = net.JoinHostPort(row.host, port)
			res := w.run(t.Context(), r)
			var class classify.Class
			if res.Failure != nil {
				class = res.Failure.Class
			}
			if class != row.class || proxy.carried.Load() != row.carried {
				t.Errorf("class %s (%+v), %d requests carried, want %s, %d", class, res.Failure, proxy.carried.Load(), row.class, row.carried)
			}
		})
	}
}

// TestProxyThatIsWrong is refused when the client is made.
func TestProxyThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"ftp://proxy:1", "http://proxy", "//proxy:1", "socks4://proxy:1", "http://:1"} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := fetch.New(fetch.Config{Proxy: u}); err == nil {
			c.Close()
			t.Errorf("%s was taken", raw)
		}
	}
}
