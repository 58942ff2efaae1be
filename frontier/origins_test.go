package frontier

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server.ErrorLog has this type
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/fetch"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
	"fetchd/server"
	"fetchd/server/fetchdtest"
	testrig "fetchd/test/rig"
	"fetchd/test/selfsigned"
)

// split is the host 127.0.0.1, whose port 80 answers pages and whose port 443 is at fault.
type split struct {
	*rig
	certificate tls.Certificate
	roots       *x509.CertPool

	mu    sync.Mutex
	paths []string // of requests to port 80, and "https" for each connection to port 443
	fails bool     // port 443
}

func newSplit(t *testing.T, secure func(h *split) func(ctx context.Context) (net.Conn, error)) *split {
	t.Helper()
	h := &split{rig: newRig(t, time.Millisecond, site.Config{}), roots: x509.NewCertPool(), fails: true}
	h.config.IgnoreRobots = false
	h.config.Policy.RetryDelay = time.Hour // after which an unreachable file is fetched again, or ten minutes
	certificate, text, _, err := selfsigned.New()
	must(t, err)
	h.certificate = certificate
	h.roots.AppendCertsFromPEM(text)
	plain, dial := h.serve(nil, http.StatusOK), secure(h)
	working := h.serve(&tls.Config{Certificates: []tls.Certificate{certificate}}, http.StatusOK)
	h.service = &fetchd{fetchdtest.Start(t, fetchdtest.Options{NoOrigin: true, InMemory: true, Configure: func(c *server.Config) {
		c.Fetch.Egress = fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		c.Fetch.RootCAs = h.roots
		c.Fetch.Dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":80") {
				return plain(ctx)
			}
			h.note("https")
			h.mu.Lock()
			fails := h.fails
			h.mu.Unlock()
			if !fails {
				return working(ctx)
			}
			return dial(ctx)
		}
	}})}
	return h
}

// serve starts a server, with TLS unless config is nil, and returns how to connect to it.
func (h *split) serve(config *tls.Config, status int, header ...string) func(ctx context.Context) (net.Conn, error) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if config == nil {
			h.note(r.URL.Path)
		}
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		if r.URL.Path != "/robots.txt" {
			_, _ = fmt.Fprint(w, "a page") // the test finds out if it does not arrive
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a handshake fails on purpose
	if s.TLS = config; config != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	h.Cleanup(s.Close)
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
}

func (h *split) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paths = append(h.paths, what)
}

func (h *split) noted(what string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.paths {
		if p == what {
			n++
		}
	}
	return n
}

// refused connects to a port where nothing listens.
func refused(h *split) func(ctx context.Context) (net.Conn, error) {
	address := testrig.FreeAddress(h.T, "127.0.0.1")
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
}

// TestOriginsOfAHost checks that a fault of https defers the URLs of https, that all URLs of http are fetched
// meanwhile, that the cause is stored, and that the others are fetched once the fault is gone. The https URLs come
// first in the queue, so the host would otherwise be asked for them again and again.
func TestOriginsOfAHost(t *testing.T) {
	t.Parallel()
	const pages, secure = 60, 40
	for _, row := range []struct {
		name  string
		fault func(h *split) func(ctx context.Context) (net.Conn, error)
		class string
		text  string // a part
	}{
		{"refused", refused, "connect_refused", "refused"},
		{"times out", func(*split) func(context.Context) (net.Conn, error) {
			return func(ctx context.Context) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}, "connect_timeout", "not ready in time"},
		{"a certificate of nobody", func(h *split) func(context.Context) (net.Conn, error) {
			other, _, _, err := selfsigned.New()
			must(h, err)
			return h.serve(&tls.Config{Certificates: []tls.Certificate{other}}, http.StatusOK)
		}, "tls_certificate", "certificate"},
		{"503", func(h *split) func(context.Context) (net.Conn, error) {
			// It closes each connection: the next request must reach the server that works.
			return h.serve(&tls.Config{Certificates: []tls.Certificate{h.certificate}}, http.StatusServiceUnavailable, "Connection", "close")
		}, "http_server_error", "503"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newSplit(t, row.fault)
			var entries []store.Entry
			for n := range secure {
				entries = append(entries, store.Entry{URL: fmt.Sprintf("https://127.0.0.1/s/%d", n), Priority: 1})
			}
			for n := range pages {
				entries = append(entries, store.Entry{URL: fmt.Sprintf("http://127.0.0.1/p/%d", n)})
			}
			if _, err := h.store.Put(t.Context(), entries, store.Limits{}); err != nil {
				t.Fatal(err)
			}
			end := h.background()
			defer end()
			h.awaitCounts("the pages of http", func(c store.Counts) bool { return c.Fetched == pages })
			if n := h.noted("https"); n != 1 {
				t.Errorf("%d connections to https, want that of the first robots.txt: %q", n, h.paths)
			}
			c, err := h.store.Counts(t.Context())
			if err != nil || c.Pending != secure || c.Waits.RobotsUnreachable != secure || c.OriginsDeferred != 1 || c.HostsBlocked != 0 {
				t.Errorf("Counts = %+v, %v, want %d URLs of one origin to wait, and no host closed", c, err, secure)
			}
			state, err := rulebook.Ask(t.Context(), h.store, "frontier", "https://127.0.0.1/s/1")
			if err != nil || state.Cause != row.class || !strings.Contains(state.Text, row.text) {
				t.Errorf("AskRobots = %+v, %v, want %s and %q", state, err, row.class, row.text)
			}
			for u, held := range map[string]bool{"https://127.0.0.1/s/1": true, "http://127.0.0.1/p/1": false} {
				if e, err := h.store.Why(t.Context(), u); err != nil || e.Deferred.After(e.Now.Add(9*time.Minute)) != held {
					t.Errorf("%s is deferred until %v, %v, now is %v; want ten minutes: %v", u, e.Deferred, err, e.Now, held)
				}
			}
			h.mu.Lock()
			h.fails = false
			h.mu.Unlock()
			if n, err := h.store.RefreshRobots(t.Context(), []string{"https://127.0.0.1"}); n != 1 || err != nil {
				t.Fatalf("RefreshRobots = %d, %v", n, err)
			}
			h.awaitCounts("the pages of https", func(c store.Counts) bool { return c.Fetched == pages+secure })
		})
	}
}

// TestRobotsPauses checks which answers to a robots.txt close the host: those that ask for it.
func TestRobotsPauses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		status int
		header []string
		closed bool // the host
		held   bool // the origin
	}{
		{"503", 503, nil, false, true},
		{"503 with Retry-After", 503, []string{"Retry-After", "3000"}, true, true},
		{"429", 429, nil, true, false},
		{"429 with Retry-After", 429, []string{"Retry-After", "3000"}, true, false},
		{"500", 500, nil, false, true},
		{"500 with Retry-After", 500, []string{"Retry-After", "3000"}, true, true},
		{"404 with nothing left", 404, []string{"RateLimit", `"a";r=0;t=3000`}, true, false},
		{"404 with something left", 404, []string{"RateLimit", `"a";r=1;t=3000`}, false, false},
		{"404", 404, nil, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newSplit(t, func(h *split) func(context.Context) (net.Conn, error) {
				return h.serve(&tls.Config{Certificates: []tls.Certificate{h.certificate}}, row.status, row.header...)
			})
			h.config.RobotsPatience = 24 * time.Hour
			h.add("https://127.0.0.1/s/1")
			end := h.background()
			defer end()
			why := func() store.Explanation {
				e, err := h.store.Why(t.Context(), "https://127.0.0.1/s/1")
				must(t, err)
				return e
			}
			h.await("the first request", func() bool {
				state, err := rulebook.Ask(t.Context(), h.store, "frontier", "https://127.0.0.1/s/1")
				e := why()
				return err == nil && state.Known && (!e.Deferred.IsZero() || e.Host.BlockedUntil.After(e.Now) || e.URL.Status != store.Pending && e.URL.Status != store.Fetching)
			})
			end()
			e := why()
			if closed := e.Host.BlockedUntil.After(e.Now); closed != row.closed {
				t.Errorf("the host is closed until %v, now is %v; want closed: %v", e.Host.BlockedUntil, e.Now, row.closed)
			}
			if held := !e.Deferred.IsZero(); held != row.held {
				t.Errorf("the origin is deferred until %v, want held: %v", e.Deferred, row.held)
			}
			// Otherwise the file would be asked for each time that the host opens, and close it again.
			if row.closed && row.held && e.Deferred.Sub(e.Host.BlockedUntil) < 9*time.Minute {
				t.Errorf("the origin is deferred until %v, and the host is closed until %v; want time between", e.Deferred, e.Host.BlockedUntil)
			}
		})
	}
}

// TestRobotsTriedOnce checks that a file that was unreachable is tried again with one attempt.
func TestRobotsTriedOnce(t *testing.T) {
	t.Parallel()
	h := newSplit(t, refused)
	h.config.MaxAttempts, h.config.Policy.RetryDelay = 3, 0 // it is tried every second
	h.add("https://127.0.0.1/s/1")
	w := h.worker()
	ctx, cancel := context.WithCancel(t.Context())
	ended := h.run(ctx, w)
	h.await("four fetches of robots.txt", func() bool { return w.Stats().Robots >= 4 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
	robots := w.Stats().Robots
	if more := int64(h.noted("https")) - robots; more != 2 && more != 3 { // one may have been cancelled
		t.Errorf("%d connections more than fetches of robots.txt, of which there were %d; want the two other attempts of the first", more, robots)
	}
}
