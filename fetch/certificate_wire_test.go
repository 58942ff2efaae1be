package fetch_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/internal/budget"
	"fetchd/test/wait"
)

// certified is an origin with TLS at example.com:443. It answers with "shown" or
// "none", for the client's certificate, and with the connection's own address. Its
// profile shows a certificate only for alice. A request to any other host is
// redirected there.
type certified struct {
	*testing.T
	client   *fetch.Client
	settings fetch.OriginTLS // the profile
	// A request for /wait is announced on waiting and answered after a value on resume.
	waiting, resume chan struct{}
	closed          chan string // the addresses of connections that have ended
	address         string      // where the origin listens
	route           *fetch.Route
}

func newCertified(t *testing.T, http2 bool, callers ...string) *certified {
	t.Helper()
	o := &certified{T: t, waiting: make(chan struct{}), resume: make(chan struct{}), closed: make(chan string, 100)}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			o.waiting <- struct{}{}
			<-o.resume
		}
		switch {
		case r.TLS == nil:
			http.Redirect(w, r, "https://example.com/", http.StatusTemporaryRedirect)
		case len(r.TLS.PeerCertificates) > 0:
			_, _ = io.WriteString(w, "shown "+r.RemoteAddr)
		default:
			_, _ = io.WriteString(w, "none "+r.RemoteAddr)
		}
	}))
	s.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			o.closed <- conn.RemoteAddr().String()
		}
	}
	s.EnableHTTP2, s.TLS = http2, &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	o.address = s.Listener.Addr().String()
	plain := httptest.NewServer(s.Config.Handler)
	t.Cleanup(plain.Close)
	proxy := httptest.NewServer(&connectProxy{target: o.address})
	t.Cleanup(proxy.Close)
	pair, roots := selfSigned(t)
	o.settings = fetch.OriginTLS{RootCAs: roots, Certificate: &pair, Callers: callers}
	o.client = newClient(t, fetch.Config{
		Egress:  fetch.Egress{Unrestricted: true},
		Origins: map[string]fetch.OriginTLS{"example.com:443": o.settings},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			to := o.address
			switch {
			case strings.HasSuffix(address, ":80"):
				to = plain.Listener.Addr().String()
			case strings.HasPrefix(address, "proxy.test:"):
				to = proxy.Listener.Addr().String()
			}
			var d net.Dialer
			return d.DialContext(ctx, network, to)
		},
	})
	return o
}

// get runs a fetch for a caller. It returns the origin's answer and its connection.
func (o *certified) get(caller, method, target string) (saw, connection string) {
	o.Helper()
	r := get(o, target)
	r.Method, r.Delivery, r.Caller, r.Route = method, fetch.Inline, caller, o.route
	out := o.client.Fetch(o.Context(), r, nil)
	if out.Failure != nil || out.Attempts != 1 { // more are permitted: the last one needs a recent connection
		o.Errorf("%s: %d attempts, %+v", caller, out.Attempts, out.Failure)
	}
	saw, connection, _ = strings.Cut(string(out.InlineBody), " ")
	return saw, connection
}

// awaitClosed waits until a connection has ended.
func (o *certified) awaitClosed(connection string) {
	o.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case closed := <-o.closed:
			if closed == connection {
				return
			}
		case <-late:
			o.Fatalf("connection %s is still open", connection)
		}
	}
}

// TestCertificateOfCallers checks that a profile shows its certificate for its
// callers only, at every hop (spec A6).
func TestCertificateOfCallers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, caller, method, target, want string }{
		{"listed", "alice", "GET", "https://example.com/", "shown"},
		{"listed, by POST", "alice", "POST", "https://example.com/", "shown"},
		{"listed, by a redirect", "alice", "GET", "http://example.com/", "shown"},
		{"listed, the second", "carol", "GET", "https://example.com/", "shown"},
		{"not listed", "bob", "GET", "https://example.com/", "none"},
		{"not listed, by POST", "bob", "POST", "https://example.com/", "none"},
		{"not listed, by a redirect", "bob", "GET", "http://example.com/", "none"},
		{"not listed, by POST and a redirect", "bob", "POST", "http://example.com/", "none"},
		{"not listed, with the port", "bob", "GET", "https://example.com:443/", "none"},
		{"not listed, in capitals", "bob", "GET", "https://EXAMPLE.com/", "none"},
		{"different case", "Alice", "GET", "https://example.com/", "none"},
		{"no name", "", "GET", "https://example.com/", "none"},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", row.name, http2), func(t *testing.T) {
				t.Parallel()
				o := newCertified(t, http2, "alice", "carol")
				o.get("alice", "GET", "https://example.com/") // leaves an idle connection with the certificate
				if saw, _ := o.get(row.caller, row.method, row.target); saw != row.want {
					t.Errorf("the origin saw %q of %q, want %q", saw, row.caller, row.want)
				}
			})
		}
	}
}

// TestCertificatesDoNotMix runs fetches of both kinds in turn and concurrently, also through the proxy of a route.
// Fetches with the certificate share connections, and no other fetch gets one.
func TestCertificatesDoNotMix(t *testing.T) {
	t.Parallel()
	route := &fetch.Route{Name: "r", Proxy: &url.URL{Scheme: "http", Host: "proxy.test:1"}}
	for _, row := range []struct {
		http2 bool
		route *fetch.Route
	}{{false, nil}, {true, nil}, {false, route}, {true, route}} {
		o := newCertified(t, row.http2, "alice")
		o.route = row.route
		_, kept := o.get("alice", "GET", "https://example.com/")
		seen := make(map[string]bool)
		for range 5 {
			if saw, connection := o.get("bob", "GET", "https://example.com/"); saw != "none" || seen[connection] {
				t.Errorf("%+v: the origin saw %q of bob on %s, want none on its own connection", row, saw, connection)
			} else {
				seen[connection] = true
			}
			if saw, connection := o.get("alice", "GET", "https://example.com/"); saw != "shown" || connection != kept {
				t.Errorf("%+v: the origin saw %q of alice on %s, want shown on %s", row, saw, connection, kept)
			}
		}
		var fetches sync.WaitGroup
		for range 40 {
			for caller, want := range map[string]string{"alice": "shown", "bob": "none"} {
				fetches.Go(func() {
					if saw, _ := o.get(caller, "GET", "https://example.com/"); saw != want {
						t.Errorf("%+v: the origin saw %q of %s, want %q", row, saw, caller, want)
					}
				})
			}
		}
		fetches.Wait()
	}
}

// TestSetOrigins changes the profile between the fetches of one caller.
func TestSetOrigins(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		o := newCertified(t, http2)
		clone := *o.settings.Certificate
		shown := fetch.OriginTLS{RootCAs: o.settings.RootCAs.Clone(), Certificate: &clone}
		hidden := fetch.OriginTLS{RootCAs: o.settings.RootCAs}
		others := shown
		others.Callers = []string{"bob"}
		_, last := o.get("alice", "GET", "https://example.com/")
		for _, row := range []struct {
			name     string
			settings fetch.OriginTLS
			want     string
			kept     bool // the connection
		}{
			{"equal", shown, "shown", true},
			{"without the certificate", hidden, "none", false},
			{"equal again", hidden, "none", true},
			{"with the certificate", shown, "shown", false},
			{"for another caller", others, "none", false},
		} {
			must(t, o.client.SetOrigins(map[string]fetch.OriginTLS{"example.com:443": row.settings}))
			saw, connection := o.get("alice", "GET", "https://example.com/")
			if saw != row.want || (connection == last) != row.kept {
				t.Errorf("HTTP/2 %t, %s: the origin saw %q on %s after %s, want %q, the same connection: %t", http2, row.name, saw, connection, last, row.want, row.kept)
			}
			last = connection
		}
	}
}

// TestSetOriginsInFlight checks that a request in flight keeps its connection, which then
// takes no other request and is closed.
func TestSetOriginsInFlight(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		o := newCertified(t, http2)
		_, first := o.get("alice", "GET", "https://example.com/")
		var saw, connection string
		var flight sync.WaitGroup
		flight.Go(func() { saw, connection = o.get("alice", "GET", "https://example.com/wait") })
		<-o.waiting
		must(t, o.client.SetOrigins(map[string]fetch.OriginTLS{"example.com:443": {RootCAs: o.settings.RootCAs}}))
		if saw, second := o.get("alice", "GET", "https://example.com/"); saw != "none" || second == first {
			t.Errorf("HTTP/2 %t: the origin saw %q on %s during the request in flight, want none, and not on %s", http2, saw, second, first)
		}
		o.resume <- struct{}{}
		flight.Wait()
		if saw != "shown" || connection != first {
			t.Errorf("HTTP/2 %t: the request in flight ended with %q on %s, want shown on %s", http2, saw, connection, first)
		}
		o.awaitClosed(first)
		if saw, third := o.get("alice", "GET", "https://example.com/"); saw != "none" || third == first {
			t.Errorf("HTTP/2 %t: the origin saw %q on %s afterwards, want none, not on %s", http2, saw, third, first)
		}
	}
}

// presented returns what package fetch should say about the certificate of a listener.
func (w *wire) presented(listener string) fetch.Certificate {
	w.Helper()
	var certificate fetch.Certificate
	config := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
		c := state.PeerCertificates[0]
		digest := sha256.Sum256(c.Raw)
		certificate = fetch.Certificate{Subject: c.Subject.String(), Issuer: c.Issuer.String(), NotAfter: c.NotAfter, SHA256: hex.EncodeToString(digest[:])}
		return nil
	}}
	conn, err := tls.Dial("tcp", w.origin.Addr(listener), config)
	must(w, err)
	_ = conn.Close()
	if certificate.Subject == "" || certificate.Issuer == "" {
		w.Fatalf("%+v: want a certificate with names", certificate)
	}
	return certificate
}

// TestTLSDetails checks what a hop says about its TLS handshake: on request, and always if the
// certificate was rejected. Nothing is said about the handshake with a proxy.
func TestTLSDetails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener string
		wanted         bool
		class          classify.Class
		alpn           string
		details        bool
	}{
		{"HTTP/1.1", "https1", true, 0, "http/1.1", true},
		{"HTTP/2", "https", true, 0, "h2", true},
		{"not wanted", "https", false, 0, "", false},
		{"no TLS", "http", true, 0, "", false},
		{"an expired certificate", "tls-expired", false, classify.TLSCertificate, "", true},
		{"an expired certificate, wanted", "tls-expired", true, classify.TLSCertificate, "", true},
		{"a certificate of another name", "tls-wrong-name", false, classify.TLSCertificate, "", true},
		{"a certificate of an unknown authority", "tls-unknown-ca", false, classify.TLSCertificate, "", true},
		{"a handshake that fails", "tls-old", true, classify.TLSHandshake, "", false},
	} {
		for _, proxy := range []string{"no", "http", "https", "socks5"} {
			t.Run(fmt.Sprintf("%s, %s proxy", row.name, proxy), func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				switch proxy {
				case "http", "https":
					w.client = (&connectProxy{target: w.origin.Addr(row.listener)}).serve(t, w, proxy)
				case "socks5":
					w.client = throughProxy(t, w, "socks5://"+socksProxy(t, w.origin.Addr(row.listener)), w.origin.CA())
				}
				for reused, n := false, 0; n < 2 || !reused && row.class == 0; n++ { // until a connection is reused
					r := w.request(row.listener, "/s/details/200")
					r.Policy.MaxAttempts, r.TLSDetails = 1, row.wanted
					res := w.run(t.Context(), r)
					class := classOf(res.Failure)
					reused = res.Hops[0].Exchange.Reused
					if class != row.class || reused && (n == 0 || class != 0) || n == 100 {
						t.Fatalf("request %d: class %s (%+v), reused %t, want %s", n, class, res.Failure, reused, row.class)
					}
					got := res.Hops[0].Exchange.TLSDetails
					if !row.details {
						if got != nil {
							t.Errorf("%+v, want none", got)
						}
						continue
					}
					want := fetch.TLSDetails{ALPN: row.alpn, Certificate: w.presented(row.listener)}
					if class == 0 {
						want.CipherSuite = "TLS_AES_128_GCM_SHA256"
					}
					if got == nil || *got != want {
						t.Errorf("%+v\nwant %+v", got, want)
					}
				}
			})
		}
	}
}

// TestNoDetailsOfProxies checks that the certificate of a proxy is not taken for that of the origin if it
// is rejected.
func TestNoDetailsOfProxies(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	for _, listener := range []string{"http", "https"} {
		w.client = throughProxy(t, w, "https://"+net.JoinHostPort("localhost", portOf(t, w.origin.Addr("tls-expired"))), w.origin.CA())
		r := w.request(listener, "/s/details/200")
		r.Policy.MaxAttempts, r.TLSDetails = 1, true
		res := w.run(t.Context(), r)
		if res.Failure == nil || res.Failure.Class != classify.TLSCertificate {
			t.Fatalf("failure %+v, want TLS_CERTIFICATE", res.Failure)
		}
		if got := res.Hops[0].Exchange.TLSDetails; got != nil {
			t.Errorf("%s: %+v, want nothing about the proxy", listener, got)
		}
	}
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	return port
}

// TestCertificatesThatTakeMemory checks that a chain larger than usual is charged to
// the fetch that dials and that its connection serves no other fetch. A still larger
// chain is refused.
func TestCertificatesThatTakeMemory(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		extra  int // bytes in the chain
		budget int64
		class  classify.Class
		reason string
		reused bool
	}{
		{"usual", 2 << 10, 1 << 20, 0, "", true},
		{"large", 14 << 10, 1 << 20, 0, "", false},
		{"large, and no memory for it", 14 << 10, 100 << 10, classify.OutOfMemory, "memory", false},
		{"too large in memory", 25 << 10, 1 << 20, classify.TLSHandshake, "certificates_too_large", false},
		{"too long", 50 << 10, 1 << 20, classify.TLSHandshake, "handshake_too_large", false},
	} {
		for _, over := range []struct {
			name           string
			http2, proxied bool
		}{{"HTTP/1.1", false, false}, {"HTTP/2", true, false}, {"HTTP/1.1 and a proxy", false, true}, {"HTTP/2 and a proxy", true, true}} {
			t.Run(row.name+" over "+over.name, func(t *testing.T) {
				t.Parallel()
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				s.EnableHTTP2 = over.http2
				s.StartTLS()
				t.Cleanup(s.Close)
				s.TLS.Certificates[0].Certificate = append(s.TLS.Certificates[0].Certificate[:1:1], largeCertificate(t, row.extra))
				roots := x509.NewCertPool()
				roots.AddCert(s.Certificate())
				cfg := fetch.Config{Egress: unrestricted, RootCAs: roots}
				if over.proxied {
					proxy := httptest.NewServer(&connectProxy{target: s.Listener.Addr().String()})
					t.Cleanup(proxy.Close)
					cfg.Proxy = mustParse(t, proxy.URL)
				}
				c := newClient(t, cfg)
				b := budget.New(row.budget)
				for try := range 2 {
					r := get(t, s.URL+"/")
					r.Policy.MaxAttempts, r.Memory = 1, b.Lease("caller")
					out := c.Fetch(t.Context(), r, nil)
					r.Memory.Close()
					var class classify.Class
					reason := ""
					if out.Failure != nil {
						class, reason = out.Failure.Class, out.Failure.Reason
					}
					if class != row.class || reason != row.reason {
						t.Fatalf("fetch %d: %s %q, want %s %q", try, class, reason, row.class, row.reason)
					}
					if reused := out.Hops[0].Exchange.Reused; class == 0 && try == 1 && reused != row.reused {
						t.Errorf("the second fetch reused the connection: %t, want %t", reused, row.reused)
					}
				}
				// A closed HTTP/2 connection is charged for five seconds more.
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if wait.Until(ctx, 20*time.Millisecond, func() bool { return b.Usage().Total() == 0 }) != nil {
					t.Errorf("%d bytes are still charged", b.Usage().Total())
				}
			})
		}
	}
}

// largeCertificate returns a certificate with an extension of that many bytes.
func largeCertificate(t *testing.T, n int) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, n)}}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return raw
}

// TestCertificatesThatCannotBeUsed checks that a certificate is rejected for ever that crypto/tls does not get as far as
// to verify. One of them is behind a good one.
func TestCertificatesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	of := func(public any) []byte {
		raw, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
		must(t, err)
		return raw
	}
	good := of(&key.PublicKey)
	negative := bytes.Replace(good, []byte{2, 1, 1}, []byte{2, 1, 0xff}, 1)
	unknown := bytes.Replace(good, []byte("\x2a\x86\x48\xce\x3d\x02\x01"), []byte("\x2a\x86\x48\xce\x3d\x02\x7f"), 1)
	roots := x509.NewCertPool()
	for _, raw := range [][]byte{good, unknown} {
		authority, err := x509.ParseCertificate(raw)
		must(t, err)
		roots.AddCert(authority)
	}
	for _, row := range []struct {
		name  string
		chain [][]byte
		class classify.Class
	}{
		{"a good one", [][]byte{good}, 0},
		{"a negative serial number", [][]byte{negative}, classify.TLSCertificate},
		{"a negative serial number behind a good one", [][]byte{good, negative}, classify.TLSCertificate},
		{"bytes that are none", [][]byte{[]byte("certificate")}, classify.TLSCertificate},
		{"an RSA key that is too long", [][]byte{good, of(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(3), 8200), E: 65537})}, classify.TLSCertificate},
		{"a key of an unknown kind", [][]byte{unknown}, classify.TLSCertificate},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{good}, PrivateKey: key}}}
			s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			s.StartTLS()
			t.Cleanup(s.Close)
			s.TLS.Certificates[0].Certificate = row.chain
			out := newClient(t, fetch.Config{Egress: unrestricted, RootCAs: roots}).Fetch(t.Context(), get(t, s.URL+"/"), nil)
			if got := classOf(out.Failure); got != row.class || got != 0 && (out.Failure.Reason != "certificate_invalid" || out.Attempts != 1) {
				t.Errorf("%+v after %d attempts, want %s after one", out.Failure, out.Attempts, row.class)
			}
		})
	}
}
