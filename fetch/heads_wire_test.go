package fetch_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/internal/budget"
)

// addFields adds n fields to h.
func addFields(h http.Header, prefix string, n int) {
	for i := range n {
		h[prefix+"X"+strconv.FormatInt(int64(i), 36)] = []string{""}
	}
}

// headsOrigin sends the requested number of fields in its head, in a 1xx head and in
// its trailer.
func headsOrigin(w http.ResponseWriter, r *http.Request) {
	asked := func(name string) int {
		n, _ := strconv.Atoi(r.URL.Query().Get(name))
		return n
	}
	if n := asked("early"); n > 0 {
		addFields(w.Header(), "", n)
		w.WriteHeader(http.StatusEarlyHints)
		clear(w.Header())
	}
	h := w.Header()
	h["Date"], h["Content-Type"] = nil, nil // not sent
	if n := asked("trailer"); n > 0 {
		_ = http.NewResponseController(w).Flush()
		addFields(h, http.TrailerPrefix, n)
		return
	}
	h["Content-Length"] = []string{"0"}
	besides := 1
	if r.Close {
		besides++ // Connection: close
	}
	addFields(h, "", asked("head")-besides)
}

// TestTooManyFields checks that 512 fields are accepted and 513 are PROTOCOL, in every
// kind of head and every version of HTTP. The request must be sent once, also on a
// reused connection, where net/http retries a request whose first read fails. Nothing
// that follows on the connection is trusted.
func TestTooManyFields(t *testing.T) {
	t.Parallel()
	for _, server := range []struct {
		name       string
		tls, http2 bool
	}{{"HTTP/1.1", false, false}, {"HTTP/1.1 over TLS", true, false}, {"HTTP/2", true, true}} {
		for _, where := range []string{"head", "early", "trailer"} {
			for _, n := range []int{512, 513} {
				for _, method := range []string{"GET", "POST"} {
					t.Run(fmt.Sprintf("%s, %s of %d, %s", server.name, where, n, method), func(t *testing.T) {
						t.Parallel()
						var requests atomic.Int32
						s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							requests.Add(1)
							headsOrigin(w, r)
						}))
						s.EnableHTTP2 = server.http2
						if server.tls {
							s.StartTLS()
						} else {
							s.Start()
						}
						t.Cleanup(s.Close)
						checkFields(t, s, method, fmt.Sprintf("/?%s=%d", where, n), n <= 512)
						if got := requests.Load(); got != 3 {
							t.Errorf("the origin saw %d requests, want the first and two more", got)
						}
					})
				}
			}
		}
	}
}

// checkFields fetches a short response, then path on the same connection, and then a short one again.
func checkFields(t *testing.T, s *httptest.Server, method, path string, ok bool) {
	t.Helper()
	cfg := fetch.Config{Egress: unrestricted}
	if transport, isHTTP := s.Client().Transport.(*http.Transport); isHTTP && transport.TLSClientConfig != nil {
		cfg.RootCAs = transport.TLSClientConfig.RootCAs
	}
	c := newClient(t, cfg)
	lease := budget.New(1 << 30).Lease("a")
	ask := func(path string) *fetch.Outcome {
		r := get(t, s.URL+path)
		r.Method, r.Memory, r.Policy.BaseDelay = method, lease, 0
		return c.Fetch(t.Context(), r, nil)
	}
	if out := ask("/"); out.Kind != classify.Success {
		t.Fatalf("%+v", out.Failure)
	}
	lease.Shrink(budget.Head, 1<<20) // the outcome keeps it
	out := ask(path)
	if out.Attempts != 1 || out.Exchanges != 1 {
		t.Errorf("%d attempts and %d exchanges, want 1", out.Attempts, out.Exchanges)
	}
	if got := lease.Total(); got != lease.Held(budget.Head) {
		t.Errorf("%d bytes are charged next to %d for the head", got-lease.Held(budget.Head), lease.Held(budget.Head))
	}
	if f := out.Failure; ok {
		if out.Kind != classify.Success {
			t.Errorf("%+v, want success", f)
		}
	} else if f == nil || f.Class != classify.Protocol || f.Reason != "too_many_header_fields" {
		t.Errorf("%s, %+v, want PROTOCOL, too_many_header_fields", out.Kind, f)
	}
	if next := ask("/"); next.Kind != classify.Success || next.Hops[0].Exchange.Reused && !ok {
		t.Errorf("the next fetch: %+v, over a connection that was reused: %t", next.Failure, next.Hops[0].Exchange.Reused)
	}
}

// scripted answers each request on a connection with the given bytes, one write for
// each piece, and then sends nothing until the client disconnects.
func scripted(t *testing.T, pieces ...string) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	address := serveConns(t, func(conn net.Conn, _ int) {
		for r := bufio.NewReader(conn); ; {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			requests.Add(1)
			for _, piece := range pieces {
				if _, err := io.WriteString(conn, piece); err != nil {
					return
				}
			}
		}
	})
	return "http://" + address + "/", requests
}

// TestHeadAfterInformational checks that the fields of the final head are counted after
// any 1xx head that net/http accepts.
func TestHeadAfterInformational(t *testing.T) {
	t.Parallel()
	fields := strings.Repeat("a:b\r\n", 513)
	for _, early := range []string{"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1   103 \r\n\r\n", "HTTP/1.1 199\n\n"} {
		t.Run(strconv.Quote(early), func(t *testing.T) {
			t.Parallel()
			url, requests := scripted(t, early+"HTTP/1.1 200 OK\r\n"+fields) // without the end of the head
			c := newClient(t, fetch.Config{Egress: unrestricted})
			r := get(t, url)
			r.HeaderTimeout = 10 * time.Second
			out := c.Fetch(t.Context(), r, nil)
			if f := out.Failure; f == nil || f.Class != classify.Protocol || f.Reason != "too_many_header_fields" || out.Attempts != 1 || requests.Load() != 1 {
				t.Errorf("%+v after %d attempts and %d requests, want PROTOCOL, too_many_header_fields after 1", f, out.Attempts, requests.Load())
			}
		})
	}
}

// TestHeadThatNeverEnds checks that the charge for an incomplete head is released after
// each attempt.
func TestHeadThatNeverEnds(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	for _, path := range []string{"/s/a/half-head", "/s/b/fin:at=in-head", "/s/c/reset:at=in-head"} {
		r := w.request("http", path)
		r.HeaderTimeout = 100 * time.Millisecond
		lease := budget.New(1 << 30).Lease("a")
		r.Memory = lease
		if out := w.run(t.Context(), r); out.Attempts != 3 || lease.Total() != 0 {
			t.Errorf("%s: %d bytes are charged after %d attempts, want none after 3", path, lease.Total(), out.Attempts)
		}
	}
}

// rawOrigin returns a request of a canned origin.
func rawOrigin(t *testing.T, answer string) *fetch.Request {
	t.Helper()
	r := get(t, "http://"+canned(t, answer)+"/")
	r.Policy.BaseDelay, r.Policy.MaxAttempts = 0, 1
	return r
}

// TestFramings sends messages that break the rules of RFC 9112, or come near it,
// byte by byte as they stand here.
func TestFramings(t *testing.T) {
	t.Parallel()
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, row := range []struct {
		name, answer string
		class        classify.Class // none: success
		body         string
	}{
		{"half a head", "HTTP/1.1 200 OK\r\nContent-Le", classify.ConnectionReset, ""},
		{"another protocol", "SSH-2.0-OpenSSH_9.6\r\n", classify.Protocol, ""},
		{"HTTP/2.0 in a status line", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", classify.Protocol, ""},
		{"an endless head", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: aaaaaaaaaaaaaaaaaaaaaaaa\r\n", 4000) + "\r\n", classify.Protocol, ""},
		{"sixteen informational answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 16) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, "ok"},
		{"seventeen informational answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 17) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", classify.Protocol, ""},
		{"two lengths that differ", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", classify.Protocol, ""},
		{"a length over the limit", "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", classify.BodyTooLarge, ""},
		{"an unknown transfer coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: smoke\r\n\r\n", classify.Protocol, ""},
		{"length and chunks: the chunks count", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 0, "ok"},
		{"a body shorter than its length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", classify.BodyInterrupted, ""},
		{"chunks", chunked + "1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", 0, "ok"},
		{"a chunk size that is not a number", chunked + "zz\r\nok\r\n0\r\n\r\n", classify.BodyInterrupted, ""},
		{"a trailer with a line of 60 KiB", chunked + "2\r\nok\r\n0\r\nX-A: " + strings.Repeat("a", 60<<10) + "\r\n\r\n", 0, "ok"},
		{"a trailer with a line of 64 KiB", chunked + "2\r\nok\r\n0\r\nX-A: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", classify.Protocol, ""},
		{"a trailer of 512 fields", chunked + "2\r\nok\r\n0\r\n" + strings.Repeat("X-A: a\r\n", 512) + "\r\n", 0, "ok"},
		{"a trailer of 513 fields", chunked + "2\r\nok\r\n0\r\n" + strings.Repeat("X-A: a\r\n", 513) + "\r\n", classify.Protocol, ""},
		{"an endless trailer", chunked + "2\r\nok\r\n0\r\n" + strings.Repeat("X-A: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", 4000), classify.Protocol, ""},
		{"a 204 with a body", "HTTP/1.1 204 No Content\r\n\r\nbody", 0, ""},
		{"a 101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", classify.Protocol, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, fetch.Config{Egress: unrestricted})
			var body []byte
			out := c.Fetch(t.Context(), rawOrigin(t, row.answer), func(e fetch.Event) error {
				if chunk, ok := e.(fetch.BodyChunk); ok {
					body = append(body, chunk.Data...)
				}
				return nil
			})
			class := classOf(out.Failure)
			if class != row.class || string(body) != row.body {
				t.Errorf("class %s (%+v), body %q, want %s, %q", class, out.Failure, body, row.class, row.body)
			}
		})
	}
}

// TestTrickledTrailer checks that a trailer must arrive within the idle limit (spec N9).
func TestTrickledTrailer(t *testing.T) {
	t.Parallel()
	url, _ := scripted(t, append([]string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-A: "}, strings.Split(strings.Repeat("a", 60<<10), "")...)...)
	r := get(t, url)
	r.IdleTimeout, r.Policy.MaxAttempts = 500*time.Millisecond, 1
	if f := newClient(t, fetch.Config{Egress: unrestricted}).Fetch(t.Context(), r, nil).Failure; f == nil || f.Class != classify.BodyTimeout {
		t.Errorf("%+v, want BODY_TIMEOUT", f)
	}
}

// TestInformationalHTTP2 has sixteen 1xx responses come over HTTP/2, and one more.
func TestInformationalHTTP2(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.request("https", "/s/k/200:early=103,early-count=16")
	if res := w.run(t.Context(), r); res.Kind != classify.Success {
		t.Errorf("16: %+v, want success", res.Failure)
	}
	r = w.request("h2fault", "/s/k/200:early=103,early-count=17")
	r.Policy.MaxAttempts = 1
	if f := w.run(t.Context(), r).Failure; f == nil || f.Class != classify.Protocol || f.Reason != "too_many_informational_responses" {
		t.Errorf("17: %+v, want protocol, too_many_informational_responses", f)
	}
}
