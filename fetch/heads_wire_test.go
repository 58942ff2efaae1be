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

// addFields adds n fields to h. They are short because net/http accepts 4 KiB of trailers.
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
// reused connection, where net/http retries a request whose first read fails.
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
						if got := requests.Load(); got != 2 {
							t.Errorf("the origin saw %d requests, want the first and one more", got)
						}
					})
				}
			}
		}
	}
}

// checkFields fetches a short response, and then path on the same connection.
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
