package fetch

import (
	"bufio"
	"compress/zlib"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// Limits of decompression (spec §12).
const (
	maxRatio       = 200
	ratioFreeBytes = 1 << 20
)

var uncoded, coded = []string{"identity"}, []string{"gzip, br, zstd"}

// acceptEncoding returns the Accept-Encoding of a request whose caller sets none (spec §2).
// It asks for no coding if the bytes are kept as sent, if the request has a Range, and for
// downloads, because an encoded body cannot be resumed.
func (r *Request) acceptEncoding() []string {
	if r.takesCodings() {
		return coded
	}
	return uncoded
}

func (r *Request) takesCodings() bool {
	return !r.KeepEncoding && r.Policy.Profile != classify.Download && r.Header.Get("Range") == ""
}

// counter counts the bytes from the origin and remembers how they ended. Without it a
// broken connection would look like a broken coding: a decoder returns
// io.ErrUnexpectedEOF for both.
type counter struct {
	io.Reader
	n   int64
	err error // the first error that is not io.EOF
	eof bool
	max int64 // a read after more bytes than this fails; zero: no limit
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	if c.max > 0 && c.n > c.max { // a decoder does not return while it decodes empty parts
		return 0, fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "max_size_bytes")
	}
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		c.eof = true
	case err != nil && c.err == nil:
		c.err = err
	}
	return n, err
}

// decoder undoes one content coding, or none. It limits the compression ratio.
type decoder struct {
	io.Reader
	close func()
	raw   *counter
	out   int64
}

// errCoding says that a body's coding is not one that can be undone.
var errCoding = fault.New(classify.Undecodable, classify.PhaseTransfer, "unknown_content_coding")

// newDecoder returns a reader of the decoded body. It charges memory for the decoder
// until the reader is closed. Without a coding it returns raw. An empty body is valid
// in every coding.
func newDecoder(raw *counter, coding string, memory *budget.Lease) (decoder, error) {
	none := decoder{Reader: raw, close: func() {}, raw: raw}
	coding = strings.ToLower(strings.TrimSpace(coding))
	if coding == "" || coding == "identity" {
		return none, nil
	}
	buffered := bufio.NewReaderSize(raw, 4<<10)
	first, err := buffered.Peek(1)
	if len(first) == 0 {
		if errors.Is(err, io.EOF) {
			none.Reader = buffered
			return none, nil
		}
		return decoder{}, err
	}
	w, err := windowOf(buffered, coding)
	if err != nil {
		return decoder{}, err
	}
	if !memory.Grow(budget.Decoder, w.held) {
		return decoder{}, errOutOfMemory
	}
	release := func() { memory.Shrink(budget.Decoder, w.held) }
	r, closer, err := open(buffered, coding, w, memory)
	if err != nil {
		release()
		return decoder{}, err
	}
	return decoder{Reader: r, close: func() { closer(); release() }, raw: raw}, nil
}

func open(r *bufio.Reader, coding string, w window, memory *budget.Lease) (io.Reader, func(), error) {
	switch coding {
	case "gzip", "x-gzip": // RFC 9110 §8.4.1.3
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	case "deflate":
		return openDeflate(r)
	case "br":
		b := newBrotliReader(r, memory)
		return b, b.close, nil
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(w.limit))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, errCoding
}

// openDeflate reads the zlib format that the name stands for (RFC 9110
// §8.4.1.2), or the raw one that some origins send in its place.
func openDeflate(r *bufio.Reader) (io.Reader, func(), error) {
	head, _ := r.Peek(2)
	if len(head) == 2 && head[0]&0x0f == 8 && (uint16(head[0])<<8|uint16(head[1]))%31 == 0 {
		z, err := zlib.NewReader(r)
		return z, func() {}, err
	}
	z := flate.NewReader(r)
	return z, func() { _ = z.Close() }, nil
}

// Read implements io.Reader. It fails if the compression ratio exceeds maxRatio.
func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	d.out += int64(n)
	if d.out > ratioFreeBytes && d.out/maxRatio > d.raw.n {
		return n, fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "decompression_ratio")
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return n, fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "decompression_window")
	}
	return n, err
}

// drain reads what the decoder left of the transfer, such as the last chunk of the HTTP/1.1
// framing. So an interruption after the coded bytes is noticed. It reads a limited number
// of trailing bytes and drops them.
func (d *decoder) drain() {
	if !d.raw.eof && d.raw.err == nil {
		_, _ = io.CopyN(io.Discard, d.raw, 64<<10)
	}
}
