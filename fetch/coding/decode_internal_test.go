package coding

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
	"fetchd/test/must"
)

// unlimited grants everything.
var unlimited *budget.Lease

// encoded returns the body as the encoder w writes it.
func encoded(t testing.TB, w io.WriteCloser, into *bytes.Buffer, body []byte) []byte {
	t.Helper()
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, w.Close())
	return into.Bytes()
}

func encodeZstd(t testing.TB, body []byte, options ...zstd.EOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, append(options, zstd.WithEncoderConcurrency(1))...)
	must.Succeed(t, err)
	return encoded(t, w, &b, body)
}

// codingForm is a form of an encoded body.
type codingForm struct {
	name, coding string
	encode       func(testing.TB, []byte) []byte
}

var codings = []codingForm{
	{"gzip", "gzip", func(t testing.TB, body []byte) []byte {
		var b bytes.Buffer
		return encoded(t, gzip.NewWriter(&b), &b, body)
	}},
	{"x-gzip", "x-gzip", func(t testing.TB, body []byte) []byte {
		var b bytes.Buffer
		return encoded(t, gzip.NewWriter(&b), &b, body)
	}},
	{"deflate, zlib", "deflate", func(t testing.TB, body []byte) []byte {
		var b bytes.Buffer
		return encoded(t, zlib.NewWriter(&b), &b, body)
	}},
	{"deflate, raw", "deflate", func(t testing.TB, body []byte) []byte {
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.DefaultCompression)
		must.Succeed(t, err)
		return encoded(t, w, &b, body)
	}},
	{"br", "br", func(t testing.TB, body []byte) []byte {
		var b bytes.Buffer
		return encoded(t, brotli.NewWriterLevel(&b, brotli.BestSpeed), &b, body)
	}},
	{"zstd", "zstd", func(t testing.TB, body []byte) []byte { return encodeZstd(t, body) }},
	{"two codings", "gzip, identity, zstd", func(t testing.TB, body []byte) []byte {
		var b bytes.Buffer
		return encodeZstd(t, encoded(t, gzip.NewWriter(&b), &b, body))
	}},
	{"zstd without a checksum", "zstd", func(t testing.TB, body []byte) []byte {
		return encodeZstd(t, body, zstd.WithEncoderCRC(false))
	}},
}

// decode reads raw to its end, as a body with a Content-Encoding is read.
func decode(raw io.Reader, contentEncoding string) ([]byte, *Counter, error) {
	c := &Counter{Reader: raw, Max: 8 << 20}
	d, err := NewDecoder(c, Applied([]string{contentEncoding}), unlimited)
	if err != nil {
		return nil, c, err
	}
	defer d.Close()
	body, err := io.ReadAll(&d)
	if err == nil {
		err = d.Drain()
	}
	return body, c, err
}

// noise returns n bytes that do not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return b
}

// TestDecode undoes each coding of bodies of several sizes, however the bytes arrive.
func TestDecode(t *testing.T) {
	t.Parallel()
	plain := codings[0]
	plain.name, plain.coding, plain.encode = "identity", "identity", func(_ testing.TB, b []byte) []byte { return b }
	none, upper, spaced := plain, codings[0], codings[0]
	none.name, none.coding = "none", ""
	upper.name, upper.coding = "in upper case", "GZIP"
	spaced.name, spaced.coding = "with spaces round it", " gzip\t"
	for _, row := range append([]codingForm{plain, none, upper, spaced}, codings...) {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, body := range [][]byte{{}, {'x'}, []byte(strings.Repeat("hello ", 500)), noise(40_000)} {
				sent := row.encode(t, body)
				for how, raw := range map[string]io.Reader{
					"at once":                     bytes.NewReader(sent),
					"byte by byte":                iotest.OneByteReader(bytes.NewReader(sent)),
					"the end with the last bytes": iotest.DataErrReader(bytes.NewReader(sent)),
				} {
					got, c, err := decode(raw, row.coding)
					if err != nil || !bytes.Equal(got, body) {
						t.Errorf("%d bytes %s: got %d bytes, error %v", len(body), how, len(got), err)
					}
					if c.N != int64(len(sent)) || !c.EOF || c.Err != nil {
						t.Errorf("%d bytes %s: counted %d, end seen %t, error %v, want %d, true, none", len(body), how, c.N, c.EOF, c.Err, len(sent))
					}
				}
			}
		})
	}
}

// TestEmptyBody checks that an empty body is valid in every coding, even in an unknown one.
func TestEmptyBody(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"", "identity", "gzip", "x-gzip", "deflate", "br", "zstd", "snappy", "gzip,br"} {
		if got, c, err := decode(http.NoBody, coding); err != nil || len(got) != 0 || !c.EOF {
			t.Errorf("%q: %d bytes, error %v, end seen %t, want an empty body", coding, len(got), err, c.EOF)
		}
	}
}

// TestDecodeTruncated truncates an encoded body at every byte. If the transfer ended normally, the
// error is one of the coding. If the connection broke, it is one of the transfer.
func TestDecodeTruncated(t *testing.T) {
	t.Parallel()
	errCut := errors.New("cut")
	for _, row := range codings {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			sent := row.encode(t, []byte("Hello, hello, hello! "+string(noise(40))))
			for n := 1; n < len(sent); n++ {
				_, c, err := decode(bytes.NewReader(sent[:n]), row.coding)
				if err == nil || c.Err != nil || !c.EOF {
					t.Errorf("%d of %d bytes: error %v, below %v, end seen %t, want an error above a clean end", n, len(sent), err, c.Err, c.EOF)
				}
				_, c, err = decode(io.MultiReader(bytes.NewReader(sent[:n]), iotest.ErrReader(errCut)), row.coding)
				if err == nil || !errors.Is(c.Err, errCut) || c.EOF {
					t.Errorf("%d of %d bytes: error %v, below %v, end seen %t, want the error below", n, len(sent), err, c.Err, c.EOF)
				}
			}
			_, c, err := decode(iotest.ErrReader(errCut), row.coding)
			if !errors.Is(err, errCut) || !errors.Is(c.Err, errCut) {
				t.Errorf("no byte: error %v, below %v, want the error below", err, c.Err)
			}
			// The transfer can still break after the last encoded byte.
			_, c, err = decode(io.MultiReader(bytes.NewReader(sent), iotest.ErrReader(errCut)), row.coding)
			if !errors.Is(c.Err, errCut) {
				t.Errorf("all bytes: error %v, below %v, want the error below", err, c.Err)
			}
		})
	}
}

// TestDecodeBroken decodes bodies that are not valid in their coding.
func TestDecodeBroken(t *testing.T) {
	t.Parallel()
	for _, row := range codings {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, body := range [][]byte{[]byte("plain text, not coded"), {0}, {0xff, 0xff, 0xff, 0xff, 0xff}} {
				if got, c, err := decode(bytes.NewReader(body), row.coding); err == nil || c.Err != nil {
					t.Errorf("%q: %q, error %v, below %v, want an error above", body, got, err, c.Err)
				}
			}
		})
	}
}

// TestSeveralParts checks that a body of several parts is read to the end of the last one.
func TestSeveralParts(t *testing.T) {
	t.Parallel()
	one, two := codings[0].encode(t, []byte("one, ")), codings[0].encode(t, []byte("two"))
	frame, frame2 := encodeZstd(t, []byte("one, ")), encodeZstd(t, []byte("two"))
	skipped := []byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3} // RFC 8878 §3.1.2
	for _, row := range []struct {
		name, coding string
		parts        [][]byte
		want         string
		fails        bool
	}{
		{"gzip members", "gzip", [][]byte{one, two}, "one, two", false}, // RFC 1952 §2.2
		{"an empty gzip member between", "gzip", [][]byte{one, codings[0].encode(t, nil), two}, "one, two", false},
		{"a gzip member that is truncated", "gzip", [][]byte{one, two[:len(two)-1]}, "one, two", true},
		{"half a gzip member", "gzip", [][]byte{one, two[:5]}, "one, ", true},
		{"the first byte of a gzip member", "gzip", [][]byte{one, two[:1]}, "one, ", true},
		{"a gzip member with a wrong checksum", "gzip", [][]byte{one, two[:len(two)-8], make([]byte, 8)}, "one, two", true},
		{"zstd frames", "zstd", [][]byte{frame, frame2}, "one, two", false}, // RFC 8878 §3.1
		{"a zstd frame to be skipped", "zstd", [][]byte{frame, skipped, frame2}, "one, two", false},
		{"only a zstd frame to be skipped", "zstd", [][]byte{skipped}, "", false},
		{"the first byte of a zstd frame", "zstd", [][]byte{frame, frame2[:1]}, "one, ", true},
		{"the first bytes of a zstd frame to be skipped", "zstd", [][]byte{frame, skipped[:3]}, "one, ", true},
		{"a zstd frame that is truncated", "zstd", [][]byte{frame, frame2[:len(frame2)-1]}, "one, two", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, c, err := decode(bytes.NewReader(bytes.Join(row.parts, nil)), row.coding)
			if (err != nil) != row.fails || c.Err != nil || !row.fails && string(got) != row.want || !strings.HasPrefix(row.want, string(got)) {
				t.Errorf("%q, error %v, below %v, want %q, an error: %t", got, err, c.Err, row.want, row.fails)
			}
		})
	}
}

// TestBytesBehind checks that bytes behind the coded data are ignored in every coding, and that they
// count.
func TestBytesBehind(t *testing.T) {
	t.Parallel()
	for _, row := range codings {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, body := range []string{"", "x", "hello, hello"} {
				for _, tail := range []string{"\n", "\r\n", "\x00", "\x1f\n", "P\n", "garbage that is longer", strings.Repeat("\x00", 200_000)} {
					sent := append(row.encode(t, []byte(body)), tail...)
					for how, raw := range map[string]io.Reader{"at once": bytes.NewReader(sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(sent))} {
						got, c, err := decode(raw, row.coding)
						if err != nil || string(got) != body || c.N != int64(len(sent)) || !c.EOF {
							t.Errorf("%q and %.9q %s: %q, %v, %d bytes read, end seen %t, want %d", body, tail, how, got, err, c.N, c.EOF, len(sent))
						}
					}
				}
			}
			endless := io.MultiReader(bytes.NewReader(row.encode(t, []byte("x"))), endless{})
			if got, _, err := decode(endless, row.coding); string(got) != "x" || !errors.Is(err, &fault.Error{Class: classify.BodyTooLarge}) {
				t.Errorf("without end: %q, %v, want BODY_TOO_LARGE", got, err)
			}
		})
	}
}

// endless is a reader of letters.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{'a'}, len(p))), nil }

// TestGzipHeaders checks that the fields of a gzip header are skipped, whatever their length is.
func TestGzipHeaders(t *testing.T) {
	t.Parallel()
	const text, hcrc, extra, name, comment = 1, 2, 4, 8, 16
	long := strings.Repeat("n", 100_000)
	empty, plain := codings[0].encode(t, nil), codings[0].encode(t, []byte("hello"))[10:] // without a header
	member := func(flags byte, fields string) []byte {
		head := append([]byte{0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 255}, fields...)
		if flags&hcrc != 0 {
			head = binary.LittleEndian.AppendUint16(head, uint16(crc32.ChecksumIEEE(head)))
		}
		return append(head, plain...)
	}
	for _, row := range []struct {
		name string
		sent []byte
	}{
		{"no field", member(0, "")},
		{"text", member(text, "")},
		{"a name", member(name, "a.txt\x00")},
		{"an empty name", member(name, "\x00")},
		{"a name of 600 bytes", member(name, long[:600]+"\x00")},
		{"a name as long as the buffer", member(name, long[:4<<10-11]+"\x00")},
		{"a name of 100,000 bytes", member(name, long+"\x00")},
		{"a comment of 100,000 bytes", member(comment, long+"\x00")},
		{"a name and a comment", member(name|comment, "a\x00"+long+"\x00")},
		{"an empty extra field", member(extra, "\x00\x00")},
		{"the longest extra field", member(extra, "\xff\xff"+long[:65535])},
		{"all of them", member(extra|name|comment, "\x02\x00\x00\x00"+long+"\x00"+long+"\x00")},
		{"a checksum of nothing", member(hcrc, "")},
		{"a checksum of all of them", member(extra|name|comment|hcrc, "\xff\xff"+long[:65535]+long+"\x00"+long+"\x00")},
		{"a second member", append(bytes.Clone(empty), member(name, long+"\x00")...)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got, _, err := decode(bytes.NewReader(row.sent), "gzip"); err != nil || string(got) != "hello" {
				t.Errorf("%q, %v, want hello", got, err)
			}
			for n := 1; n < len(row.sent); n += 1 + n/50 {
				if got, _, err := decode(bytes.NewReader(row.sent[:n]), "gzip"); err == nil && n != len(empty) {
					t.Errorf("%d of %d bytes: %q, want an error", n, len(row.sent), got)
				}
			}
		})
	}
	for name, sent := range map[string][]byte{"a wrong checksum": append(member(hcrc, "")[:10], append([]byte{0, 0}, plain...)...), "another method": append([]byte{0x1f, 0x8b, 9, 0, 0, 0, 0, 0, 0, 0}, plain...)} {
		if got, _, err := decode(bytes.NewReader(sent), "gzip"); err == nil {
			t.Errorf("%s: %q, want an error", name, got)
		}
	}
	unending := io.MultiReader(bytes.NewReader(member(name, "")[:10]), endless{})
	if got, c, err := decode(unending, "gzip"); len(got) > 0 || !errors.Is(err, &fault.Error{Class: classify.BodyTooLarge}) || c.N > c.Max+4<<10 {
		t.Errorf("a name without end: %q, %v after %d bytes, want BODY_TOO_LARGE", got, err, c.N)
	}
}

// TestApplied checks which elements of Content-Encoding are codings.
func TestApplied(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		lines []string
		want  string
	}{
		{nil, ""}, {[]string{""}, ""}, {[]string{","}, ""}, {[]string{" , ,\t"}, ""}, {[]string{"gzip"}, "gzip"}, {[]string{" GZip\t"}, "gzip"},
		{[]string{"", "gzip"}, "gzip"}, {[]string{"gzip", ""}, "gzip"}, {[]string{",gzip,,"}, "gzip"},
		{[]string{"identity"}, ""}, {[]string{"Identity, identity", "identity"}, ""}, {[]string{"identity, br"}, "br"}, {[]string{"zstd,IDENTITY"}, "zstd"}, {[]string{"identity", "x-gzip"}, "x-gzip"},
		{[]string{"UTF-8"}, ""}, {[]string{"none"}, ""}, {[]string{"aws-chunked"}, ""}, {[]string{"aws-chunked,gzip"}, "gzip"}, {[]string{"gzip", "utf-8"}, "gzip"},
		{[]string{"x-unknown"}, ""}, {[]string{"*"}, ""}, {[]string{"gzip;q=1"}, ""}, {[]string{"\"gzip\""}, ""}, {[]string{"gzip br"}, ""}, {[]string{"brotli"}, ""}, {[]string{"gzip2"}, ""}, {[]string{"\xff"}, ""},
		{[]string{"compress"}, "compress"}, {[]string{"X-Compress"}, "x-compress"}, {[]string{"dcz"}, "dcz"}, {[]string{"utf-8, exi"}, "exi"},
		{[]string{"gzip,gzip"}, "gzip,gzip"}, {[]string{"gzip", "br"}, "gzip,br"}, {[]string{"br, identity, x, gzip"}, "br,gzip"},
		{[]string{strings.Repeat("gzip,", 100_000)}, "gzip,gzip,gzip"}, {[]string{strings.Repeat("identity,,", 10_000) + "br"}, "br"},
	} {
		if got := Applied(row.lines); got != row.want {
			t.Errorf("%.50q: %.50q, want %q", row.lines, got, row.want)
		}
	}
}

// TestCodingsNotUndone checks that only two codings are undone, and only known ones.
func TestCodingsNotUndone(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"compress", "x-compress", "aes128gcm", "dcb", "dcz", "exi", "pack200-gzip", "gzip,gzip,gzip", "gzip, compress", "utf-8,compress"} {
		_, c, err := decode(strings.NewReader("x"), coding)
		if !errors.Is(err, errCoding) || fault.ReasonOf(err) != "unknown_content_coding" || c.Err != nil {
			t.Errorf("%q: error %v, want unknown_content_coding", coding, err)
		}
	}
}

// FuzzDecode checks that no bytes make a decoder panic, loop, or return more than the ratio
// allows.
func FuzzDecode(f *testing.F) {
	names := []string{"gzip", "deflate", "br", "zstd", "", "compress"}
	number := func(coding string) uint8 {
		for i, name := range names {
			if strings.HasSuffix(coding, name) {
				return uint8(i)
			}
		}
		return 0
	}
	for _, c := range codings {
		for _, body := range [][]byte{nil, []byte("hello, hello"), make([]byte, 3<<19)} {
			sent := c.encode(f, body)
			f.Add(number(c.coding), sent)
			f.Add(number(c.coding), sent[:len(sent)/2])
		}
	}
	f.Add(uint8(2), []byte{0x11, 0, 0})
	f.Add(uint8(3), []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff})
	buf := make([]byte, 31<<10)
	f.Fuzz(func(t *testing.T, number uint8, sent []byte) {
		raw := &Counter{Reader: bytes.NewReader(sent)}
		d, err := NewDecoder(raw, names[int(number)%len(names)], unlimited)
		if err != nil {
			return
		}
		defer d.Close()
		var size, idle int
		for err == nil {
			var n int
			n, err = d.Read(buf)
			size += n
			if idle++; n > 0 {
				idle = 0
			}
			if idle > 100 {
				t.Fatalf("%d bytes: 100 reads without a byte", len(sent))
			}
		}
		if most := max(ratioFreeBytes, MaxRatio*(len(sent)+1)) + len(buf); size > most {
			t.Errorf("%d bytes came out of %d, want at most %d", size, len(sent), most)
		}
		if errors.Is(err, io.EOF) {
			must.Succeed(t, d.Drain())
		}
		if raw.Err != nil {
			t.Errorf("error %v below, where nothing broke", raw.Err)
		}
	})
}

// sparse returns a body of n bytes. One in every part bytes does not compress.
func sparse(n, part int) []byte {
	body, random := make([]byte, n), noise(n/part+1)
	for i := 0; i < n; i += 64 * part {
		copy(body[i:min(i+64, n)], random[i/part:])
	}
	return body
}

// TestRatio checks that a body longer than 1 MiB may be at most 200 times as long as its encoding.
func TestRatio(t *testing.T) {
	t.Parallel()
	for _, row := range codings {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, body := range []struct {
				name string
				body []byte
				ok   bool
			}{
				{"1 MiB of zeros", make([]byte, ratioFreeBytes), true},
				{"1.5 MiB at some 100", sparse(3<<19, 100), true},
				{"1.5 MiB of zeros", make([]byte, 3<<19), false},
			} {
				sent := row.encode(t, body.body)
				got, _, err := decode(bytes.NewReader(sent), row.coding)
				if (err == nil) != body.ok || body.ok && !bytes.Equal(got, body.body) {
					t.Errorf("%s, ratio %d: %d bytes, error %v, want ok %t", body.name, len(body.body)/len(sent), len(got), err, body.ok)
				}
				if !body.ok && (!errors.Is(err, &fault.Error{Class: classify.BodyTooLarge}) || fault.ReasonOf(err) != "decompression_ratio") {
					t.Errorf("%s: %v, want BODY_TOO_LARGE, decompression_ratio", body.name, err)
				}
				if slack := 256 << 10; !body.ok && len(got) > ratioFreeBytes+MaxRatio*len(sent)+slack { // one read more
					t.Errorf("%s: %d bytes came out of %d", body.name, len(got), len(sent))
				}
			}
		})
	}
}

// TestEmptyBetween checks that what is between two codings has the limit of the transfer, also if it decodes to
// nothing.
func TestEmptyBetween(t *testing.T) {
	t.Parallel()
	var empty, b bytes.Buffer
	must.Succeed(t, gzip.NewWriter(&empty).Close())
	w, err := gzip.NewWriterLevel(&b, gzip.HuffmanOnly)
	must.Succeed(t, err)
	sent := encoded(t, w, &b, bytes.Repeat(empty.Bytes(), 400_000))
	_, c, err := decode(bytes.NewReader(sent), "gzip, gzip")
	if fault.ReasonOf(err) != "max_size_bytes" || c.Err != nil {
		t.Errorf("%d bytes: %v after %d, want max_size_bytes", len(sent), err, c.N)
	}
}

// TestWindows checks that windows larger than 8 MiB are rejected before they are allocated.
func TestWindows(t *testing.T) {
	t.Parallel()
	body := noise(300_000)
	frame := func(window int) func(*testing.T) []byte {
		return func(t *testing.T) []byte {
			t.Helper()
			sent := encodeZstd(t, body, zstd.WithWindowSize(window), zstd.WithSingleSegment(false))
			var head zstd.Header
			if err := head.Decode(sent); err != nil || head.WindowSize != uint64(window) {
				t.Fatalf("the frame has a window of %d, %v, want %d", head.WindowSize, err, window)
			}
			return sent
		}
	}
	stream := func(bits int) func(*testing.T) []byte {
		return func(t *testing.T) []byte {
			t.Helper()
			var b bytes.Buffer
			sent := encoded(t, brotli.NewWriterOptions(&b, brotli.WriterOptions{Quality: 5, LGWin: bits}), &b, body)
			if got := brotliWindowBits(sent[0]); got != bits {
				t.Fatalf("the stream has %d window bits, want %d", got, bits)
			}
			return sent
		}
	}
	for _, row := range []struct {
		name, coding string
		sent         func(*testing.T) []byte
		ok           bool
	}{
		{"zstd, 1 MiB", "zstd", frame(1 << 20), true},
		{"zstd, 8 MiB", "zstd", frame(8 << 20), true},
		{"zstd, 16 MiB", "zstd", frame(16 << 20), false},
		{"zstd, 512 MiB", "zstd", frame(512 << 20), false},
		{"br, 10 bits", "br", stream(10), true},
		{"br, 22 bits", "br", stream(22), true},
		{"br, 23 bits", "br", stream(23), true},
		{"br, 24 bits", "br", stream(24), false},
		{"br, large window", "br", func(*testing.T) []byte { return []byte{0x11, 0, 0, 0} }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := decode(bytes.NewReader(row.sent(t)), row.coding)
			if row.ok {
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("%d bytes, error %v, want %d", len(got), err, len(body))
				}
			} else if !errors.Is(err, &fault.Error{Class: classify.BodyTooLarge}) || fault.ReasonOf(err) != "decompression_window" || len(got) != 0 {
				t.Errorf("%d bytes, error %v, want BODY_TOO_LARGE, decompression_window", len(got), err)
			}
		})
	}
}

// TestBrotliWindowBits compares every first byte with the table of RFC 7932 §9.1, whose patterns are
// read from the right.
func TestBrotliWindowBits(t *testing.T) {
	t.Parallel()
	table := map[string]int{
		"0100001": 10, "0110001": 11, "1000001": 12, "1010001": 13, "1100001": 14, "1110001": 15,
		"0": 16, "0000001": 17, "0011": 18, "0101": 19, "0111": 20, "1001": 21, "1011": 22, "1101": 23, "1111": 24,
		"0010001": 64, // invalid; the large-window form has it
	}
	for b := range 256 {
		want, matches := 0, 0
		for pattern, bits := range table {
			value, err := strconv.ParseUint(pattern, 2, 8)
			must.Succeed(t, err)
			if mask := 1<<len(pattern) - 1; b&mask == int(value) {
				want, matches = bits, matches+1
			}
		}
		if got := brotliWindowBits(byte(b)); got != want || matches != 1 {
			t.Errorf("first byte %08b: %d bits, want %d (%d patterns match)", b, got, want, matches)
		}
	}
}
