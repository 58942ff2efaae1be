package fetch_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/hashicorp/go-retryablehttp"

	"fetchd/classify"
	"fetchd/fetch"
)

// BenchmarkFetch reads 1 KiB over loopback on a kept connection: with this package, with net/http
// alone, and with the default client of go-retryablehttp.
func BenchmarkFetch(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 1<<10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body)
	}))
	b.Cleanup(s.Close)
	b.Run("fetch", func(b *testing.B) { benchFetch(b, s.URL, len(body)) })
	b.Run("net-http", func(b *testing.B) {
		transport := &http.Transport{}
		b.Cleanup(transport.CloseIdleConnections)
		benchDo(b, s.URL, len(body), (&http.Client{Transport: transport}).Do)
	})
	b.Run("go-retryablehttp", func(b *testing.B) {
		c := retryablehttp.NewClient()
		c.Logger = nil // its default writes every URL to the standard error
		b.Cleanup(c.HTTPClient.CloseIdleConnections)
		benchDo(b, s.URL, len(body), c.StandardClient().Do)
	})
}

func benchFetch(b *testing.B, url string, size int) {
	b.Helper()
	c := newClient(b, fetch.Config{Egress: unrestricted})
	req := get(b, url)
	req.Delivery = fetch.Inline
	b.ReportAllocs()
	for b.Loop() {
		if out := c.Fetch(b.Context(), req, nil); len(out.InlineBody) != size {
			b.Fatalf("%s with %d bytes, want %d", out.Kind, len(out.InlineBody), size)
		}
	}
}

func benchDo(b *testing.B, url string, size int, do func(*http.Request) (*http.Response, error)) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
		must(b, err)
		resp, err := do(req)
		must(b, err)
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || len(got) != size {
			b.Fatalf("%d bytes, error %v, want %d", len(got), err, size)
		}
	}
}

// BenchmarkPaths reads the most common kinds of response over loopback, each alone and with a sink
// and an observer. It counts the allocations of the whole process, including the origin.
func BenchmarkPaths(b *testing.B) {
	origin := benchOrigin(b)
	for _, row := range []struct {
		name, path string
		delivery   fetch.Delivery
		size       int64
		attempts   int
	}{
		{"1 KiB inline", "/1", fetch.Inline, 1 << 10, 1},
		{"64 KiB streamed", "/64", fetch.Stream, 64 << 10, 1},
		{"redirect", "/redirect", fetch.Inline, 1 << 10, 1},
		{"503 then 200", "/flaky", fetch.Inline, 1 << 10, 2},
	} {
		req := get(b, origin+row.path)
		req.Delivery, req.Policy.BaseDelay = row.delivery, 0 // a retry comes at once
		check := func(b *testing.B, out *fetch.Outcome) {
			b.Helper()
			if out.Kind != classify.Success || out.Body.Size != row.size || out.Attempts != row.attempts {
				b.Fatalf("%s: %s with %d bytes in %d attempts, want %d bytes in %d", row.path, out.Kind, out.Body.Size, out.Attempts, row.size, row.attempts)
			}
		}
		b.Run(row.name+"/alone", func(b *testing.B) {
			req := *req
			req.Events = fetch.OutcomeOnly
			benchPath(b, &req, nil, nil, check)
		})
		b.Run(row.name+"/watched", func(b *testing.B) {
			events := 0
			benchPath(b, req, new(attempted), func(fetch.Event) error { events++; return nil }, check)
			if events == 0 {
				b.Error("no event was emitted")
			}
		})
	}
}

// benchPath fetches with its own client. The first fetch, which connects, is not counted.
func benchPath(b *testing.B, req *fetch.Request, observer fetch.Observer, sink fetch.Sink, check func(*testing.B, *fetch.Outcome)) {
	b.Helper()
	c := newClient(b, fetch.Config{Egress: unrestricted, Observer: observer})
	check(b, c.Fetch(b.Context(), req, sink))
	b.ReportAllocs()
	for b.Loop() {
		check(b, c.Fetch(b.Context(), req, sink))
	}
}

// attempted is an observer that counts.
type attempted struct{ attempts, fetches int }

func (a *attempted) Attempted(context.Context, *fetch.Request, *fetch.AttemptFinished) { a.attempts++ }
func (a *attempted) Fetched(context.Context, *fetch.Request, *fetch.Outcome)           { a.fetches++ }

// benchOrigin serves the paths of BenchmarkPaths, and returns its address as a URL.
func benchOrigin(b *testing.B) string {
	b.Helper()
	body := bytes.Repeat([]byte("x"), 64<<10)
	mux := http.NewServeMux()
	send := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(n))
			_, _ = w.Write(body[:n])
		}
	}
	mux.HandleFunc("/1", send(1<<10))
	mux.HandleFunc("/64", send(64<<10))
	mux.Handle("/redirect", http.RedirectHandler("/1", http.StatusFound))
	failed := false // it is asked by one fetch at a time
	mux.HandleFunc("/flaky", func(w http.ResponseWriter, r *http.Request) {
		if failed = !failed; failed {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		send(1<<10)(w, r)
	})
	s := httptest.NewServer(mux)
	b.Cleanup(s.Close)
	return s.URL
}
