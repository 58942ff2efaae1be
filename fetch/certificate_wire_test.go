package fetch_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/fetch"
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
	plain := httptest.NewServer(s.Config.Handler)
	t.Cleanup(plain.Close)
	pair, roots := selfSigned(t)
	o.settings = fetch.OriginTLS{RootCAs: roots, Certificate: &pair, Callers: callers}
	o.client = newClient(t, fetch.Config{
		Egress:  fetch.Egress{Unrestricted: true},
		Origins: map[string]fetch.OriginTLS{"example.com:443": o.settings},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			to := s.Listener.Addr().String()
			if strings.HasSuffix(address, ":80") {
				to = plain.Listener.Addr().String()
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
	r.Method, r.Delivery, r.Caller = method, fetch.Inline, caller
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

// TestCertificateForAllCallers checks that a profile without callers shares its
// connections among all callers.
func TestCertificateForAllCallers(t *testing.T) {
	t.Parallel()
	o := newCertified(t, false)
	_, first := o.get("alice", "GET", "https://example.com/")
	if saw, second := o.get("bob", "GET", "https://example.com/"); saw != "shown" || second != first {
		t.Errorf("the origin saw %q on %s, want shown on %s", saw, second, first)
	}
}

// TestCertificatesDoNotMix runs fetches of both kinds in turn and concurrently.
// Fetches with the certificate share connections, and no other fetch gets one.
func TestCertificatesDoNotMix(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		o := newCertified(t, http2, "alice")
		_, kept := o.get("alice", "GET", "https://example.com/")
		seen := make(map[string]bool)
		for range 5 {
			if saw, connection := o.get("bob", "GET", "https://example.com/"); saw != "none" || seen[connection] {
				t.Errorf("HTTP/2 %t: the origin saw %q of bob on %s, want none on its own connection", http2, saw, connection)
			} else {
				seen[connection] = true
			}
			if saw, connection := o.get("alice", "GET", "https://example.com/"); saw != "shown" || connection != kept {
				t.Errorf("HTTP/2 %t: the origin saw %q of alice on %s, want shown on %s", http2, saw, connection, kept)
			}
		}
		var fetches sync.WaitGroup
		for range 40 {
			for caller, want := range map[string]string{"alice": "shown", "bob": "none"} {
				fetches.Go(func() {
					if saw, _ := o.get(caller, "GET", "https://example.com/"); saw != want {
						t.Errorf("HTTP/2 %t: the origin saw %q of %s, want %q", http2, saw, caller, want)
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
			if err := o.client.SetOrigins(map[string]fetch.OriginTLS{"example.com:443": row.settings}); err != nil {
				t.Fatal(err)
			}
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
		if err := o.client.SetOrigins(map[string]fetch.OriginTLS{"example.com:443": {RootCAs: o.settings.RootCAs}}); err != nil {
			t.Fatal(err)
		}
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

// TestSetOriginsWithProxy checks that the error changes nothing.
func TestSetOriginsWithProxy(t *testing.T) {
	t.Parallel()
	c := newClient(t, fetch.Config{Proxy: &url.URL{Scheme: "http", Host: "127.0.0.1:3128"}})
	if err := c.SetOrigins(nil); err != nil {
		t.Errorf("SetOrigins without origins = %v", err)
	}
	if err := c.SetOrigins(map[string]fetch.OriginTLS{"example.com:443": {}}); !strings.Contains(fmt.Sprint(err), "Proxy") {
		t.Errorf("SetOrigins = %v, want an error about the proxy", err)
	}
}
