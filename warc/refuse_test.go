package warc_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/must"
	"fetchd/warc"
)

// TestWriterRefuses shows that a head that cannot be written is refused, and leaves no byte.
func TestWriterRefuses(t *testing.T) {
	type change = func(h *warc.Header)
	tests := []struct {
		name   string
		change change
		length int64
		want   string // part of the error; "": it is accepted
	}{
		{"nothing wrong", func(*warc.Header) {}, 0, ""},
		{"no type", func(h *warc.Header) { h.Type = "" }, 0, "is not a type"},
		{"a type with a line", func(h *warc.Header) { h.Type = "a\r\nb" }, 0, "is not a type"},
		{"no date", func(h *warc.Header) { h.Date = time.Time{} }, 0, "WARC-Date is missing"},
		{"a year of five digits", func(h *warc.Header) { h.Date = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, 0, "four digits"},
		{"a date in another zone", func(h *warc.Header) { h.Date = h.Date.In(time.FixedZone("", 3600)) }, 0, ""},
		{"a target with a space", func(h *warc.Header) { h.TargetURI = "http://a/b c" }, 0, "percent-encoded"},
		{"a target with a line", func(h *warc.Header) { h.TargetURI = "http://a/\r\nX: y" }, 0, "percent-encoded"},
		{"a target with a letter outside ASCII", func(h *warc.Header) { h.TargetURI = "http://a/ü" }, 0, "percent-encoded"},
		{"a target with a percent sign", func(h *warc.Header) { h.TargetURI = "http://a/%zz" }, 0, "percent-encoded"},
		{"a target in brackets", func(h *warc.Header) { h.TargetURI = "<http://a/>" }, 0, "no scheme"},
		{"a target without a scheme", func(h *warc.Header) { h.TargetURI = "/a" }, 0, "no scheme"},
		{"no target", func(h *warc.Header) { h.TargetURI = "" }, 0, "WARC-Target-URI is missing"},
		{"an identifier with a bracket", func(h *warc.Header) { h.ID = "urn:a>" }, 0, "percent-encoded"},
		{"an identifier that is no URI", func(h *warc.Header) { h.ID = "a" }, 0, "no scheme"},
		{"an empty identifier in a list", func(h *warc.Header) { h.ConcurrentTo = []string{""} }, 0, "no scheme"},
		{"a value with a line", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A", Value: "b\r\nC: d"}} }, 0, "control character"},
		{"a value with a bare LF", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A", Value: "b\nC: d"}} }, 0, "control character"},
		{"a value with NEL", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A", Value: "b\u0085C: d"}} }, 0, "control character"},
		{"a value with a line separator", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A", Value: "b\u2028C: d"}} }, 0, "control character"},
		{"a value that is not UTF-8", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A", Value: "\xff"}} }, 0, "UTF-8"},
		{"a value that starts with a space", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A", Value: " b"}} }, 0, "space"},
		{"a name with a colon", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A:", Value: "b"}} }, 0, "name"},
		{"a name with a line", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A\r\nB", Value: "b"}} }, 0, "name"},
		{"an empty name", func(h *warc.Header) { h.Extra = []warc.Field{{Value: "b"}} }, 0, "name"},
		{"a defined field as an extra one", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "content-length", Value: "0"}} }, 0, "cannot be in Extra"},
		{"an extra field that is repeated", func(h *warc.Header) { h.Extra = []warc.Field{{Name: "A", Value: "b"}, {Name: "A", Value: "c"}} }, 0, ""},
		{"a protocol with a line", func(h *warc.Header) { h.Protocol = []string{"a\nb"} }, 0, "control character"},
		{"a reason with a space", func(h *warc.Header) { h.Truncated = "no time" }, 0, "token"},
		{"a reason of an extension", func(h *warc.Header) { h.Truncated = "boredom" }, 0, ""},
		{"a content type that is none", func(h *warc.Header) { h.ContentType = "text" }, 0, ""},
		{"a content type with a line", func(h *warc.Header) { h.ContentType = "text/plain\r\nA: b" }, 0, "media type"},
		{"a digest without a label", func(h *warc.Header) { h.BlockDigest = "abc" }, 0, "is not a digest"},
		{"a digest that is too short", func(h *warc.Header) { h.BlockDigest = "sha1:abc" }, 0, "is not a sha1 digest"},
		{"a digest of another algorithm", func(h *warc.Header) { h.PayloadDigest = "blake3:abc" }, 0, ""},
		{"an address with a zone", func(h *warc.Header) { h.IPAddress = netip.MustParseAddr("fe80::1%eth0") }, 0, "zone"},
		{"an IPv6 address", func(h *warc.Header) { h.IPAddress = netip.MustParseAddr("2001:db8::1") }, 0, ""},
		{"a negative length", func(*warc.Header) {}, -1, "negative"},
		{"a negative segment", func(h *warc.Header) { h.SegmentNumber = -1 }, 0, "negative"},
		{"a line that is too long", func(h *warc.Header) { h.TargetURI = "http://a/" + strings.Repeat("b", 64<<10) }, 0, "longer than"},
		{"a head that is too long", func(h *warc.Header) {
			h.Extra = slicesOf(5, warc.Field{Name: "A", Value: strings.Repeat("b", 60<<10)})
		}, 0, "longer than"},
		{"too many fields", func(h *warc.Header) { h.Extra = slicesOf(1024, warc.Field{Name: "A"}) }, 0, "more than 1024 fields"},

		// The fields of each type.
		{"a warcinfo record with a target", func(h *warc.Header) { h.Type = warc.Warcinfo }, 0, "WARC-Target-URI is not allowed"},
		{"a metadata record with a payload digest", func(h *warc.Header) {
			h.Type, h.PayloadDigest = warc.Metadata, warc.NewDigest(warc.SHA1, make([]byte, 20))
		}, 0, "WARC-Payload-Digest is not allowed"},
		{"a response that refers to a record", func(h *warc.Header) { h.RefersTo = idOther }, 0, "WARC-Refers-To is not allowed"},
		{"a response with a date of another record", func(h *warc.Header) { h.RefersToDate = date }, 0, "WARC-Refers-To-Date is not allowed"},
		{"a response with a profile", func(h *warc.Header) { h.Profile = warc.ServerNotModified }, 0, "WARC-Profile is not allowed"},
		{"a response with a file name", func(h *warc.Header) { h.Filename = "a" }, 0, "WARC-Filename is not allowed"},
		{"a conversion with a concurrent record", func(h *warc.Header) {
			h.Type, h.ConcurrentTo = warc.Conversion, []string{idOther}
		}, 0, "WARC-Concurrent-To is not allowed"},
		{"a conversion with an address", func(h *warc.Header) { h.Type, h.IPAddress = warc.Conversion, ip }, 0, "WARC-IP-Address is not allowed"},
		{"a revisit without a profile", func(h *warc.Header) { h.Type = warc.Revisit }, 0, "WARC-Profile is missing"},
		{"a revisit of a payload without its digest", func(h *warc.Header) {
			h.Type, h.Profile = warc.Revisit, warc.IdenticalPayloadDigest
		}, 0, "WARC-Payload-Digest is missing"},
		{"a revisit whose block is not truncated", func(h *warc.Header) {
			h.Type, h.Profile = warc.Revisit, warc.IdenticalPayloadDigest
			h.PayloadDigest = warc.NewDigest(warc.SHA1, make([]byte, 20))
		}, 1, "WARC-Truncated"},
		{"a continuation without an origin", func(h *warc.Header) { h.Type, h.SegmentNumber = warc.Continuation, 2 }, 0, "WARC-Segment-Origin-ID is missing"},
		{"a first segment", func(h *warc.Header) { h.SegmentNumber = 1 }, 0, ""},
		{"a first segment with a total length", func(h *warc.Header) { h.SegmentNumber, h.SegmentTotalLength = 1, 9 }, 0, "WARC-Segment-Total-Length is not allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var file bytes.Buffer
			w, err := warc.NewWriter(&file, warc.WriterOptions{Plain: true})
			must.Succeed(t, err)
			good := warc.Header{Type: warc.Response, Date: date, TargetURI: "http://example.com/"}
			h := good
			tt.change(&h)
			_, err = w.WriteRecord(&h, strings.NewReader("x"), tt.length)
			if tt.want == "" {
				if n, end := readAll(&file, warc.ReaderOptions{}); err != nil || n != 1 || !errors.Is(end, io.EOF) {
					t.Errorf("got %v; then read %d records, %v", err, n, end)
				}
				return
			}
			if err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if file.Len() != 0 {
				t.Errorf("%d bytes were written", file.Len())
			}
			if _, err := w.WriteRecord(&good, nil, 0); err != nil {
				t.Errorf("the next record: %v", err)
			}
		})
	}
}

func slicesOf[T any](n int, v T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func TestWriterStopsAfterFailure(t *testing.T) {
	fault := errors.New("no space left")
	tests := []struct {
		name  string
		dst   io.Writer
		block string
		want  error
	}{
		{"the block is too short", io.Discard, "abc", io.ErrUnexpectedEOF},
		{"the file is full", failing{fault}, "abcd", fault},
	}
	for _, tt := range tests {
		for _, plain := range []bool{true, false} {
			w, err := warc.NewWriter(tt.dst, warc.WriterOptions{Plain: plain, Offset: 5})
			must.Succeed(t, err)
			h := warc.Header{Type: warc.Resource, Date: date, TargetURI: "http://example.com/"}
			if _, err := w.WriteRecord(&h, strings.NewReader(tt.block), 4); !errors.Is(err, tt.want) {
				t.Errorf("%s, plain %v: %v", tt.name, plain, err)
			}
			if _, err := w.WriteRecord(&h, strings.NewReader("abcd"), 4); !errors.Is(err, tt.want) {
				t.Errorf("%s, plain %v: the next record: %v", tt.name, plain, err)
			}
			if w.Offset() != 5 {
				t.Errorf("%s, plain %v: at offset %d", tt.name, plain, w.Offset())
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestWriterOptions(t *testing.T) {
	if _, err := warc.NewWriter(io.Discard, warc.WriterOptions{Level: 99}); err == nil {
		t.Error("a level of 99 was accepted")
	}
	if _, err := warc.NewDigester("md5", true); err == nil {
		t.Error("the algorithm md5 was accepted")
	}
}

func TestDigester(t *testing.T) {
	const (
		empty = "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
		hello = "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N"
		coded = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	)
	sum := func(s string) warc.Digest {
		b := sha1.Sum([]byte(s))
		return warc.Digest(base32.StdEncoding.EncodeToString(b[:]))
	}
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
		{"chunks", coded + "2;a=\"b\"\r\nhe\r\n00003 \t;c\r\nllo\r\n0\r\n\r\n", true, hello},
		{"one chunk", coded + "5\r\nhello\r\n0;last\r\nA: b\r\nC: d\r\n\r\n", true, hello},
		{"chunks without content", coded + "0\r\n\r\n", true, empty},
		{"chunks, name in capitals", "HTTP/1.1 200 OK\nTRANSFER-ENCODING:\t Chunked \nA: b\n\n5\r\nhello\r\n0\r\n\r\n", true, hello},
		{"no body where a head has chunks", coded, true, empty},
		{"chunks that are not whole", coded + "5\r\nhello\r\n0\r\n", true, "sha1:" + sum("5\r\nhello\r\n0\r\n")},
		{"bytes behind the chunks", coded + "5\r\nhello\r\n0\r\n\r\n\n", true, "sha1:" + sum("5\r\nhello\r\n0\r\n\r\n\n")},
		{"no chunks", coded + "hello", true, hello},
		{"a chunk that is too long", coded + "5\r\nhello!\r\n0\r\n\r\n", true, "sha1:" + sum("5\r\nhello!\r\n0\r\n\r\n")},
		{"a size that is too large", coded + "10000000000000005\r\nhello\r\n0\r\n\r\n", true, "sha1:" + sum("10000000000000005\r\nhello\r\n0\r\n\r\n")},
		{"chunks of a compressed body", coded[:len(coded)-2] + "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n", true, "sha1:" + sum("0\r\n\r\n")},
		{"two codings in a line", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", true, "sha1:" + sum("0\r\n\r\n")},
		{"a coding that continues", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n , gzip\r\n\r\n0\r\n\r\n", true, "sha1:" + sum("0\r\n\r\n")},
		{"chunks in a body that is not HTTP", coded + "0\r\n\r\n", false, "sha1:" + sum(coded+"0\r\n\r\n")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var blocks []warc.Digest
			for _, src := range []io.Reader{strings.NewReader(tt.block), iotest.OneByteReader(strings.NewReader(tt.block))} {
				d, err := warc.NewDigester(warc.SHA1, tt.http)
				must.Succeed(t, err)
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

// FuzzChunks compares the payload of a message with what net/http reads.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{"5\r\nhello\r\n0\r\n\r\n", "5 ;a\r\nhello\r\n0\r\nA: b\r\n\r\n", "A\nhello", "-1\r\n", "fffffffffffffffff\r\n", "1\r\na\r\n\r\n0\r\n\r\n"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, body string, piece int) {
		d, err := warc.NewDigester(warc.SHA1, true)
		must.Succeed(t, err)
		_, _ = d.Write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
		for part := range slices.Chunk([]byte(body), max(piece, 1)) {
			_, _ = d.Write(part)
		}
		in := bufio.NewReader(strings.NewReader(body))
		content, err := io.ReadAll(httputil.NewChunkedReader(in))
		for err == nil { // the trailer
			var line string
			if line, err = in.ReadString('\n'); err == nil && strings.Trim(line, "\r\n") == "" && len(line) <= 2 {
				if _, more := in.ReadByte(); more == nil {
					err = errors.New("something follows")
				}
				break
			}
		}
		want := content
		if err != nil {
			want = []byte(body)
		}
		sum := sha1.Sum(want)
		if got := d.Payload(); got == warc.NewDigest(warc.SHA1, sum[:]) {
			return
		}
		// net/http limits lines and what they have in common, and allows no space before an extension.
		for _, stricter := range []string{"header line too long", "http chunk length too large", "too much non-data", "invalid byte in chunk length"} {
			if err != nil && strings.Contains(fmt.Sprint(err), stricter) {
				return
			}
		}
		t.Errorf("%q in pieces of %d: another payload than %q (%v)", body, piece, want, err)
	})
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
		must.Succeed(t, err)
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

func TestWriteInfo(t *testing.T) {
	fields := []warc.Field{{Name: "software", Value: "test/1"}, {Name: "operator", Value: "Jürgen <j@example.com>"}, {Name: "isPartOf", Value: ""}}
	var file bytes.Buffer
	w, err := warc.NewWriter(&file, warc.WriterOptions{})
	must.Succeed(t, err)
	h := warc.Header{Date: date, Filename: "a.warc.gz"}
	place, err := w.WriteInfo(&h, fields)
	if err != nil || h.Type != "" {
		t.Fatalf("error %v, the caller's type is %q", err, h.Type)
	}
	rec, err := warc.NewReader(&file, warc.ReaderOptions{Verify: true}).Next()
	must.Succeed(t, err)
	got, err := warc.ParseFields(rec.Block, warc.Limits{})
	must.Succeed(t, err)
	if diff := cmp.Diff(fields, got); diff != "" {
		t.Error(diff)
	}
	must.Succeed(t, rec.Finish())
	if rec.ID != place.ID || rec.Type != warc.Warcinfo || rec.ContentType != warc.WarcFields || rec.BlockVerdict != warc.Matches || len(rec.Problems) > 0 {
		t.Errorf("got %+v", rec)
	}
}

func TestFormatFieldsRefuses(t *testing.T) {
	tests := []struct {
		name  string
		field warc.Field
	}{
		{"a line in a value", warc.Field{Name: "software", Value: "a\r\nrobots: classic"}},
		{"a name with a space", warc.Field{Name: "user agent", Value: "a"}},
	}
	for _, tt := range tests {
		if _, err := warc.FormatFields([]warc.Field{tt.field}); err == nil {
			t.Errorf("%s was accepted", tt.name)
		}
	}
}

func TestParseFields(t *testing.T) {
	tests := []struct {
		name, block string
		want        []warc.Field
		ok          bool
	}{
		{"nothing", "", nil, true},
		{"one", "a: b\r\n", []warc.Field{{Name: "a", Value: "b"}}, true},
		{"an empty line at the end", "a: b\r\n\r\n", []warc.Field{{Name: "a", Value: "b"}}, true},
		{"a continued value", "a: b\r\n c\r\n", []warc.Field{{Name: "a", Value: "b c"}}, true},
		{"a control character", "a: \x1b\r\n", []warc.Field{{Name: "a", Value: "\x1b"}}, false},
		{"no colon", "a\r\n", nil, false},
		{"no end of the line", "a: b", nil, false},
		{"a line that is too long", "a: " + strings.Repeat("b", 100) + "\r\n", nil, false},
	}
	for _, tt := range tests {
		got, err := warc.ParseFields(io.LimitReader(strings.NewReader(tt.block), 1<<20), warc.Limits{Line: 50})
		if (err == nil) != tt.ok {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// onlyWriter hides the other methods of a buffer.
type onlyWriter struct{ io.Writer }

// TestWriterReset writes the same file with one writer that is reset, also after an error and between
// destinations that need a buffer and those that do not.
func TestWriterReset(t *testing.T) {
	h := warc.Header{Type: warc.Resource, ID: idResponse, Date: date, TargetURI: "http://example.com/", ContentType: "text/plain"}
	for name, o := range map[string]warc.WriterOptions{"plain": {Plain: true}, "compressed": {Level: 1}} {
		t.Run(name, func(t *testing.T) {
			var want bytes.Buffer
			fresh, err := warc.NewWriter(&want, o)
			must.Succeed(t, err)
			write := func(w *warc.Writer) warc.Place {
				t.Helper()
				at, err := w.WriteSeeker(&h, strings.NewReader(strings.Repeat("text ", 50_000)), warc.SHA1)
				must.Succeed(t, err)
				return at
			}
			write(fresh)
			w, err := warc.NewWriter(new(bytes.Buffer), o)
			must.Succeed(t, err)
			for i, buffered := range []bool{true, false, true, true, false} {
				w.Reset(broken{}, 7)
				if _, err := w.WriteSeeker(&h, strings.NewReader("text"), warc.SHA1); !errors.Is(err, errBroken) {
					t.Fatal(err)
				}
				var file bytes.Buffer
				var dst io.Writer = &file
				if buffered {
					dst = onlyWriter{&file}
				}
				w.Reset(dst, 100)
				if at := write(w); at.Offset != 100 || at.Length != int64(file.Len()) || w.Offset() != 100+at.Length {
					t.Errorf("%d: record at %d, %d of %d bytes", i, at.Offset, at.Length, file.Len())
				}
				if !bytes.Equal(file.Bytes(), want.Bytes()) {
					t.Errorf("%d: the file differs from that of a new writer", i)
				}
			}
		})
	}
}

var errBroken = errors.New("the destination fails")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestDigesterReset computes the digests of a second block.
func TestDigesterReset(t *testing.T) {
	one, err := warc.NewDigester(warc.SHA1, true)
	must.Succeed(t, err)
	_, _ = one.Write([]byte("HTTP/1.1 200 OK\r\n\r\nfirst"))
	one.Reset()
	two, err := warc.NewDigester(warc.SHA1, true)
	must.Succeed(t, err)
	for _, d := range []*warc.Digester{one, two} {
		_, _ = d.Write([]byte("HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello"))
	}
	if one.Length() != two.Length() || one.Block() != two.Block() || one.Payload() != two.Payload() {
		t.Errorf("%d bytes with %s and %s, want %d with %s and %s", one.Length(), one.Block(), one.Payload(), two.Length(), two.Block(), two.Payload())
	}
}
