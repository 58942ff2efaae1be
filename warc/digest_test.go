package warc_test

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"fetchd/warc"
)

func TestDigester(t *testing.T) {
	const (
		empty = "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
		hello = "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N"
	)
	tests := []struct {
		name, block string
		http        bool
		payload     warc.Digest
	}{
		{"not HTTP", "hello", false, hello},
		{"a message", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello", true, hello},
		{"a message without fields", "HTTP/1.1 200 OK\r\n\r\nhello", true, hello},
		{"lines that end with LF", "HTTP/1.1 200 OK\nA: b\n\nhello", true, hello},
		{"mixed ends of lines", "HTTP/1.1 200 OK\r\nA: b\n\r\nhello", true, hello},
		{"a CR at the start of a line", "HTTP/1.1 200 OK\r\n\rA: b\r\n\r\nhello", true, hello},
		{"two CR before LF", "HTTP/1.1 200 OK\r\n\r\r\n\r\nhello", true, hello},
		{"a payload that starts with an empty line", "HTTP/1.1 200 OK\r\n\r\n\r\n", true, "sha1:XKFLLIBIBOKTVKLUGX7YSRWLZOZHKWRH"},
		{"no payload", "HTTP/1.1 304 Not Modified\r\n\r\n", true, empty},
		{"a head without an end", "HTTP/1.1 200 OK\r\nA: b\r\n", true, empty},
		{"nothing", "", true, empty},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var blocks []warc.Digest
			for _, src := range []io.Reader{strings.NewReader(tt.block), iotest.OneByteReader(strings.NewReader(tt.block))} {
				d, err := warc.NewDigester(warc.SHA1, tt.http)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(d, src); err != nil {
					t.Fatal(err)
				}
				if d.Payload() != tt.payload || d.Length() != int64(len(tt.block)) {
					t.Errorf("the payload has %s, want %s; length %d", d.Payload(), tt.payload, d.Length())
				}
				blocks = append(blocks, d.Block())
			}
			if blocks[0] != blocks[1] {
				t.Errorf("in one write %s, byte by byte %s", blocks[0], blocks[1])
			}
		})
	}
}

func TestDigestEqual(t *testing.T) {
	const base, hexa = "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N", "sha1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"
	tests := []struct {
		name string
		a, b warc.Digest
		want bool
	}{
		{"the same", base, base, true},
		{"another encoding", base, hexa, true},
		{"another case", hexa, "SHA1:AAF4C61DDCC5E8A2DABEDE0F3B482CD9AEA9434D", true},
		{"another label", base, "sha-1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N", true},
		{"padding", "sha256:FTZE3OS7WCRQ4JXIHMVMLOPCTYNRMHS4D6TUEXTTAQZWFE4LTASA====", "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", true},
		{"another digest", base, "sha1:AL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N", false},
		{"another algorithm", base, "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", false},
		{"an unknown algorithm", "md5:x", "md5:x", true},
		{"an unknown algorithm, another value", "md5:x", "md5:y", false},
		{"empty", "", "", true},
		{"one is empty", "", base, false},
	}
	for _, tt := range tests {
		if got := tt.a.Equal(tt.b); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

func TestEscapeURI(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"a URI", "http://[2001:db8::1]:80/a%20b?c=d&e=~!$'()*+,;:@/#f", "http://[2001:db8::1]:80/a%20b?c=d&e=~!$'()*+,;:@/#f"},
		{"a space", "http://a/b c", "http://a/b%20c"},
		{"a line", "http://a/\r\nX: y", "http://a/%0D%0AX:%20y"},
		{"letters outside ASCII", "http://a/ü", "http://a/%C3%BC"},
		{"bytes that are not UTF-8", "http://a/\xff", "http://a/%FF"},
		{"delimiters", "http://a/<>\"{}|\\^`", "http://a/%3C%3E%22%7B%7D%7C%5C%5E%60"},
		{"a percent sign", "http://a/100%", "http://a/100%25"},
		{"a percent sign before other letters", "http://a/%zz%4", "http://a/%25zz%254"},
	}
	for _, tt := range tests {
		if got := warc.EscapeURI(tt.in); got != tt.want || warc.EscapeURI(got) != got {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDates(t *testing.T) {
	tests := []struct {
		name, value string
		want        time.Time // zero: it is not a date
	}{
		{"year", "2026", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"month", "2026-11", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
		{"day", "2026-11-23", time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)},
		{"minute", "2026-11-23T04:05Z", time.Date(2026, 11, 23, 4, 5, 0, 0, time.UTC)},
		{"second", "2026-11-23T04:05:06Z", time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC)},
		{"one digit", "2026-11-23T04:05:06.1Z", time.Date(2026, 11, 23, 4, 5, 6, 1e8, time.UTC)},
		{"nine digits", "2026-11-23T04:05:06.123456789Z", time.Date(2026, 11, 23, 4, 5, 6, 123456789, time.UTC)},
		{"another zone", "2026-11-23T04:05:06+01:00", time.Date(2026, 11, 23, 3, 5, 6, 0, time.UTC)},
		{"no zone", "2026-11-23T04:05:06", time.Time{}},
		{"fourteen digits", "20261123040506", time.Time{}},
		{"an impossible day", "2026-02-30", time.Time{}},
		{"empty", "", time.Time{}},
	}
	for _, tt := range tests {
		file := record("1.1", "WARC-Type: metadata\nWARC-Record-ID: <urn:a:b>\nWARC-Date: "+tt.value+"\n", "")
		rec, err := warc.NewReader(strings.NewReader(file), warc.ReaderOptions{}).Next()
		if err != nil {
			t.Fatal(err)
		}
		if !rec.Date.Equal(tt.want) || (len(rec.Problems) == 0) == tt.want.IsZero() {
			t.Errorf("%s: got %v, problems %v", tt.name, rec.Date, rec.Problems)
		}
	}
}

func TestNewID(t *testing.T) {
	a, b := warc.NewID(), warc.NewID()
	if a == b || len(a) != len("urn:uuid:")+36 || a[len("urn:uuid:")+14] != '4' {
		t.Errorf("got %s and %s", a, b)
	}
}
