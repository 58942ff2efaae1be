package warc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

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
			if err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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
