// Package coding undoes the content codings of bodies within limits, and checks their charsets.
// It charges a memory budget for the decoders.
package coding

import (
	"bufio"
	"compress/zlib"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// Limits of decompression (spec §12).
const (
	MaxRatio       = 200     // decoded bytes for each encoded byte
	ratioFreeBytes = 1 << 20 // decoded bytes without a ratio
)

// Counter counts the bytes from the origin and remembers how they ended. Without it a
// broken connection would look like a broken coding: a decoder returns
// io.ErrUnexpectedEOF for both.
type Counter struct {
	io.Reader
	Max int64 // a read after more bytes than this fails; zero: no limit
	N   int64 // bytes read
	Err error // the first error that is not io.EOF
	EOF bool  // the end was read
}

// Read implements io.Reader.
func (c *Counter) Read(p []byte) (int, error) {
	if c.Max > 0 && c.N > c.Max { // a decoder does not return while it decodes empty parts
		return 0, fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "max_size_bytes")
	}
	n, err := c.Reader.Read(p)
	c.N += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		c.EOF = true
	case err != nil && c.Err == nil:
		c.Err = err
	}
	return n, err
}

// Decoder undoes the content codings of a body. It limits the compression ratio.
type Decoder struct {
	io.Reader
	close func()
	raw   *Counter
	out   int64
}

// registered are the names of content codings (RFC 9110 §8.4.1, in the registry of IANA), without identity.
var registered = []string{"aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "x-compress", "x-gzip", "zstd"}

// Applied returns the coding of a body whose header has these lines of Content-Encoding, in lower case.
// Other elements of the list are ignored (spec C3). "" means none. Several codings are separated by commas.
// Those behind the third are ignored, because no decoder undoes three.
func Applied(lines []string) (applied string) {
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			element = strings.Trim(element, " \t")
			i := slices.IndexFunc(registered, func(name string) bool { return strings.EqualFold(name, element) })
			switch {
			case i < 0:
				continue
			case applied != "":
				applied += ","
			}
			if applied += registered[i]; strings.Count(applied, ",") == MaxCodings {
				return applied
			}
		}
	}
	return applied
}

// errCoding is the error of a body with a coding that is not supported.
var errCoding = fault.New(classify.Undecodable, classify.PhaseTransfer, "unknown_content_coding")

// Memory is what a decoder is charged to, such as a [budget.Lease].
type Memory interface {
	Grow(k budget.Kind, n int64) bool
	Shrink(k budget.Kind, n int64)
}

// MaxCodings is how many content codings of a body are undone (spec C3).
const MaxCodings = 2

// NewDecoder returns a reader of the decoded body. codings is what [Applied] returns. It charges
// memory for the decoders until Close. Without a coding it returns raw. An empty body is valid
// in every coding. Bytes behind the coded data are not decoded.
func NewDecoder(raw *Counter, codings string, memory Memory) (Decoder, error) {
	first, second, several := strings.Cut(codings, ",") // in the order in which they were applied
	switch {
	case codings == "":
		return Decoder{Reader: raw, raw: raw}, nil
	case !several:
		return undo(raw, raw, first, memory)
	}
	inner, err := undo(raw, raw, second, memory)
	if err != nil {
		return Decoder{}, err
	}
	// What is between has the limit of the transfer, or one byte of it would cost as much as 200.
	d, err := undo(&Counter{Reader: &inner, Max: raw.Max}, raw, first, memory)
	if err != nil {
		inner.Close()
		return Decoder{}, err
	}
	undone := d
	d.close = func() { undone.Close(); inner.Close() }
	return d, nil
}

// undo returns a reader of what in has in a coding. The compression ratio is that to raw.
func undo(in io.Reader, raw *Counter, coding string, memory Memory) (Decoder, error) {
	none := Decoder{Reader: in, raw: raw}
	buffered := bufio.NewReaderSize(in, 4<<10)
	first, err := buffered.Peek(1)
	if len(first) == 0 {
		if errors.Is(err, io.EOF) {
			none.Reader = buffered
			return none, nil
		}
		return Decoder{}, err
	}
	w, err := windowOf(buffered, coding)
	if err != nil {
		return Decoder{}, err
	}
	if !memory.Grow(budget.Decoder, w.held) {
		return Decoder{}, fault.OutOfMemory
	}
	release := func() { memory.Shrink(budget.Decoder, w.held) }
	r, closer, err := newReader(buffered, coding, w, memory)
	if err != nil {
		release()
		return Decoder{}, err
	}
	return Decoder{Reader: r, close: func() { closer(); release() }, raw: raw}, nil
}

func newReader(r *bufio.Reader, coding string, w window, memory Memory) (io.Reader, func(), error) {
	switch coding {
	case "gzip", "x-gzip": // RFC 9110 §8.4.1.3
		return &gzipReader{in: r}, func() {}, nil
	case "deflate":
		return openDeflate(r)
	case "br":
		b := newBrotliReader(r, memory)
		return b, b.close, nil
	case "zstd":
		z, err := zstd.NewReader(&zstdFrames{in: r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(w.limit))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, errCoding
}

// openDeflate reads the zlib format, which the name means (RFC 9110 §8.4.1.2), or the raw
// format, which some origins send instead.
func openDeflate(r *bufio.Reader) (io.Reader, func(), error) {
	head, _ := r.Peek(2)
	if len(head) == 2 && head[0]&0x0f == 8 && (uint16(head[0])<<8|uint16(head[1]))%31 == 0 {
		z, err := zlib.NewReader(r)
		return z, func() {}, err
	}
	z := flate.NewReader(r)
	return z, func() { _ = z.Close() }, nil
}

// Read implements io.Reader. It fails if the compression ratio exceeds [MaxRatio].
func (d *Decoder) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	d.out += int64(n)
	if d.out > ratioFreeBytes && d.out/MaxRatio > d.raw.N {
		return n, fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "decompression_ratio")
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return n, fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "decompression_window")
	}
	return n, err
}

// Close releases the decoder and its memory. The zero Decoder may be closed too.
func (d *Decoder) Close() {
	if d.close != nil {
		d.close()
	}
}

// Drain reads what the decoder left of the transfer, and drops it: bytes behind the coded data, and
// the last chunk of the HTTP/1.1 framing. So an interruption there is noticed. Its error is that of
// a read, or of the limit of the [Counter].
func (d *Decoder) Drain() error {
	if d.raw.EOF {
		return d.raw.Err
	}
	_, err := io.Copy(io.Discard, d.raw)
	return err
}
