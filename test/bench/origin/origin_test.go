package origin_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"fetchd/test/bench/origin"
	"fetchd/test/must"
)

func start(t *testing.T) (*origin.Origin, *http.Client) {
	t.Helper()
	o, err := origin.Start()
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(o.Authority())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o, &http.Client{Transport: transport}
}

// ask requests a URL and returns the status, the length of the body and the protocol.
func ask(t *testing.T, c *http.Client, url string) (int, int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	resp, err := c.Do(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	if resp.ContentLength >= 0 && resp.ContentLength != int64(len(body)) {
		t.Errorf("%s: Content-Length %d with %d bytes", url, resp.ContentLength, len(body))
	}
	return resp.StatusCode, len(body), resp.Proto
}

func TestAnswers(t *testing.T) {
	o, c := start(t)
	for _, row := range []struct {
		name, listener, path string
		status, size         int
		protocol             string
	}{
		{"nothing", "http", "/b/0", 200, 0, "HTTP/1.1"},
		{"a small body", "http", "/b/1024", 200, 1024, "HTTP/1.1"},
		{"more than a block", "http", "/b/200001", 200, 200_001, "HTTP/1.1"},
		{"TLS", "https", "/b/1024", 200, 1024, "HTTP/1.1"},
		{"HTTP/2", "h2", "/b/200001", 200, 200_001, "HTTP/2.0"},
		{"no faults", "http", "/f/0/10", 200, 10, "HTTP/1.1"},
		{"faults alone", "http", "/f/100/10", 503, 0, "HTTP/1.1"},
		{"late", "http", "/w/1ms/10", 200, 10, "HTTP/1.1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			status, size, protocol := ask(t, c, o.URL(row.listener, row.path))
			if status != row.status || size != row.size || protocol != row.protocol {
				t.Errorf("%s of %s = %d with %d bytes by %s, want %d with %d by %s", row.path, row.listener, status, size, protocol, row.status, row.size, row.protocol)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	o, c := start(t)
	for _, path := range []string{"/b/x", "/b/-1", "/b/67108865", "/f/101/1", "/f/x/1", "/f/-1/1", "/w/x/1", "/w/-1s/1"} {
		if status, _, _ := ask(t, c, o.URL("http", path)); status != http.StatusBadRequest {
			t.Errorf("%s = %d, want %d", path, status, http.StatusBadRequest)
		}
	}
	if status, _, _ := ask(t, c, o.URL("http", "/other")); status != http.StatusNotFound {
		t.Errorf("/other = %d, want %d", status, http.StatusNotFound)
	}
}

// TestFaults checks that the number of faults is exact and not random.
func TestFaults(t *testing.T) {
	o, c := start(t)
	for percent, url := range map[int]string{10: o.URL("http", "/f/10/1"), 25: o.URL("http", "/f/25/1")} {
		busy := 0
		for range 100 {
			if status, _, _ := ask(t, c, url); status == http.StatusServiceUnavailable {
				busy++
			}
		}
		if busy != percent {
			t.Errorf("%s: %d of 100 are 503, want %d", url, busy, percent)
		}
	}
}

// TestState checks the counters, also after a waiting client has disconnected.
func TestState(t *testing.T) {
	o, c := start(t)
	ask(t, c, o.URL("http", "/f/100/1"))
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL("http", "/w/1h/1"), nil)
		if err == nil {
			_, err = c.Do(req)
		}
		if err == nil {
			t.Error("a request with a delay of an hour got a response")
		}
	}()
	await(t, o, origin.State{Busy: 1, Waiting: 1})
	leave()
	<-gone
	await(t, o, origin.State{Busy: 1})
}

// await polls the state until it is as wanted.
func await(t *testing.T, o *origin.Origin, want origin.State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		got, err := origin.Ask(ctx, o.Addr("http"))
		if err != nil {
			t.Fatalf("the state is %+v, want %+v: %v", got, want, err)
		}
		if got == want {
			return
		}
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- origin.Serve(ctx, w) }()
	var said map[string]string
	must.Succeed(t, json.NewDecoder(r).Decode(&said))
	for _, name := range []string{"http", "https", "h2", "authority"} {
		if said[name] == "" {
			t.Errorf("the line has no %s: %v", name, said)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
