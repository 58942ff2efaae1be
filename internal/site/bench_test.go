package site_test

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"fetchd/internal/site"
)

// The two differ by what the site does for a request.
func BenchmarkRequest(b *testing.B) {
	b.Run("site", func(b *testing.B) {
		s := start(b, site.Config{})
		request(b, newClient(b, s), "http://"+s.Addr()+"/p/")
	})
	b.Run("bare", func(b *testing.B) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		page := make([]byte, 340)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.Serve(l)
		}()
		b.Cleanup(func() {
			server.Close()
			<-done
		})
		transport := &http.Transport{}
		b.Cleanup(transport.CloseIdleConnections)
		request(b, &http.Client{Transport: transport}, "http://"+l.Addr().String()+"/p/")
	})
}

func request(b *testing.B, c *http.Client, prefix string) {
	b.Helper()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		resp, err := c.Get(prefix + strconv.Itoa(n))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
