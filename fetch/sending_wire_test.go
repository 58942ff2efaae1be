package fetch_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestConnectionClosed checks that a request whose connection is closed before the head is
// sent once, and again only in another attempt, unless the origin says that it has not processed it.
// Then it goes again up to three times within the attempt, and is not counted (N4, I6).
func TestConnectionClosed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, listener, path, method string
		reused                       bool // an earlier fetch leaves a connection that the origin closes at its next request
		attempts                     int  // of a fetch that may make three
		class                        classify.Class
	}{
		{"GET on a reused connection", "http", "/s/k/200", "GET", true, 2, 0},
		{"PUT on a reused connection", "http", "/s/k/200", "PUT", true, 2, 0},
		{"POST uses a connection that no other request uses", "http", "/s/k/200", "POST", true, 1, 0},
		{"a refused stream", "h2fault", "/s/k/h2-rst:code=7,at=before-head/200", "GET", false, 1, 0},
		{"three refusals", "h2fault", "/s/k/h2-rst:code=7,at=before-head/h2-goaway/h2-goaway:code=2/200", "PUT", false, 1, 0},
		{"four refusals", "h2fault", "/s/k/h2-goaway:code=11/h2-goaway/h2-goaway/h2-goaway/200", "PUT", false, 2, 0},
		{"refused streams", "h2fault", "/s/k/h2-rst:code=7,at=before-head", "GET", false, 3, classify.ConnectionReset},
		{"a GOAWAY each time", "h2fault", "/s/k/h2-goaway-forever", "GET", false, 3, classify.ConnectionReset},
		{"a stream that is reset otherwise", "h2fault", "/s/k/h2-rst:code=2,at=before-head/200", "GET", false, 2, 0},
	} {
		for _, most := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d attempts", row.name, most), func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				if row.reused {
					before := w.request("http", "/s/before/close-idle")
					if out := w.client.Fetch(t.Context(), before, nil); out.Kind != classify.Success {
						t.Fatalf("%+v", out.Failure)
					}
				}
				r := w.request(row.listener, row.path)
				r.Method, r.Policy.MaxAttempts = row.method, most
				res := w.fetch(r)
				attempts, class := min(row.attempts, most), row.class
				if row.attempts > most {
					class = classify.ConnectionReset
				}
				var got classify.Class
				if res.Failure != nil {
					got = res.Failure.Class
				}
				if res.Attempts != attempts || got != class { // w.fetch compares the exchanges with the requests
					t.Errorf("%d attempts, class %s; want %d, %s", res.Attempts, got, attempts, class)
				}
			})
		}
	}
}

// TestUnrepeatableTogether checks that concurrent requests that must not be repeated share no
// connection, even if the origin has HTTP/2, and that none of them is lost.
func TestUnrepeatableTogether(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	var wg sync.WaitGroup
	r := w.request("https", "/s/together/200:delay=1ms")
	r.Method = "POST"
	for range 8 {
		wg.Go(func() {
			for range 20 {
				out := w.client.Fetch(t.Context(), r, nil)
				if out.Kind != classify.Success || out.Hops[0].Exchange.Reused {
					t.Errorf("%s, %+v, reused %t", out.Kind, out.Failure, out.Hops[0].Exchange.Reused)
				}
			}
		})
	}
	wg.Wait()
	if n := len(w.origin.Requests("together")); n != 160 {
		t.Errorf("the origin saw %d requests, want 160", n)
	}
}

// TestEventOrder is that of spec §10, at each level, for a body in chunks and for one in the outcome.
func TestEventOrder(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		level    fetch.Level
		delivery fetch.Delivery
		want     string
	}{
		{"OUTCOME", fetch.OutcomeOnly, fetch.Stream, "[response chunk]"},
		{"ATTEMPTS", fetch.Attempts, fetch.Stream, "[started response finished started response chunk finished]"},
		{"ALL", fetch.All, fetch.Stream, "[started redirect response finished started redirect response chunk finished]"},
		{"OUTCOME, AUTO", fetch.OutcomeOnly, fetch.Auto, "[]"},
		{"ends, AUTO", fetch.Ends, fetch.Auto, "[finished finished]"},
		{"ATTEMPTS, AUTO", fetch.Attempts, fetch.Auto, "[started response finished started response finished]"},
		{"ALL, AUTO", fetch.All, fetch.Auto, "[started redirect response finished started redirect response finished]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", "/r/k/302/1/503/200:size=100")
			r.Events, r.Delivery = row.level, row.delivery
			res := w.fetch(r)
			if got := fmt.Sprint(res.order); got != row.want || len(res.body)+len(res.InlineBody) != 100 {
				t.Errorf("%s and %d bytes, want %s and 100", got, len(res.body)+len(res.InlineBody), row.want)
			}
			if res.Hops[0].Header != nil || (res.redirected != nil) != (row.level == fetch.All) {
				t.Errorf("headers of a hop: %v in the outcome, %v in RedirectFollowed", res.Hops[0].Header, res.redirected)
			}
		})
	}
}

// TestOnlyHTTP2 checks that a request that may be sent only once does not reach an origin that
// speaks only HTTP/2, and that others do (X25).
func TestOnlyHTTP2(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.EnableHTTP2, s.Config.ErrorLog = true, slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { // crypto/tls would fall back to HTTP/1.1
		if !slices.Contains(hello.SupportedProtos, "h2") {
			return nil, errors.New("no application protocol")
		}
		return nil, nil //nolint:nilnil // the configuration of the server
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	for _, row := range []struct {
		name, method, key string
		class             classify.Class
	}{
		{"GET", "GET", "", classify.NoClass},
		{"POST", "POST", "", classify.TLSHandshake},
		{"POST that may be repeated", "POST", "key", classify.NoClass},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, fetch.Config{Egress: fetch.Egress{Unrestricted: true}, RootCAs: roots})
			r := fetch.NewRequest(classify.Standard)
			r.URL, r.Method, r.IdempotencyKey, r.Policy.RepeatUnsafe = mustParse(t, s.URL), row.method, row.key, row.key != ""
			if out := c.Fetch(t.Context(), r, nil); row.class == classify.NoClass && out.Kind != classify.Success ||
				row.class != classify.NoClass && (out.Failure == nil || out.Failure.Class != row.class || out.Exchanges != 0) {
				t.Errorf("%s, %+v, %d exchanges, want class %s", out.Kind, out.Failure, out.Exchanges, row.class)
			}
		})
	}
}
