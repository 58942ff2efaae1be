package fetch_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/go-retryablehttp"

	"fetchd/classify"
	"fetchd/fetch"
)

func BenchmarkParseURL(b *testing.B) {
	for _, row := range []struct{ name, raw string }{
		{"name", "https://www.example.com/some/path?with=a&query=too"},
		{"IPv4", "http://192.0.2.1:8080/some/path"},
		{"IPv6", "http://[2001:db8::1]:8080/some/path"},
		{"international", "https://bücher.example/é?é"},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := fetch.ParseURL(row.raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFetch reads 1 KiB over loopback, on a connection that is kept: once
// with everything a fetch does, once with net/http alone, and once with
// go-retryablehttp's client as it comes.
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
	c, err := fetch.New(fetch.Config{Egress: fetch.Egress{Unrestricted: true}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	req := fetch.NewRequest(classify.Standard)
	if req.URL, err = fetch.ParseURL(url); err != nil {
		b.Fatal(err)
	}
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
		if err != nil {
			b.Fatal(err)
		}
		resp, err := do(req)
		if err != nil {
			b.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || len(got) != size {
			b.Fatalf("%d bytes, error %v, want %d", len(got), err, size)
		}
	}
}
