package fetch_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/fetch/urls"
)

// signingOrigin is an HTTP/1.1 origin that authenticates connections, as NTLM does.
// Once a connection has carried a header value with "alice", all its requests are
// alice's. answer returns the response to a request on the nth connection.
type signingOrigin struct {
	*testing.T
	url      string
	requests atomic.Int64
	answer   func(r *http.Request, n int, who string) string
}

func newSigningOrigin(t *testing.T, answer func(r *http.Request, n int, who string) string) *signingOrigin {
	t.Helper()
	o := &signingOrigin{T: t, answer: answer}
	o.url = "http://" + serveConns(t, o.serve)
	return o
}

func (o *signingOrigin) serve(conn net.Conn, n int) {
	who := "nobody"
	for in := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		o.requests.Add(1)
		if strings.Contains(fmt.Sprint(r.Header), "alice") {
			who = "alice"
		}
		if _, err := io.WriteString(conn, o.answer(r, n, who)); err != nil {
			return
		}
	}
}

// mailbox shows alice her mail, and answers everybody else with 401.
func mailbox(_ *http.Request, n int, who string) string {
	status := "200 OK"
	if who != "alice" {
		status = "401 Unauthorized"
	}
	body := fmt.Sprintf("%s on %d", who, n)
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// get returns an INLINE GET of path with a single attempt.
func (o *signingOrigin) get(path string) *fetch.Request {
	o.Helper()
	r := get(o, o.url+path)
	r.Delivery, r.Policy.MaxAttempts, r.Policy.BaseDelay = fetch.Inline, 1, 0
	return r
}

// shown is a credential that is sent to every origin.
type shown struct{ name, value string }

func (shown) Covers(*url.URL) bool { return true }

func (s shown) Field(context.Context) (string, string, error) { return s.name, s.value, nil }

func (shown) Refresh(context.Context, string) error { return io.EOF }

// TestSignedInConnections checks that credentials that authenticate a connection leave
// none for the next fetch to use, and that credentials of single requests do (spec A5).
func TestSignedInConnections(t *testing.T) {
	t.Parallel()
	header := func(values ...string) func(*fetch.Request) {
		return func(r *fetch.Request) { r.Header = http.Header{"Authorization": values} }
	}
	provider := func(name, value string) func(*fetch.Request) {
		return func(r *fetch.Request) { r.Credentials = shown{name, value} }
	}
	for _, row := range []struct {
		name   string
		alice  func(*fetch.Request)
		shared bool
	}{
		{"NTLM", header("NTLM alice"), false},
		{"in lower case", header("ntlm alice"), false},
		{"Negotiate", header("Negotiate alice"), false},
		{"in upper case", header("NEGOTIATE alice"), false},
		{"Nego2", header("Nego2 alice"), false},
		{"Kerberos", header("Kerberos alice"), false},
		{"GSS-Negotiate", header("GSS-Negotiate alice"), false},
		{"after space", header(" \t NTLM alice"), false},
		{"before a tab", header("NTLM\talice"), false},
		{"in the second line", header("Basic eDp5", "NTLM alice"), false},
		{"after a comma", header("Basic eDp5,NTLM alice"), false},
		{"by a provider", provider("Authorization", "NTLM alice"), false},
		{"by a provider in another header", provider("X-Authorization", "negotiate alice"), false},
		{"with PUT", func(r *fetch.Request) { header("NTLM alice")(r); r.Method, r.Body = "PUT", []byte("mail") }, false},
		{"Basic", header("Basic alice"), true},
		{"Bearer", header("Bearer alice"), true},
		{"Bearer, with a name inside", header("Bearer xntlm negotiate alice"), true},
		{"Digest", header(`Digest username="alice", realm="NTLM and Negotiate", nonce="x", nc=00000001`), true},
		{"a token alone", header("alice"), true},
		{"by a provider, Bearer", provider("Authorization", "Bearer alice"), true},
		{"none, with PUT", func(r *fetch.Request) { header("Bearer alice")(r); r.Method, r.Body = "PUT", []byte("mail") }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := newSigningOrigin(t, mailbox)
			c := newClient(t, fetch.Config{Egress: unrestricted})
			bob, alice := o.get("/mail"), o.get("/mail")
			row.alice(alice)
			want := []string{"nobody on 1", "alice on 2", "nobody on 1"}
			if row.shared {
				want = []string{"nobody on 1", "alice on 1", "alice on 1"}
			}
			for i, r := range []*fetch.Request{bob, alice, bob} {
				out := c.Fetch(t.Context(), r, nil)
				if got := string(out.InlineBody) + string(out.ErrorBody); got != want[i] || out.Exchanges != 1 {
					t.Errorf("fetch %d: %q after %d exchanges, want %q after 1", i+1, got, out.Exchanges, want[i])
				}
			}
		})
	}
}

// TestSignedInByHops checks every hop and every attempt of a fetch.
func TestSignedInByHops(t *testing.T) {
	t.Parallel()
	var failed atomic.Bool
	o := newSigningOrigin(t, func(r *http.Request, n int, who string) string {
		switch {
		case r.URL.Path == "/moved":
			return "HTTP/1.1 302 Found\r\nLocation: /flaky\r\nContent-Length: 0\r\n\r\n"
		case r.URL.Path == "/flaky" && failed.CompareAndSwap(false, true):
			return "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
		}
		return mailbox(r, n, who)
	})
	c := newClient(t, fetch.Config{Egress: unrestricted})
	alice := o.get("/moved")
	alice.Policy.MaxAttempts, alice.Header = 2, http.Header{"Authorization": {"NTLM alice"}}
	if out := c.Fetch(t.Context(), alice, nil); string(out.InlineBody) != "alice on 4" || out.Exchanges != 4 {
		t.Errorf("%q after %d exchanges, want each of 4 on its own connection; %+v", out.InlineBody, out.Exchanges, out.Failure)
	}
	if out := c.Fetch(t.Context(), o.get("/mail"), nil); string(out.ErrorBody) != "nobody on 5" {
		t.Errorf("bob got %q, want a 401 on another connection", out.ErrorBody)
	}
}

// TestOfferedConnections checks that no later fetch uses a connection on which a
// response offered to authenticate it, or said that it had. Others are reused (spec A5).
func TestOfferedConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, answer string
		change       func(*fetch.Request)
		shared       bool
	}{
		{"401, NTLM", "401 U\r\nWWW-Authenticate: NTLM\r\nContent-Length: 2\r\n\r\nno", nil, false},
		{"without a body", "401 U\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n", nil, false},
		{"chunked", "401 U\r\nWWW-Authenticate: NTLM\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", nil, false},
		{"to HEAD", "200 OK\r\nWWW-Authenticate: NTLM\r\nContent-Length: 9\r\n\r\n", func(r *fetch.Request) { r.Method = "HEAD" }, false},
		{"200 with Negotiate's final token", "200 OK\r\nwww-authenticate: negotiate oRQw\r\nContent-Length: 2\r\n\r\nhi", nil, false},
		{"304", "304 N\r\nWWW-Authenticate: Negotiate\r\n\r\n", nil, false},
		{"503", "503 B\r\nWWW-Authenticate: Kerberos\r\nContent-Length: 0\r\n\r\n", nil, false},
		{"a redirect that is not followed", "302 F\r\nLocation: /a\r\nWWW-Authenticate: Nego2\r\nContent-Length: 0\r\n\r\n", func(r *fetch.Request) { r.Policy.Follow = false }, false},
		{"in the second line", "401 U\r\nWWW-Authenticate: Basic realm=\"a\"\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n", nil, false},
		{"joined", "401 U\r\nWWW-Authenticate: Digest realm=\"a\", nonce=\"b\" , NTLM\r\nContent-Length: 0\r\n\r\n", nil, false},
		{"folded", "401 U\r\nWWW-Authenticate: Basic realm=\"a\",\r\n NTLM\r\nContent-Length: 0\r\n\r\n", nil, false},
		{"after an open quote", "401 U\r\nWWW-Authenticate: Basic realm=\"a, NTLM\r\nContent-Length: 0\r\n\r\n", nil, false},
		{"Persistent-Auth", "200 OK\r\nPersistent-Auth: true\r\nContent-Length: 2\r\n\r\nhi", nil, false},
		{"Authentication-Info", "200 OK\r\nAuthentication-Info: Negotiate oRQw\r\nContent-Length: 2\r\n\r\nhi", nil, false},
		{"Proxy-Support", "200 OK\r\nProxy-Support: Session-Based-Authentication\r\nContent-Length: 2\r\n\r\nhi", nil, false},
		{"in a 1xx response", "103 E\r\nWWW-Authenticate: NTLM\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", nil, false},
		{"Basic", "401 U\r\nWWW-Authenticate: Basic realm=\"NTLM\"\r\nContent-Length: 2\r\n\r\nno", nil, true},
		{"Bearer and Digest", "401 U\r\nWWW-Authenticate: Bearer, Digest realm=\"a\", nonce=\"b\", qop=\"auth,auth-int\"\r\nContent-Length: 0\r\n\r\n", nil, true},
		{"Digest's next nonce", "200 OK\r\nAuthentication-Info: nextnonce=\"ntlm\", qop=auth\r\nContent-Length: 2\r\n\r\nhi", nil, true},
		{"in a body", "200 OK\r\nContent-Length: 22\r\n\r\nWWW-Authenticate: NTLM", nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := newSigningOrigin(t, func(r *http.Request, n int, who string) string {
				if r.URL.Path == "/offer" {
					return "HTTP/1.1 " + row.answer
				}
				return mailbox(r, n, who)
			})
			c := newClient(t, fetch.Config{Egress: unrestricted})
			offered := o.get("/offer")
			if row.change != nil {
				row.change(offered)
			}
			if out := c.Fetch(t.Context(), offered, nil); out.Response == nil {
				t.Fatalf("%+v", out.Failure)
			}
			want := "nobody on 2"
			if row.shared {
				want = "nobody on 1"
			}
			if out := c.Fetch(t.Context(), o.get("/mail"), nil); string(out.ErrorBody) != want || out.Exchanges != 1 || o.requests.Load() != 2 {
				t.Errorf("%q after %d exchanges, want %q after 1; the origin saw %d requests", out.ErrorBody, out.Exchanges, want, o.requests.Load())
			}
		})
	}
}

// TestOfferedConnectionThatIsIdle checks a connection that is in the pool between the
// end of its body and the end of the fetch: no other fetch may use it then either.
func TestOfferedConnectionThatIsIdle(t *testing.T) {
	t.Parallel()
	o := newSigningOrigin(t, func(r *http.Request, n int, who string) string {
		if r.URL.Path == "/offer" {
			return "HTTP/1.1 401 U\r\nWWW-Authenticate: NTLM\r\nContent-Length: 2\r\n\r\nno"
		}
		return mailbox(r, n, who)
	})
	c := newClient(t, fetch.Config{Egress: unrestricted})
	ended := false
	c.Fetch(t.Context(), o.get("/offer"), func(e fetch.Event) error {
		if _, ended = e.(fetch.AttemptFinished); ended {
			out := c.Fetch(t.Context(), o.get("/mail"), nil)
			if string(out.ErrorBody) != "nobody on 2" || out.Exchanges != 1 || o.requests.Load() != 2 {
				t.Errorf("%q after %d exchanges, want a new connection after 1; the origin saw %d requests", out.ErrorBody, out.Exchanges, o.requests.Load())
			}
		}
		return nil
	})
	if !ended {
		t.Error("the attempt did not end")
	}
}

// TestOfferedOverHTTP2 checks that later fetches do not use the connection, that those
// in flight on it end normally, and that the last one closes it.
func TestOfferedOverHTTP2(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	closed := make(chan string, 8)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			close(arrived)
			<-release
		case "/offer":
			w.Header().Set("WWW-Authenticate", "Negotiate")
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, r.Proto+" "+r.RemoteAddr)
	}))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- conn.RemoteAddr().String()
		}
	}
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c := newClient(t, fetch.Config{Egress: unrestricted, RootCAs: roots})
	o := &signingOrigin{T: t, url: s.URL}
	get := func(path string) string {
		out := c.Fetch(t.Context(), o.get(path), nil)
		if out.Exchanges != 1 {
			t.Errorf("%s: %d exchanges, want 1; %+v", path, out.Exchanges, out.Failure)
		}
		return string(out.InlineBody) + string(out.ErrorBody)
	}
	get("/") // fetches share its connection
	slow := make(chan string, 1)
	go func() { slow <- get("/slow") }()
	<-arrived
	offered := get("/offer")
	if later := get("/"); later == offered || !strings.HasPrefix(later, "HTTP/2.0 ") {
		t.Errorf("a later fetch used %q after an offer on %q, want another connection", later, offered)
	}
	close(release)
	if got := <-slow; got != offered || !strings.HasPrefix(got, "HTTP/2.0 ") {
		t.Errorf("the fetch in flight got %q, want HTTP/2 on the connection of %q", got, offered)
	}
	for gone := ""; "HTTP/2.0 "+gone != offered; {
		select {
		case gone = <-closed:
		case <-time.After(20 * time.Second):
			t.Fatal("the connection is still open")
		}
	}
	if last := get("/"); last == offered || !strings.HasPrefix(last, "HTTP/2.0 ") {
		t.Errorf("the last fetch used %q, want a new HTTP/2 connection", last)
	}
}

// TestConnectionsAreKept checks that the connections of many concurrent fetches of one host are
// used again by as many fetches after them.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	const open = 300
	var connected atomic.Int64
	var together sync.WaitGroup // an answer comes once all have asked: none has another's connection
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		together.Done()
		together.Wait()
	}))
	origin.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connected.Add(1)
		}
	}
	origin.Start()
	defer origin.Close()
	c := newClient(t, fetch.Config{Egress: unrestricted})
	for range 2 {
		together.Add(open)
		var fetches sync.WaitGroup
		for range open {
			fetches.Go(func() {
				r := fetch.NewRequest(classify.Standard)
				var err error
				if r.URL, err = urls.Parse(origin.URL); err != nil {
					t.Error(err)
				} else if out := c.Fetch(t.Context(), r, nil); out.Kind != classify.Success || out.Attempts != 1 { // more are permitted: the last one needs a recent connection
					t.Errorf("%s after %d attempts: %+v", out.Kind, out.Attempts, out.Failure)
				}
			})
		}
		fetches.Wait()
	}
	if n := connected.Load(); n != open {
		t.Errorf("%d connections for twice %d fetches, want as many as were open", n, open)
	}
}
