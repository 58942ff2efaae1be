package warc_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"fetchd/warc"
)

const smallHead = "WARC/1.1\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:a:b>\r\nWARC-Date: 2026-11-23T04:05:06Z\r\nWARC-Target-URI: http://a/\r\n"

// small is a correct record.
const small = smallHead + "Content-Length: 2\r\n\r\nhi\r\n\r\n"

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, s); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

// endless repeats a string for ever.
type endless struct {
	s  string
	at int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.s[e.at]
		e.at = (e.at + 1) % len(e.s)
	}
	return len(p), nil
}

func TestDamagedFiles(t *testing.T) {
	tests := []struct {
		name  string
		file  string
		whole int // records
		want  error
	}{
		{"no byte", "", 0, io.EOF},
		{"one record", small, 1, io.EOF},
		{"one compressed record", zipped(small), 1, io.EOF},
		{"all records in one member", zipped(small + small + small), 3, io.EOF},
		{"records in shared members", zipped(small) + zipped(small+small) + zipped(small), 4, io.EOF},
		{"zeros", strings.Repeat("\x00", 4096), 0, warc.ErrFormat},
		{"zeros after a record", small + strings.Repeat("\x00", 4096), 1, warc.ErrFormat},
		{"a text", "Lorem ipsum\r\n", 0, warc.ErrFormat},
		{"an ARC file", "filedesc://a 0.0.0.0 19960923142103 text/plain 76\n", 0, warc.ErrFormat},
		{"an unknown version", "WARC/2.0\r\n\r\n", 0, warc.ErrFormat},
		{"lines that end with LF", strings.ReplaceAll(small, "\r\n", "\n"), 0, warc.ErrFormat},
		{"a line without a colon", "WARC/1.1\r\nabc\r\n\r\n", 0, warc.ErrFormat},
		{"a first field that is continued", "WARC/1.1\r\n a: b\r\n\r\n", 0, warc.ErrFormat},
		{"no length", smallHead + "\r\n\r\n\r\n", 0, warc.ErrFormat},
		{"an empty length", smallHead + "Content-Length:\r\n\r\n\r\n\r\n", 0, warc.ErrFormat},
		{"a negative length", smallHead + "Content-Length: -1\r\n\r\n\r\n\r\n", 0, warc.ErrFormat},
		{"a length with a sign", smallHead + "Content-Length: +2\r\n\r\nhi\r\n\r\n", 0, warc.ErrFormat},
		{"a length of 20 digits", smallHead + "Content-Length: 99999999999999999999\r\n\r\nhi\r\n\r\n", 0, warc.ErrFormat},
		{"the largest length", smallHead + "Content-Length: 9223372036854775807\r\n\r\nhi\r\n\r\n", 0, io.ErrUnexpectedEOF},
		{"two lengths", smallHead + "Content-Length: 2\r\nContent-length: 2\r\n\r\nhi\r\n\r\n", 0, warc.ErrFormat},
		{"a length that is too small", smallHead + "Content-Length: 1\r\n\r\nhi\r\n\r\n" + small, 0, warc.ErrFormat},
		{"a length that is too large", smallHead + "Content-Length: 3\r\n\r\nhi\r\n\r\n" + small, 0, warc.ErrFormat},
		{"a record without its end", strings.TrimSuffix(small, "\r\n") + small, 0, warc.ErrFormat},
		{"an empty line between records", small + "\r\n" + small, 1, warc.ErrFormat},
		{"an empty member", zipped(small) + zipped("") + zipped(small), 1, warc.ErrFormat},
		{"a record in two members", zipped(small) + zipped(small[:50]) + zipped(small[50:]), 1, warc.ErrFormat},
		{"a member that ends in a block", zipped(small[:len(small)-5]) + zipped(small), 0, warc.ErrFormat},
		{"a member with more than a record", zipped(small+"abc\r\n") + zipped(small), 1, warc.ErrFormat},
		{"a plain record after a compressed one", zipped(small) + small, 1, gzip.ErrHeader},
		{"a compressed record after a plain one", small + zipped(small), 1, warc.ErrFormat},
		{"a wrong checksum", zipped(small)[:len(zipped(small))-5] + "\x00\x00\x00\x00\x00", 0, gzip.ErrChecksum},
		{"a line that is too long", "WARC/1.1\r\nA: " + strings.Repeat("b", 64<<10) + "\r\n\r\n", 0, warc.ErrLimit},
		{"a first line that is too long", "WARC/" + strings.Repeat("1", 65<<10), 0, warc.ErrLimit},
		{"too many fields", "WARC/1.1\r\n" + strings.Repeat("A: b\r\n", 1025) + "\r\n", 0, warc.ErrLimit},
		{"too many continued lines", "WARC/1.1\r\nA: b\r\n" + strings.Repeat(" \r\n", 90<<10) + "\r\n", 0, warc.ErrLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := readAll(strings.NewReader(tt.file), warc.ReaderOptions{Verify: true})
			if n != tt.whole || !errors.Is(err, tt.want) {
				t.Errorf("read %d records, want %d; error %v, want %v", n, tt.whole, err, tt.want)
			}
		})
	}
}

// TestBoundedMemory reads files without an end, and files that decompress to far more than they
// have.
func TestBoundedMemory(t *testing.T) {
	const size = 64 << 20
	tests := []struct {
		name string
		src  io.Reader
		want error
	}{
		{"a line without an end", io.MultiReader(strings.NewReader("WARC/1.1\r\nA: "), &endless{s: "b"}), warc.ErrLimit},
		{"a head without an end", io.MultiReader(strings.NewReader("WARC/1.1\r\n"), &endless{s: "A: b\r\n"}), warc.ErrLimit},
		{"a value without an end", io.MultiReader(strings.NewReader("WARC/1.1\r\nA: b\r\n"), &endless{s: " b\r\n"}), warc.ErrLimit},
		{"a gzip name without an end", io.MultiReader(strings.NewReader("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff"), &endless{s: "b"}), gzip.ErrHeader},
		{"a bomb in a head", strings.NewReader(zipped("WARC/1.1\r\nA: " + strings.Repeat("b", size))), warc.ErrLimit},
		{"a bomb in a block", strings.NewReader(zipped(smallHead + "Content-Length: 67108864\r\n\r\n" + strings.Repeat("b", size) + "\r\n\r\n")), io.EOF},
		{"a bomb after a block", strings.NewReader(zipped(small + strings.Repeat("b", size))), warc.ErrFormat},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := readAll(tt.src, warc.ReaderOptions{Verify: true})
			runtime.ReadMemStats(&after)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
				t.Errorf("allocated %d bytes", used)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		name   string
		limits warc.Limits
		want   error
	}{
		{"the line fits", warc.Limits{Line: 40}, io.EOF},
		{"the line does not fit", warc.Limits{Line: 30}, warc.ErrLimit},
		{"the head fits", warc.Limits{Head: len(small) - 6}, io.EOF},
		{"the head does not fit", warc.Limits{Head: len(small) - 7}, warc.ErrLimit},
		{"the fields fit", warc.Limits{Fields: 5}, io.EOF},
		{"the fields do not fit", warc.Limits{Fields: 4}, warc.ErrLimit},
	}
	for _, tt := range tests {
		if _, err := readAll(strings.NewReader(small), warc.ReaderOptions{Limits: tt.limits}); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

// TestWriterMemory writes a block that is far larger than what the writer may hold.
func TestWriterMemory(t *testing.T) {
	const size = 64 << 20
	for _, plain := range []bool{true, false} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w, err := warc.NewWriter(io.Discard, warc.WriterOptions{Plain: plain, Level: 1})
		if err != nil {
			t.Fatal(err)
		}
		h := warc.Header{Type: warc.Resource, Date: date, TargetURI: "http://example.com/"}
		if _, err := w.WriteRecord(&h, &endless{s: "b"}, size); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
			t.Errorf("plain %v: allocated %d bytes", plain, used)
		}
	}
}
