//go:build unix

package archive_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"fetchd/stores/archive"
)

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCapture records an exchange with a request of 300 bytes and a response of 1 KiB.
func BenchmarkCapture(b *testing.B) {
	a, err := archive.Open("bench", archive.Config{Dir: b.TempDir()})
	must(b, err)
	random := rand.New(rand.NewPCG(1, 2))
	var page strings.Builder
	for page.Len() < 1<<10 {
		fmt.Fprintf(&page, "<p>word%d and other <a href=\"/page/%d\">words</a></p>\n", random.IntN(1000), random.IntN(1e6))
	}
	body := page.String()[:1<<10]
	head := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 1024\r\nDate: Mon, 23 Nov 2026 07:00:00 GMT\r\nServer: origin\r\n\r\n")
	request := []byte("GET /page/123456 HTTP/1.1\r\nHost: origin.example\r\nUser-Agent: fetchd/1.0\r\nAccept: */*\r\n" +
		"Accept-Encoding: gzip, br, zstd\r\nX-Padding: " + strings.Repeat("0123456789", 17) + "\r\n\r\n")
	e := archive.Exchange{URL: "http://origin.example/page/123456", Method: "GET", Date: time.Now(), Address: netip.MustParseAddr("192.0.2.1"),
		Protocol: "HTTP/1.1", Whole: true, Length: 1 << 10}
	b.ReportAllocs()
	before := cpu()
	for b.Loop() {
		c := a.Begin(nil)
		_ = c.Sent(request)
		_ = c.Received(head)
		_ = c.Received([]byte(body))
		if records, err := c.Commit(e); err != nil || len(records) != 2 {
			b.Fatal(records, err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	must(b, a.Close(context.Background()))
}
