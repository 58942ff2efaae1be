package warc_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"

	"fetchd/warc"
)

// BenchmarkWriteSeeker writes a response of 1 KiB of text, with both digests.
func BenchmarkWriteSeeker(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	var text bytes.Buffer
	text.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
	for text.Len() < 1<<10 {
		text.WriteString("<p>word" + strconv.Itoa(random.IntN(1000)) + "</p>\n")
	}
	h := warc.Header{Type: warc.Response, ID: idResponse, Date: date, TargetURI: "http://example.com/", ConcurrentTo: []string{idRequest},
		IPAddress: ip, Protocol: []string{"http/1.1"}, WarcinfoID: idInfo, ContentType: warc.HTTPResponse}
	for name, o := range map[string]warc.WriterOptions{"plain": {Plain: true}, "gzip": {}, "fastest": {Level: 1}} {
		b.Run(name, func(b *testing.B) {
			w, err := warc.NewWriter(io.Discard, o)
			must(b, err)
			block := bytes.NewReader(text.Bytes())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.WriteSeeker(&h, block, warc.SHA1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(w.Offset())/float64(b.N), "bytes/record")
		})
	}
}
