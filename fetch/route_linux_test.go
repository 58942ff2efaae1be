package fetch_test

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// mirror is an origin on loopback that answers with the address from which a request came.
type mirror struct {
	server *httptest.Server
	port   string
	client *fetch.Client
	logs   *lockedText
}

// lockedText is a text that several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newMirror starts an origin at an address, with HTTP/2 if wanted.
func newMirror(t *testing.T, address string, http2 bool) *mirror {
	t.Helper()
	m := &mirror{logs: new(lockedText)}
	m.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %t", r.RemoteAddr, r.TLS != nil && r.TLS.DidResume)
	}))
	_ = m.server.Listener.Close()
	m.server.Listener = listenOn(t, address, true)
	cfg := fetch.Config{Logger: slog.New(slog.NewJSONHandler(m.logs, nil))}
	if http2 {
		m.server.EnableHTTP2 = true
		m.server.StartTLS()
		cfg.RootCAs = trusting(m.server)
	} else {
		m.server.Start()
	}
	t.Cleanup(m.server.Close)
	_, m.port, _ = net.SplitHostPort(m.server.Listener.Addr().String())
	var port uint16
	_, err := fmt.Sscan(m.port, &port)
	must(t, err)
	cfg.Egress = fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, AllowPorts: []uint16{port}}
	cfg.Resolver = newNames(map[string][][]string{"both.test": {{"127.0.0.1", "::1"}}}).resolver(t)
	m.client = newClient(t, cfg)
	return m
}

// trusting returns authorities that have signed the certificate of a server.
func trusting(s *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return roots
}

// fetch returns the outcome of a GET, the address from which the origin got it, and whether the TLS session was
// an earlier one.
func (m *mirror) fetch(t *testing.T, host string, route *fetch.Route, change ...func(*fetch.Request)) (out *fetch.Outcome, from string, resumed bool) {
	t.Helper()
	scheme, _, _ := strings.Cut(m.server.URL, ":")
	r := get(t, scheme+"://"+net.JoinHostPort(host, m.port)+"/")
	r.Delivery, r.Route, r.Policy.BaseDelay = fetch.Inline, route, 0
	for _, f := range change {
		f(r)
	}
	out = m.client.Fetch(t.Context(), r, nil)
	from, did, _ := strings.Cut(string(out.InlineBody), " ")
	return out, from, did == "true"
}

// authSocks is a SOCKS5 proxy on loopback that needs the user "name" and a password (RFC 1929). It connects every
// client to one address, from 127.0.0.9.
func authSocks(t *testing.T, password, target string) string {
	t.Helper()
	return serveConns(t, func(here net.Conn, _ int) {
		read := func(n int) []byte {
			b := make([]byte, n)
			_, _ = io.ReadFull(here, b)
			return b
		}
		methods := read(2)
		if offered := string(read(int(methods[1]))); !strings.Contains(offered, "\x02") {
			_, _ = here.Write([]byte{5, 0xff})
			return
		}
		_, _ = here.Write([]byte{5, 2})
		user := string(read(int(read(2)[1])))
		if given := string(read(int(read(1)[0]))); user != "name" || given != password {
			_, _ = here.Write([]byte{1, 1})
			return
		}
		_, _ = here.Write([]byte{1, 0})
		head := read(4)
		if head[3] == 3 {
			read(int(read(1)[0]) + 2)
		} else {
			read(4 + 2)
		}
		there, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}).DialContext(t.Context(), "tcp", target)
		if err != nil {
			return
		}
		defer there.Close()
		_, _ = here.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
		_, _ = io.Copy(here, there)
	})
}

const routePassword = "tr0ub4dor"

// via returns a route through a proxy.
func via(t *testing.T, scheme, address, password string) *fetch.Route {
	t.Helper()
	return &fetch.Route{Name: "r", Proxy: &url.URL{Scheme: scheme, Host: address, User: url.UserPassword("name", password)}}
}

// TestRoutes fetches over a route of each kind.
func TestRoutes(t *testing.T) {
	t.Parallel()
	fromAddress := func(address string) func(*testing.T, *mirror) *fetch.Route {
		return func(*testing.T, *mirror) *fetch.Route {
			return &fetch.Route{Name: "r", Source: netip.MustParseAddr(address)}
		}
	}
	proxied := func(scheme, password string) func(*testing.T, *mirror) *fetch.Route {
		return func(t *testing.T, m *mirror) *fetch.Route {
			if scheme == "socks5" {
				return via(t, scheme, authSocks(t, routePassword, m.server.Listener.Addr().String()), password)
			}
			server := httptest.NewUnstartedServer(&connectProxy{target: m.server.Listener.Addr().String(), password: routePassword})
			if scheme == "https" {
				server.StartTLS()
				m.client = newClient(t, fetch.Config{Egress: unrestricted, RootCAs: trusting(server),
					Logger: slog.New(slog.NewJSONHandler(m.logs, nil))})
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			return via(t, scheme, server.Listener.Addr().String(), password)
		}
	}
	plain := func(network, device string) func(*testing.T, *mirror) *fetch.Route {
		return func(*testing.T, *mirror) *fetch.Route {
			return &fetch.Route{Name: "r", Network: network, Interface: device}
		}
	}
	named := func(t *testing.T, _ *mirror) *fetch.Route {
		return &fetch.Route{Name: "r", Resolver: newNames(map[string][][]string{"own.test": {{"127.0.0.1"}}, "inside.test": {{"10.0.0.1"}}}).resolver(t)}
	}
	for _, row := range []struct {
		name, listen, host string
		http2              bool
		route              func(*testing.T, *mirror) *fetch.Route
		class              classify.Class
		from               string // host of the address that the origin sees; empty: any
	}{
		{"no route", "127.0.0.1:0", "127.0.0.1", false, func(*testing.T, *mirror) *fetch.Route { return nil }, 0, "127.0.0.1"},
		{"a source address", "127.0.0.1:0", "127.0.0.1", false, fromAddress("127.0.0.2"), 0, "127.0.0.2"},
		{"a source address over HTTP/2", "127.0.0.1:0", "127.0.0.1", true, fromAddress("127.0.0.2"), 0, "127.0.0.2"},
		{"a source address, by name", "127.0.0.1:0", "both.test", false, fromAddress("127.0.0.2"), 0, "127.0.0.2"},
		{"a source address that this machine has not", "127.0.0.1:0", "127.0.0.1", false, fromAddress("192.0.2.1"), classify.ConnectFailure, ""},
		{"a source address of another family", "127.0.0.1:0", "127.0.0.1", false, fromAddress("::1"), classify.ConnectFailure, ""},
		{"a forbidden address from a source address", "127.0.0.1:0", "10.0.0.1", false, fromAddress("127.0.0.2"), classify.TargetBlocked, ""},
		{"an interface", "127.0.0.1:0", "127.0.0.1", false, plain("", "lo"), 0, "127.0.0.1"},
		{"an interface that is not there", "127.0.0.1:0", "127.0.0.1", false, plain("", "none0"), classify.ConnectFailure, ""},
		{"IPv6 for a name that has both", "[::1]:0", "both.test", false, plain("tcp6", ""), 0, "::1"},
		{"IPv4 for a name that has both", "127.0.0.1:0", "both.test", false, plain("tcp4", ""), 0, "127.0.0.1"},
		{"IPv6 only, and an origin at IPv4", "127.0.0.1:0", "both.test", false, plain("tcp6", ""), classify.ConnectRefused, ""},
		{"its own resolver", "127.0.0.1:0", "own.test", false, named, 0, "127.0.0.1"},
		{"a name that its own resolver does not have", "127.0.0.1:0", "both.test", false, named, classify.DNSNotFound, ""},
		{"a forbidden address from the resolver of the route", "127.0.0.1:0", "inside.test", false, named, classify.TargetBlocked, ""},
		{"an HTTP proxy", "127.0.0.1:0", "origin.test", false, proxied("http", routePassword), 0, ""},
		{"an HTTP proxy over HTTP/2", "127.0.0.1:0", "127.0.0.1", true, proxied("http", routePassword), 0, ""},
		{"an HTTP proxy that refuses the password", "127.0.0.1:0", "127.0.0.1", true, proxied("http", "wrong"+routePassword), classify.TargetBlocked, ""},
		{"an HTTPS proxy", "127.0.0.1:0", "127.0.0.1", false, proxied("https", routePassword), 0, ""},
		{"an HTTPS proxy and an HTTPS origin", "127.0.0.1:0", "127.0.0.1", true, proxied("https", routePassword), 0, ""},
		{"a SOCKS proxy", "127.0.0.1:0", "origin.test", false, proxied("socks5", routePassword), 0, "127.0.0.9"},
		{"a SOCKS proxy over HTTP/2", "127.0.0.1:0", "127.0.0.1", true, proxied("socks5", routePassword), 0, "127.0.0.9"},
		{"a SOCKS proxy that refuses the password", "127.0.0.1:0", "origin.test", false, proxied("socks5", "wrong"+routePassword), classify.TargetBlocked, ""},
		{"a forbidden address through a proxy", "127.0.0.1:0", "10.0.0.1", false, proxied("http", routePassword), classify.TargetBlocked, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t, row.listen, row.http2)
			route := row.route(t, m)
			out, from, _ := m.fetch(t, row.host, route)
			host, _, _ := net.SplitHostPort(from)
			if got := classOf(out.Failure); got != row.class || row.from != "" && host != row.from {
				t.Fatalf("%s (%+v), from %q, want %s from %q", got, out.Failure, host, row.class, row.from)
			}
			if row.class == 0 && row.http2 != (out.Hops[0].Exchange.Protocol == "HTTP/2.0") {
				t.Errorf("over %s, want HTTP/2: %t", out.Hops[0].Exchange.Protocol, row.http2)
			}
			told := fmt.Sprintf("%+v %+v %s", out, out.Failure, m.logs)
			encoded := base64.StdEncoding.EncodeToString([]byte("name:" + routePassword))
			if strings.Contains(told, routePassword) || strings.Contains(told, encoded) {
				t.Errorf("the password is in %s", told)
			}
			if logged := strings.Contains(m.logs.String(), `"route":"r"`); logged != (route != nil) {
				t.Errorf("the log names the route: %t\n%s", logged, m.logs)
			}
		})
	}
}

// TestRoutesShareNothing checks that no connection and no TLS session of a route serves another one.
func TestRoutesShareNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		http2 bool
	}{{"HTTP/1.1", false}, {"HTTP/2", true}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t, "127.0.0.1:0", row.http2)
			source := netip.MustParseAddr("127.0.0.2")
			routes := []*fetch.Route{nil, {Name: "a", Source: source}, {Name: "b", Source: source}, {Name: "c"}}
			first := make(map[*fetch.Route]string)
			for range 3 {
				for _, route := range routes {
					out, from, resumed := m.fetch(t, "127.0.0.1", route)
					if out.Kind != classify.Success || resumed {
						t.Fatalf("%s (%+v), with an earlier session: %t", out.Kind, out.Failure, resumed)
					}
					if before := first[route]; before != "" && before != from {
						t.Errorf("route %v came from %s and %s, want one connection", route, before, from)
					}
					first[route] = from
				}
			}
			for i, a := range routes {
				for _, b := range routes[:i] {
					if first[a] == first[b] {
						t.Errorf("two routes share the connection from %s", first[a])
					}
				}
			}
			alone := func(r *fetch.Request) { r.Method = http.MethodPost }
			if _, from, resumed := m.fetch(t, "127.0.0.1", routes[1], alone); row.http2 && !resumed || from == first[routes[1]] {
				t.Errorf("a POST from %s with an earlier session: %t, want its own connection with the session of its route", from, resumed)
			}
		})
	}
}

// TestRoutesAtOnce checks the addresses of many fetches at once, over two routes to one origin.
func TestRoutesAtOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		http2 bool
	}{{"HTTP/1.1", false}, {"HTTP/2", true}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t, "127.0.0.1:0", row.http2)
			routes := []*fetch.Route{{Name: "a", Source: netip.MustParseAddr("127.0.0.2")}, {Name: "b", Source: netip.MustParseAddr("127.0.0.3")}}
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					route := routes[i%2]
					out, from, _ := m.fetch(t, "127.0.0.1", route)
					if host, _, _ := net.SplitHostPort(from); host != route.Source.String() {
						t.Errorf("%s (%+v) from %q, want %s", out.Kind, out.Failure, from, route.Source)
					}
				})
			}
			all.Wait()
		})
	}
}

// TestRetiredRoutes checks that connections of a route that is in use no more take no further request, and that
// those of other routes do.
func TestRetiredRoutes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		http2 bool
	}{{"HTTP/1.1", false}, {"HTTP/2", true}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t, "127.0.0.1:0", row.http2)
			gone, kept := &fetch.Route{Name: "a"}, &fetch.Route{Name: "b"}
			_, firstGone, _ := m.fetch(t, "127.0.0.1", gone)
			_, firstKept, _ := m.fetch(t, "127.0.0.1", kept)
			m.client.RetireRoutes(gone)
			if idle := m.client.Connections().Idle; idle != 1 {
				t.Errorf("%d idle connections, want that of the other route", idle)
			}
			_, second, _ := m.fetch(t, "127.0.0.1", gone) // a fetch that was in flight
			_, third, _ := m.fetch(t, "127.0.0.1", gone)
			if second == firstGone || third == second || second == "" {
				t.Errorf("connections from %s, %s and %s, want three", firstGone, second, third)
			}
			if _, again, _ := m.fetch(t, "127.0.0.1", kept); again != firstKept {
				t.Errorf("the other route has another connection, from %s and %s", firstKept, again)
			}
		})
	}
}
