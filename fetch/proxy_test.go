package fetch_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/fetch"
)

// connectProxy is a proxy on loopback. It forwards CONNECT and other requests to one address,
// whatever their target is.
type connectProxy struct {
	target   string
	carried  atomic.Int64
	refuse   bool
	password string // of the user "name"; empty: none is needed
}

// ServeHTTP implements http.Handler.
func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.carried.Add(1)
	if p.refuse {
		http.Error(w, "no", http.StatusBadGateway)
		return
	}
	if p.password != "" && r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("name:"+p.password)) {
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	}
	there, err := net.Dial("tcp", p.target)
	if err != nil {
		http.Error(w, "unreachable", http.StatusBadGateway)
		return
	}
	if r.Method != http.MethodConnect {
		_ = r.Write(there)
	}
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = there.Close()
		return
	}
	if r.Method == http.MethodConnect {
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	}
	go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
	_, _ = io.Copy(here, there)
	_ = here.Close()
}

// serve starts the proxy, with TLS or without, and returns a client that uses it. With TLS the
// proxy prefers HTTP/2.
func (p *connectProxy) serve(t *testing.T, w *wire, scheme string) *fetch.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(p)
	roots := w.origin.CA().Clone()
	if scheme == "https" {
		server.EnableHTTP2 = true
		server.StartTLS()
		roots.AddCert(server.Certificate())
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	user := ""
	if p.password != "" {
		user = "name:" + p.password + "@"
	}
	return throughProxy(t, w, scheme+"://"+user+server.Listener.Addr().String(), roots)
}

func throughProxy(t *testing.T, w *wire, proxy string, roots *x509.CertPool) *fetch.Client {
	t.Helper()
	at, err := url.Parse(proxy)
	must(t, err)
	c, err := fetch.New(fetch.Config{Proxy: at, RootCAs: roots,
		Egress: fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: ports(t, w.origin)}})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestProxy checks that an explicit proxy carries the requests, that URLs are still checked, and
// that a refusal of the proxy is not taken for a response of the origin.
func TestProxy(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, host string
		refuse               bool
		class                classify.Class
		carried              int64
		tls                  string // of the origin
	}{
		{"http", "http", "origin.test", false, 0, 1, ""},
		{"https", "https1", "localhost", false, 0, 1, "TLS 1.3"},
		{"https over HTTP/2", "https", "localhost", false, 0, 1, "TLS 1.3"},
		{"a certificate that does not verify", "tls-expired", "localhost", false, classify.TLSCertificate, 1, ""},
		{"a proxy that refuses", "https1", "localhost", true, classify.ConnectFailure, 3, ""},
		{"a forbidden address is not connected to", "http", "10.0.0.1", false, classify.TargetBlocked, 0, ""},
		{"a metadata name is not looked up", "http", "metadata.google.internal", false, classify.TargetBlocked, 0, ""},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(row.name+", by "+scheme, func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				proxy := &connectProxy{target: w.origin.Addr(row.listener), refuse: row.refuse}
				w.client = proxy.serve(t, w, scheme)
				r := w.request(row.listener, "/s/proxied/200")
				_, port, _ := net.SplitHostPort(r.URL.Host)
				r.URL.Host = net.JoinHostPort(row.host, port)
				res := w.run(t.Context(), r)
				class := classOf(res.Failure)
				if class != row.class || proxy.carried.Load() != row.carried {
					t.Errorf("class %s (%+v), %d requests carried, want %s, %d", class, res.Failure, proxy.carried.Load(), row.class, row.carried)
				}
				if x := res.Hops[0].Exchange; x.RemoteAddress != "" || x.TLSVersion != row.tls {
					t.Errorf("peer %q, %q, want none, %q: the proxy's must not be reported", x.RemoteAddress, x.TLSVersion, row.tls)
				}
				if x := res.Hops[0].Exchange; class == 0 && (x.Connect == 0 || (x.TLS != 0) != (row.tls != "")) {
					t.Errorf("connected in %v, handshake in %v: want both, the handshake with the origin only", x.Connect, x.TLS)
				}
			})
		}
	}
}

// TestProxyOfEachHop checks that each hop is asked for its proxy, and that no connection is used for a hop with
// another one.
func TestProxyOfEachHop(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		hosts []string // of the hops; those in .test need a proxy
		first int64    // requests by the proxy of one.test
		other int64    // requests by the proxy of other hosts in .test
	}{
		{"no hop", []string{"127.0.0.1", "127.0.0.1"}, 0, 0},
		{"the first hop", []string{"one.test", "127.0.0.1"}, 1, 0},
		{"the second hop", []string{"127.0.0.1", "one.test"}, 1, 0},
		{"another one for each hop", []string{"one.test", "two.test", "one.test", "127.0.0.1"}, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			var at [2]*url.URL
			var proxies [2]*connectProxy
			for i := range proxies {
				proxies[i] = &connectProxy{target: w.origin.Addr("http")}
				server := httptest.NewServer(proxies[i])
				t.Cleanup(server.Close)
				at[i], _ = url.Parse(server.URL)
			}
			c, err := fetch.New(fetch.Config{Egress: fetch.Egress{Unrestricted: true}, ProxyFor: func(u *url.URL) *url.URL {
				switch {
				case u.Hostname() == "one.test":
					return at[0]
				case strings.HasSuffix(u.Hostname(), ".test"):
					return at[1]
				}
				return nil
			}})
			must(t, err)
			t.Cleanup(c.Close)
			_, port, _ := net.SplitHostPort(w.origin.Addr("http"))
			var next string
			for i := len(row.hosts) - 1; i >= 0; i-- {
				script := "200"
				if next != "" {
					script = "302:to=" + url.QueryEscape(next)
				}
				next = fmt.Sprintf("http://%s/s/hop%d/%s", net.JoinHostPort(row.hosts[i], port), i, script)
			}
			r := fetch.NewRequest(classify.Standard)
			r.URL, _ = url.Parse(next)
			out := c.Fetch(t.Context(), r, nil)
			if out.Kind != classify.Success || len(out.Hops) != len(row.hosts) {
				t.Fatalf("%s with %d hops (%+v), want success with %d", out.Kind, len(out.Hops), out.Failure, len(row.hosts))
			}
			for i, host := range row.hosts {
				if direct := out.Hops[i].Exchange.RemoteAddress != ""; direct == strings.HasSuffix(host, ".test") {
					t.Errorf("hop %d to %s has no proxy: %t", i+1, host, direct)
				}
			}
			if first, other := proxies[0].carried.Load(), proxies[1].carried.Load(); first != row.first || other != row.other {
				t.Errorf("%d and %d connections by the proxies, want %d and %d", first, other, row.first, row.other)
			}
		})
	}
}

// TestProxyAnswers checks that no answer of a proxy to CONNECT is taken for that of the origin. Callers get
// its status, and nothing that the proxy wrote.
func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, answer string
		class        classify.Class
		reason       string
		detail       string // after the host
	}{
		{"407", "HTTP/1.1 407 hush\r\nProxy-Authenticate: Basic realm=hush\r\nContent-Length: 4\r\n\r\nhush", classify.TargetBlocked, "proxy_credentials",
			": the proxy answers CONNECT with status 407 Proxy Authentication Required"},
		{"403 with a body", "HTTP/1.1 403 hush\r\nContent-Length: 4\r\n\r\nhush", classify.TargetBlocked, "proxy_refused", ": the proxy answers CONNECT with status 403 Forbidden"},
		{"another 4xx", "HTTP/1.1 405 hush\r\n\r\n", classify.TargetBlocked, "proxy_refused", ": the proxy answers CONNECT with status 405 Method Not Allowed"},
		{"408", "HTTP/1.1 408 hush\r\n\r\n", classify.ConnectFailure, "", ": the proxy answers CONNECT with status 408 Request Timeout"},
		{"425", "HTTP/1.1 425 hush\r\n\r\n", classify.ConnectFailure, "", ": the proxy answers CONNECT with status 425 Too Early"},
		{"429", "HTTP/1.1 429 hush\r\n\r\n", classify.ConnectFailure, "", ": the proxy answers CONNECT with status 429 Too Many Requests"},
		{"502 in chunks", "HTTP/1.1 502 hush\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhush\r\n0\r\n\r\n", classify.ConnectFailure, "", ": the proxy answers CONNECT with status 502 Bad Gateway"},
		{"a status without a name", "HTTP/1.1 999 hush\r\n\r\n", classify.ConnectFailure, "", ": the proxy answers CONNECT with status 999"},
		{"a redirect", "HTTP/1.1 302 hush\r\nLocation: http://hush.example/\r\n\r\n", classify.ConnectFailure, "", ": the proxy answers CONNECT with status 302 Found"},
		{"200 with a body", "HTTP/1.1 200 hush\r\nContent-Length: 4\r\n\r\nhush", classify.ConnectFailure, "proxy_bytes", ""},
		{"a head that is too long", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 70_000) + "\r\n\r\n", classify.ConnectFailure, "proxy_answer_too_large", ""},
		{"200 and bytes behind it", "HTTP/1.1 200 hush\r\n\r\nHTTP/1.1 200 hush\r\nContent-Length: 4\r\n\r\nhush", classify.ConnectFailure, "proxy_bytes", ""},
		{"no HTTP", "hush hush hush\r\n\r\n", classify.ConnectFailure, "", ""},
		{"half a head", "HTTP/1.1 200 hush\r\nX: hush", classify.ConnectFailure, "", ""},
		{"nothing", "", classify.ConnectFailure, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.client = throughProxy(t, w, "http://"+canned(t, row.answer), w.origin.CA())
			r := w.request("https", "/s/proxied/200")
			r.Policy.MaxAttempts = 1
			res := w.run(t.Context(), r)
			if res.Failure == nil {
				t.Fatalf("kind %s, want a failure", res.Kind)
			}
			if f := res.Failure; f.Class != row.class || f.Phase != classify.PhaseConnect || f.Reason != row.reason || f.Detail != r.URL.Host+row.detail {
				t.Errorf("%s in %s, reason %q, detail %q; want %s in connect, %q, %q", f.Class, f.Phase, f.Reason, f.Detail, row.class, row.reason, r.URL.Host+row.detail)
			}
			if row.reason == "proxy_credentials" && !strings.HasSuffix(res.Failure.Message, "or wants some: the operator sets them in the URL of --egress-proxy") {
				t.Errorf("message %q", res.Failure.Message)
			}
			if res.Response != nil || len(res.ErrorBody) > 0 || res.Exchanges != 0 || strings.Contains(fmt.Sprintf("%+v", *res.Failure), "hush") {
				t.Errorf("response %+v, error body %q, %d exchanges, %+v: want nothing from the proxy", res.Response, res.ErrorBody, res.Exchanges, res.Failure)
			}
		})
	}
}

// TestSOCKSAnswers checks what the replies of a SOCKS proxy mean (RFC 1928). The library that reads them has no types.
func TestSOCKSAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		method byte
		reply  byte
		class  classify.Class
		reason string
	}{
		{"no method that it accepts", 0xff, 0, classify.TargetBlocked, "proxy_credentials"},
		{"a failure", 0, 1, classify.ConnectFailure, ""},
		{"not allowed", 0, 2, classify.TargetBlocked, "proxy_refused"},
		{"no route to the network", 0, 3, classify.ConnectFailure, "unreachable"},
		{"no route to the host", 0, 4, classify.ConnectFailure, "unreachable"},
		{"the origin refuses", 0, 5, classify.ConnectRefused, ""},
		{"too many routers", 0, 6, classify.ConnectFailure, ""},
		{"a reply without a meaning", 0, 99, classify.ConnectFailure, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			proxy := serveConns(t, func(here net.Conn, _ int) {
				head := make([]byte, 10) // the request has at least as many bytes
				if _, err := io.ReadFull(here, head[:3]); err != nil {
					return
				}
				_, _ = here.Write([]byte{5, row.method})
				if _, err := io.ReadFull(here, head); err == nil {
					_, _ = here.Write([]byte{5, row.reply, 0, 1, 0, 0, 0, 0, 0, 0})
				}
			})
			w.client = throughProxy(t, w, "socks5://"+proxy, w.origin.CA())
			r := w.request("http", "/s/proxied/200")
			r.Policy.MaxAttempts = 1
			if f := w.run(t.Context(), r).Failure; f == nil || f.Class != row.class || f.Reason != row.reason || f.Phase != classify.PhaseConnect || f.Detail != r.URL.Host {
				t.Errorf("%+v, want %s in connect, reason %q", f, row.class, row.reason)
			}
		})
	}
}

// TestProxyThatForwards checks what callers see of an HTTP proxy that answers http URLs itself, and repeats the
// request in its answer: no field in which it names itself, and no credentials in fields and error bodies.
func TestProxyThatForwards(t *testing.T) {
	t.Parallel()
	const token = "bmFtZTpodXNoLWh1c2g=" // of name:hush-hush
	echo := "GET / HTTP/1.1\nProxy-Authorization: Basic " + token + "\nHost: a\n"
	for _, row := range []struct {
		name, status, fields, body string
		header                     http.Header // without Content-Length
		want                       string      // of the body
	}{
		{"an error page of squid", "503", "Via: 1.1 inside (squid/5.7)\r\nX-Cache: MISS from inside\r\nX-Cache-Lookup: NONE from inside:3128\r\nX-Squid-Error: ERR 0\r\nServer: squid\r\n",
			"sorry", http.Header{"Server": {"squid"}}, "sorry"},
		{"fields for the client of a proxy", "407", "Proxy-Authenticate: Basic realm=inside\r\nProxy-Status: inside\r\nProxy-Authentication-Info: x\r\nProxy-Connection: close\r\nCache-Status: inside; hit\r\n",
			"who?", http.Header{}, "who?"},
		{"the request in the body", "502", "", echo, http.Header{}, "GET / HTTP/1.1\n[hidden]\nHost: a\n"},
		{"the request in JSON", "403", "", `{"Proxy-Authorization": "Basic ` + token + `", "basic": "basic authentication"}`, http.Header{},
			`{"[hidden]", "basic": "basic authentication"}`},
		{"the request in HTML", "500", "", "<b>proxy-authorization</b>: BASIC\t" + token + "<br>", http.Header{}, "<b>proxy-authorization</b>: [hidden]<br>"},
		{"the request in fields", "200", "X-Echo: Basic " + token + "\r\nX-Echo: a\r\nX-All: Proxy-Authorization: Basic " + token + ", Host: a\r\nWWW-Authenticate: Basic realm=origin\r\n",
			"fine", http.Header{"X-Echo": {"[hidden]", "a"}, "X-All": {"[hidden], Host: a"}, "Www-Authenticate": {"Basic realm=origin"}}, "fine"},
		{"the request in a redirect", "300", "Location: /login?Proxy-Authorization:%20Basic%20bmFtZTpodXNoLWh1c2g%3D&x=y\r\n", "", http.Header{"Location": {"/login?[hidden]&x=y"}}, ""},
		{"the credentials of another", "404", "", "curl -H 'Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=='", http.Header{}, "curl -H 'Authorization: [hidden]'"},
		{"a page that succeeds is not changed", "200", "", echo, http.Header{}, echo},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			answer := fmt.Sprintf("HTTP/1.1 %s x\r\n%sContent-Length: %d\r\n\r\n%s", row.status, row.fields, len(row.body), row.body)
			w.client = throughProxy(t, w, "http://name:hush-hush@"+canned(t, answer), w.origin.CA())
			r := w.request("http", "/s/proxied/200")
			r.Policy.MaxAttempts, r.Delivery = 1, fetch.Inline
			out := w.client.Fetch(t.Context(), r, nil)
			if out.Response == nil {
				t.Fatalf("no response: %+v", out.Failure)
			}
			out.Response.Header.Del("Content-Length")
			if got := cmp.Diff(row.header, out.Response.Header); got != "" {
				t.Errorf("the header: -want +got:\n%s", got)
			}
			if got := string(out.ErrorBody) + string(out.InlineBody); got != row.want {
				t.Errorf("the body %q, want %q", got, row.want)
			}
		})
	}
	w := newWire(t)
	w.client = throughProxy(t, w, "http://"+canned(t, "inside says hello\r\n\r\n"), w.origin.CA())
	r := w.request("http", "/s/proxied/200")
	if f := w.run(t.Context(), r).Failure; f == nil || f.Class != classify.Protocol || f.Detail != r.URL.Host {
		t.Errorf("%+v, want PROTOCOL, and no text that a proxy may have made", f)
	}
}

// TestProxyThatIsWrong checks that New rejects an invalid proxy.
func TestProxyThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, url, want string }{
		{"another scheme", "ftp://proxy:1", "http://HOST:PORT"},
		{"another SOCKS", "socks4://proxy:1", "http://HOST:PORT"},
		{"no scheme", "//proxy:1", "http://HOST:PORT"},
		{"no port", "http://proxy", "http://HOST:PORT"},
		{"no host", "http://:1", "http://HOST:PORT"},
		{"a port over 65535", "http://user:secret@proxy:65536", "65536"},
		{"a port far over 65535", "socks5://user:secret@proxy:99999", "99999"},
		{"port 0", "https://user:secret@proxy:0", "port 0"},
		{"the last port", "http://proxy:65535", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(row.url)
			must(t, err)
			c, err := fetch.New(fetch.Config{Proxy: u})
			if err == nil {
				c.Close()
			}
			if (err == nil) != (row.want == "") {
				t.Fatalf("%s: %v, want it refused: %t", row.url, err, row.want != "")
			}
			if got := fmt.Sprint(err); !strings.Contains(got, row.want) && err != nil || strings.Contains(got, "secret") {
				t.Errorf("%s: %s, want it to name %q and no password", row.url, got, row.want)
			}
		})
	}
}

// TestSilentProxy checks that a connection ends with the fetch that it was made for, at whatever point of
// its handshake a proxy falls silent. The bubble notices a goroutine that stays.
func TestSilentProxy(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, proxy, target, says string }{
		{"http, asked to CONNECT", "http://origin.example:3128", "https", ""},
		{"http, in the head of its answer", "http://origin.example:3128", "https", "HTTP/1.1 200 OK\r\n"},
		{"http, in the origin's handshake", "http://origin.example:3128", "https", "HTTP/1.1 200 OK\r\n\r\n"},
		{"http, asked for a page", "http://origin.example:3128", "http", ""},
		{"https, in its handshake", "https://silent.example:3128", "https", ""},
		{"https, asked to CONNECT", "https://origin.example:3128", "https", ""},
		{"https, in the origin's handshake", "https://origin.example:3128", "https", "HTTP/1.1 200 OK\r\n\r\n"},
		{"https, asked for a page", "https://origin.example:3128", "http", ""},
		{"socks5, greeted", "socks5://origin.example:3128", "http", ""},
		{"socks5, asked to connect", "socks5://origin.example:3128", "http", "\x05\x00"},
		{"socks5 with a password, greeted", "socks5://user:secret@origin.example:3128", "https", ""},
		{"socks5 with a password, given it", "socks5://user:secret@origin.example:3128", "https", "\x05\x02"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				at, err := url.Parse(row.proxy)
				must(t, err)
				certificate, roots := selfSigned(t)
				var open atomic.Int64
				var theirs []net.Conn
				c, err := fetch.New(fetch.Config{
					Egress: unrestricted, RootCAs: roots, Proxy: at,
					Dial: func(context.Context, string, string) (net.Conn, error) {
						ours, its := net.Pipe()
						theirs = append(theirs, its)
						open.Add(1)
						go func() {
							defer open.Add(-1)
							if at.Scheme == "https" && at.Hostname() != "silent.example" {
								its = tls.Server(its, &tls.Config{Certificates: []tls.Certificate{certificate}})
							}
							fallSilent(its, row.says)
						}()
						return ours, nil
					},
				})
				must(t, err)
				const fetches = 20
				for i := range fetches {
					r := get(t, fmt.Sprintf("%s://origin%d.example/", row.target, i))
					r.TotalTimeout = 100 * time.Millisecond
					if out := c.Fetch(t.Context(), r, nil); out.Kind != classify.Failed {
						t.Errorf("%s, want failed", out.Kind)
					}
				}
				time.Sleep(time.Second) //nolint:forbidigo // of the bubble
				if n := open.Load(); n != 0 || len(theirs) != fetches {
					t.Errorf("%d of %d connections are still open after a second, want none of %d", n, len(theirs), fetches)
				}
				for _, conn := range theirs { // so that the other rows get their turn
					_ = conn.Close()
				}
				c.Close()
			})
		})
	}
}

// fallSilent reads what comes, and says its one thing after the first of it.
func fallSilent(conn net.Conn, says string) {
	buf := make([]byte, 4<<10)
	if _, err := conn.Read(buf); err == nil {
		_, _ = io.WriteString(conn, says)
	}
	_, _ = io.Copy(io.Discard, conn)
}

// socksProxy connects every client to one address, and returns its own address.
func socksProxy(t *testing.T, target string) string {
	t.Helper()
	return serveConns(t, func(here net.Conn, _ int) { carry(here, target) })
}

// carry is SOCKS 5 as far as a client without a password takes it (RFC 1928).
func carry(here net.Conn, target string) {
	head := make([]byte, 5) // version, command, reserved, type of address, the length of a name
	_, greeted := io.ReadFull(here, head[:3])
	_, answered := here.Write([]byte{5, 0})
	_, asked := io.ReadFull(here, head)
	if errors.Join(greeted, answered, asked) != nil {
		return
	}
	rest := int64(head[4]) + 2 // with the port
	if head[3] == 1 {          // an IPv4 address
		rest = 3 + 2
	}
	if _, err := io.CopyN(io.Discard, here, rest); err != nil {
		return
	}
	there, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer there.Close()
	if _, err := here.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
		return
	}
	go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
	_, _ = io.Copy(here, there)
}
