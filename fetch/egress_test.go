package fetch_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http/httpproxy"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/test/need"
)

// counted is a listener that counts its connections.
type counted struct {
	net.Listener
	accepted atomic.Int64
}

// Accept implements net.Listener.
func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}

// egressRig is an origin on an allowed address and one on a blocked address, both on the same
// allowed port, a blocked port, and a client with this policy.
type egressRig struct {
	open, closed, closedPort *counted
	port                     string
	names                    *names
	client                   *fetch.Client
}

// newEgressRig serves h on 127.0.0.2, which is allowed, and on 127.0.0.1, which is blocked. In a
// Location of h, {port} means the port of both, and {closed} one that is blocked.
func newEgressRig(t *testing.T, h http.Handler, answers map[string][][]string) *egressRig {
	t.Helper()
	r := &egressRig{names: newNames(answers)}
	for try := 0; r.open == nil; try++ {
		r.closed = listenOn(t, "127.0.0.1:0", true)
		_, r.port, _ = net.SplitHostPort(r.closed.Addr().String())
		r.open = listenOn(t, "127.0.0.2:"+r.port, try > 9)
	}
	r.closedPort = listenOn(t, "127.0.0.2:0", true)
	for _, l := range []*counted{r.open, r.closed, r.closedPort} {
		s := httptest.NewUnstartedServer(r.replacing(h))
		_ = s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
	}
	port, err := strconv.ParseUint(r.port, 10, 16)
	must(t, err)
	r.client = newClient(t, fetch.Config{
		Egress:   fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, AllowPorts: []uint16{uint16(port)}},
		Resolver: r.names.resolver(t),
	})
	return r
}

func listenOn(t *testing.T, address string, must bool) *counted {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", address)
	if err != nil {
		if must {
			need.Missing(t, "run it where loopback has this address", "this system cannot listen on %s: %v", address, err)
		}
		return nil
	}
	t.Cleanup(func() { _ = l.Close() })
	return &counted{Listener: l}
}

// replacing inserts the ports into the Location of a response of h.
func (r *egressRig) replacing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, q)
		if location := recorder.Header().Get("Location"); location != "" {
			w.Header().Set("Location", r.ports(location))
			w.Header().Set("Connection", "close") // so that the next hop looks up again
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes())
	})
}

func (r *egressRig) ports(s string) string {
	_, closed, _ := net.SplitHostPort(r.closedPort.Addr().String())
	return strings.NewReplacer("{port}", r.port, "{closed}", closed).Replace(s)
}

func (r *egressRig) fetch(t *testing.T, raw string) *fetch.Outcome {
	t.Helper()
	req := get(t, r.ports(raw))
	req.Policy.BaseDelay = 0
	return r.client.Fetch(t.Context(), req, nil)
}

func ok(http.ResponseWriter, *http.Request) {}

// TestNamesOfForbiddenAddresses checks that the guard checks the addresses of a name.
func TestNamesOfForbiddenAddresses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, url string
		answer    []string
		class     classify.Class
		reason    string
		attempts  int
		accepted  int64 // by the open address
	}{
		{"an open address", "http://origin.test:{port}/", []string{"127.0.0.2"}, 0, "", 1, 1},
		{"a closed address", "http://origin.test:{port}/", []string{"127.0.0.1"}, classify.TargetBlocked, "address_not_allowed", 1, 0},
		{"a closed address, mapped", "http://origin.test:{port}/", []string{"::ffff:127.0.0.1"}, classify.TargetBlocked, "address_not_allowed", 1, 0},
		{"the metadata service", "http://origin.test/", []string{"169.254.169.254"}, classify.TargetBlocked, "address_not_allowed", 1, 0},
		{"closed addresses only", "http://origin.test:{port}/", []string{"127.0.0.1", "10.0.0.1", "::1", "fe80::1"}, classify.TargetBlocked, "address_not_allowed", 1, 0},
		{"a closed address before an open one", "http://origin.test:{port}/", []string{"127.0.0.1", "127.0.0.2"}, 0, "", 1, 1},
		{"a closed address after an open one", "http://origin.test:{port}/", []string{"127.0.0.2", "127.0.0.1"}, 0, "", 1, 1},
		{"closed IPv6 and open IPv4", "http://origin.test:{port}/", []string{"::1", "127.0.0.2"}, 0, "", 1, 1},
		{"a closed port", "http://origin.test:{closed}/", []string{"127.0.0.2"}, classify.TargetBlocked, "port_not_allowed", 1, 0},
		{"no address", "http://origin.test:{port}/", nil, classify.DNSNotFound, "", 3, 0},
		{"a name that does not exist", "http://other.test:{port}/", []string{"127.0.0.2"}, classify.DNSNotFound, "", 3, 0},
		{"localhost", "http://localhost:{port}/", nil, classify.TargetBlocked, "address_not_allowed", 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newEgressRig(t, http.HandlerFunc(ok), map[string][][]string{"origin.test": {row.answer}})
			out := r.fetch(t, row.url)
			r.want(t, out, row.class, row.reason, row.accepted)
			if out.Attempts != row.attempts {
				t.Errorf("%d attempts, want %d", out.Attempts, row.attempts)
			}
			if row.reason == "port_not_allowed" && r.names.count("origin.test") != 0 {
				t.Errorf("the name was looked up for a closed port")
			}
		})
	}
}

// want compares an outcome and the number of accepted connections with the row.
func (r *egressRig) want(t *testing.T, out *fetch.Outcome, class classify.Class, reason string, accepted int64) {
	t.Helper()
	var got fetch.Failure
	if out.Failure != nil {
		got = *out.Failure
	}
	if got.Class != class || got.Reason != reason {
		t.Errorf("class %s, reason %q, want %s, %q", got.Class, got.Reason, class, reason)
	}
	if class == classify.TargetBlocked && (got.Retryable || got.Phase != classify.PhasePolicy || got.Rule != "P1") {
		t.Errorf("retryable %t, phase %s, rule %s, want false, policy, P1", got.Retryable, got.Phase, got.Rule)
	}
	if n := r.open.accepted.Load(); n != accepted {
		t.Errorf("the open address accepted %d connections, want %d", n, accepted)
	}
	if n := r.closed.accepted.Load() + r.closedPort.accepted.Load(); n != 0 {
		t.Errorf("the closed address and the closed port accepted %d connections, want none", n)
	}
}

// TestPermittedAddressThatFails checks that the failure is that of the allowed address, which
// refuses, and not TARGET_BLOCKED, which another address of the name would give.
func TestPermittedAddressThatFails(t *testing.T) {
	t.Parallel()
	r := newEgressRig(t, http.HandlerFunc(ok), map[string][][]string{"origin.test": {{"127.0.0.1", "127.0.0.2"}}})
	must(t, r.open.Close())
	out := r.fetch(t, "http://origin.test:{port}/")
	r.want(t, out, classify.ConnectFailure, "permitted_addresses_failed", 0)
	if out.Attempts != 3 || !out.Failure.Retryable {
		t.Errorf("%d attempts, retryable %t, want 3, true", out.Attempts, out.Failure.Retryable)
	}
}

// TestRedirectsToForbiddenTargets checks that a blocked target of a redirect gets no connection.
func TestRedirectsToForbiddenTargets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, location string
		class          classify.Class
		reason         string
		hops           int
	}{
		{"a closed address", "http://127.0.0.1:{port}/", classify.TargetBlocked, "address_not_allowed", 1},
		{"a closed address, scheme-relative", "//127.0.0.1:{port}/", classify.TargetBlocked, "address_not_allowed", 1},
		{"a closed address, mapped", "http://[::ffff:127.0.0.1]:{port}/", classify.TargetBlocked, "address_not_allowed", 1},
		{"a closed address, mapped, in hexadecimal", "http://[::ffff:7f00:1]:{port}/", classify.TargetBlocked, "address_not_allowed", 1},
		{"a closed address in full-width digits", "http://１２７.0.0.1:{port}/", classify.TargetBlocked, "address_not_allowed", 1},
		{"a closed address with userinfo", "http://127.0.0.2@127.0.0.1:{port}/", classify.TargetBlocked, "address_not_allowed", 1},
		{"IPv6 loopback", "http://[::1]:{port}/", classify.TargetBlocked, "address_not_allowed", 1},
		{"the metadata service", "http://169.254.169.254/latest/meta-data/", classify.TargetBlocked, "address_not_allowed", 1},
		{"a closed port", "http://127.0.0.2:{closed}/", classify.TargetBlocked, "port_not_allowed", 1},
		{"a closed port of a name", "http://origin.test:{closed}/", classify.TargetBlocked, "port_not_allowed", 1},
		{"a number", "http://2130706433:{port}/", classify.RedirectRejected, "location_number_like_host", 1},
		{"a hexadecimal number", "http://0x7f.1:{port}/", classify.RedirectRejected, "location_number_like_host", 1},
		{"a zone", "http://[::1%25lo]:{port}/", classify.RedirectRejected, "location_zone", 1},
		{"a name of a closed address", "http://closed.test:{port}/", classify.TargetBlocked, "address_not_allowed", 2},
		{"a name whose addresses have changed", "http://turncoat.test:{port}/again", classify.TargetBlocked, "address_not_allowed", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newEgressRig(t, http.RedirectHandler(row.location, http.StatusFound), map[string][][]string{
				"origin.test":   {{"127.0.0.2"}},
				"closed.test":   {{"127.0.0.1"}},
				"turncoat.test": {{"127.0.0.2"}, {"127.0.0.1"}},
			})
			first := "http://origin.test:{port}/"
			if strings.Contains(row.location, "turncoat") {
				first = "http://turncoat.test:{port}/"
			}
			out := r.fetch(t, first)
			r.want(t, out, row.class, row.reason, 1)
			if len(out.Hops) != row.hops || out.Exchanges != 1 || out.Attempts != 1 || strings.Contains(out.Hops[0].LocationURL, "@") {
				t.Errorf("hops %+v, %d exchanges, %d attempts, want %d without userinfo, 1, 1", out.Hops, out.Exchanges, out.Attempts, row.hops)
			}
			if judged := row.hops == 1; (out.Response != nil) != judged {
				t.Errorf("the last response is %+v, want the 302 kept if no other hop was started: %t", out.Response, judged)
			}
		})
	}
}

// TestProxyOfTheEnvironment checks that the proxy of the environment is not used, because it would
// bypass the guard.
func TestProxyOfTheEnvironment(t *testing.T) {
	r := newEgressRig(t, http.HandlerFunc(ok), map[string][][]string{"origin.test": {{"127.0.0.2"}}, "closed.test": {{"127.0.0.1"}}})
	proxy := "http://" + r.closed.Addr().String()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy)
		t.Setenv(strings.ToLower(name), proxy)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	for _, scheme := range []string{"http", "https"} {
		target := &url.URL{Scheme: scheme, Host: "origin.test"}
		if u, err := httpproxy.FromEnvironment().ProxyFunc()(target); err != nil || u.String() != proxy {
			t.Fatalf("the environment gives %v, %v for %s, so this tests nothing", u, err, target)
		}
	}
	r.want(t, r.fetch(t, "http://origin.test:{port}/"), classify.NoClass, "", 1)
	r.want(t, r.fetch(t, "http://closed.test:{port}/"), classify.TargetBlocked, "address_not_allowed", 1)
	out := r.fetch(t, "https://origin.test:{port}/") // to a port without TLS
	if out.Failure == nil || out.Failure.Class != classify.TLSHandshake {
		t.Errorf("failure %+v, want the handshake's with the origin itself", out.Failure)
	}
	if n := r.closed.accepted.Load(); n != 0 {
		t.Errorf("the proxy accepted %d connections, want none", n)
	}
}

// TestUnspecifiedTargets checks 0.0.0.0 and ::. The kernel connects them to loopback, where the
// service itself may listen, or which the operator may have denied.
func TestUnspecifiedTargets(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listen, host string
		own                bool
		deny               []netip.Prefix
		unrestricted       bool
		reason             string
	}{
		{"own", "127.0.0.1:0", "0.0.0.0", true, nil, false, "own_listener"},
		{"own, unrestricted", "127.0.0.1:0", "0.0.0.0", true, nil, true, "own_listener"},
		{"own IPv6", "[::1]:0", "::", true, nil, false, "own_listener"},
		{"own IPv6, unrestricted", "[::1]:0", "::", true, nil, true, "own_listener"},
		{"denied", "127.0.0.1:0", "0.0.0.0", false, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, false, "address_denied"},
		{"denied IPv6", "[::1]:0", "::", false, []netip.Prefix{netip.MustParsePrefix("::1/128")}, true, "address_denied"},
		{"open", "127.0.0.1:0", "0.0.0.0", false, nil, false, ""},
		{"open IPv6", "[::1]:0", "::", false, nil, false, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l := listenOn(t, row.listen, true)
			s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
			_ = s.Listener.Close()
			s.Listener = l
			s.Start()
			t.Cleanup(s.Close)
			at := netip.MustParseAddrPort(l.Addr().String())
			e := fetch.Egress{DenyCIDRs: row.deny, AllowPorts: []uint16{at.Port()}, Unrestricted: row.unrestricted,
				AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
			if row.own {
				e.Own = []netip.AddrPort{at}
			}
			c := newClient(t, fetch.Config{Egress: e})
			r := get(t, "http://"+net.JoinHostPort(row.host, strconv.Itoa(int(at.Port())))+"/")
			var reason string
			if out := c.Fetch(t.Context(), r, nil); out.Failure != nil {
				reason = out.Failure.Reason
			}
			var accepted int64
			if row.reason == "" {
				accepted = 1
			}
			if reason != row.reason || l.accepted.Load() != accepted {
				t.Errorf("reason %q, %d connections accepted, want %q, %d", reason, l.accepted.Load(), row.reason, accepted)
			}
		})
	}
}

// TestAddressesOfADial checks that 20 addresses of a name are tried. Only the one at a given
// place answers, and the others refuse.
func TestAddressesOfADial(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		place int
		kind  classify.Kind
	}{{1, classify.Success}, {20, classify.Success}, {21, classify.Failed}, {24, classify.Failed}} {
		t.Run(fmt.Sprint(row.place), func(t *testing.T) {
			t.Parallel()
			address := func(n int) string { return fmt.Sprintf("127.0.%d.%d", row.place, n) }
			l, err := net.Listen("tcp", address(row.place)+":0")
			if err != nil {
				need.Missing(t, "run it on Linux, where all of 127.0.0.0/8 is loopback", "this system has no such loopback address: %v", err)
			}
			server := &http.Server{Handler: http.HandlerFunc(ok)}
			go func() { _ = server.Serve(l) }() // ends with Close
			defer func() { _ = server.Close() }()
			var all []string
			for n := range 24 {
				all = append(all, address(n+1))
			}
			port := netip.MustParseAddrPort(l.Addr().String()).Port()
			c := newClient(t, fetch.Config{
				Resolver: newNames(map[string][][]string{"many.test": {all}}).resolver(t),
				Egress:   fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{port}},
			})
			r := get(t, fmt.Sprintf("http://many.test:%d/", port))
			r.Policy.MaxAttempts = 1
			if out := c.Fetch(t.Context(), r, nil); out.Kind != row.kind {
				t.Errorf("%s: %+v, want %s", out.Kind, out.Failure, row.kind)
			}
		})
	}
}
