//go:build linux

package limits

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// A response head has at most headBytes, which is just below the 64 KiB that
// fetchd reads.
const headBytes = 65_000

// head is a response head of an origin: that many fields of minimum size, and one that
// fills it up to headBytes.
type head struct {
	status     int
	retryAfter int // seconds; 0: none
	fields     int // bombFields: as many as fit
}

// bombFields requests as many fields as 64 KiB can hold.
const bombFields = math.MaxInt32

// query encodes the head in the URL of the hostile origin.
func (h head) query() string {
	return fmt.Sprintf("status=%d&retry-after=%d&fields=%d", h.status, h.retryAfter, h.fields)
}

// parseHead parses what query wrote.
func parseHead(q url.Values) head {
	number := func(name string) int { n, _ := strconv.Atoi(q.Get(name)); return n } // zero if missing
	return head{status: number("status"), retryAfter: number("retry-after"), fields: number("fields")}
}

// name returns the name of field i: three characters, so that all names differ.
func name(i int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return string([]byte{letters[i%36], letters[i/36%36], letters[i/36/36%36]})
}

// http1 returns the head's bytes without the empty line that ends it.
func (h head) http1() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d Hostile\r\nContent-Length: 0\r\n", h.status)
	if h.retryAfter > 0 {
		fmt.Fprintf(&b, "Retry-After: %d\r\n", h.retryAfter)
	}
	const filler = "Filler: "
	for i := 0; i < h.fields && b.Len() < headBytes-len(filler)-10; i++ {
		b.WriteString(name(i) + ":\r\n")
	}
	b.WriteString(filler + strings.Repeat("y", headBytes-b.Len()-len(filler)-4) + "\r\n")
	return b.Bytes()
}

// http2 returns the head's header block. RFC 9113 §6.5.2 adds 32 bytes for each field, so
// a head of headBytes has fewer fields. A bomb ignores that and has as many as 64 KiB on
// the wire hold. No field enters the dynamic table, so the block is valid on every
// connection.
func (h head) http2() []byte {
	const overhead = 32
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	counted := 0
	put := func(name, value string) {
		counted += len(name) + len(value) + overhead
		_ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // writing to a Buffer does not fail
	}
	put(":status", strconv.Itoa(h.status))
	put("content-length", "0")
	if h.retryAfter > 0 {
		put("retry-after", strconv.Itoa(h.retryAfter))
	}
	const filler = "filler"
	for i := range h.fields {
		if h.fields == bombFields && block.Len() > headBytes || h.fields != bombFields && counted > headBytes-2*(overhead+len(filler)) {
			break
		}
		put(name(i), "")
	}
	if left := headBytes - counted - overhead - len(filler); left > 0 {
		put(filler, strings.Repeat("y", left))
	}
	return block.Bytes()
}

// TestHeads parses the heads as a client does.
func TestHeads(t *testing.T) {
	const limit, overhead = 64 << 10, 32
	for _, row := range []struct {
		name                 string
		fields               int
		least1, most1        int // fields over HTTP/1.1
		least2, counted2Most int // fields over HTTP/2, and their bytes as RFC 9113 §6.5.2 counts them
	}{
		{"a few fields", 500, 503, 503, 504, limit},
		{"as many as fit", 16 << 10, 10_000, 11_000, 1_800, limit},
		{"a bomb", bombFields, 10_000, 11_000, 9_000, 1 << 20},
	} {
		h := head{status: 503, retryAfter: 3, fields: row.fields}
		whole := append(h.http1(), "\r\n"...)
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(whole)), nil)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		resp.Body.Close()
		if n := len(resp.Header); n < row.least1 || n > row.most1 || len(whole) != headBytes || resp.Header.Get("Retry-After") != "3" {
			t.Errorf("%s over HTTP/1.1: %d fields in %d bytes, want %d to %d in %d", row.name, n, len(whole), row.least1, row.most1, headBytes)
		}
		fields, err := hpack.NewDecoder(4096, nil).DecodeFull(h.http2())
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		counted := 0
		for _, f := range fields {
			counted += len(f.Name) + len(f.Value) + overhead
		}
		if len(fields) < row.least2 || counted > row.counted2Most || counted < headBytes {
			t.Errorf("%s over HTTP/2: %d fields that count as %d bytes, want %d or more, and %d to %d", row.name, len(fields), counted, row.least2, headBytes, row.counted2Most)
		}
	}
}
