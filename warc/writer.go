package warc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"mime"
	"slices"

	"github.com/klauspost/compress/gzip"
)

// WriterOptions are the options of a Writer. The zero value is a compressed file at its start.
type WriterOptions struct {
	// Plain writes records without compression.
	Plain bool
	// Level is the level of gzip, from 1 (fastest) to 9 (smallest). Zero is the default level.
	Level int
	// StoreBelow is the length of a record in bytes, with its head, below which its gzip member
	// is not compressed. To compress 1 KiB takes ten times the CPU of writing it, and saves half of
	// it. At most 32 KiB. Zero compresses all records.
	StoreBelow int
	// Offset is the length of the file that records are appended to. It is added to each offset.
	Offset int64
}

// Writer writes records. It may not be used by two goroutines at once.
type Writer struct {
	sent   counter
	buffer *bufio.Writer // in front of sent; nil if the destination needs none
	to     io.Writer     // buffer or sent
	gz     *gzip.Writer  // nil if the file is not compressed
	head   []byte
	copied []byte // for copying a block to gz
	stored int    // WriterOptions.StoreBelow
	offset int64
	err    error
}

// NewWriter returns a Writer to dst. It buffers 64 KiB within a record, unless dst is an
// [io.ByteWriter], such as a [bytes.Buffer]. When a call returns, the record was written to dst.
func NewWriter(dst io.Writer, o WriterOptions) (*Writer, error) {
	w := new(Writer)
	w.Reset(dst, o.Offset)
	if o.Plain {
		return w, nil
	}
	if o.Level == 0 {
		o.Level = gzip.DefaultCompression
	}
	gz, err := gzip.NewWriterLevel(w.to, o.Level)
	if err != nil {
		return nil, fmt.Errorf("warc: %w", err)
	}
	w.gz, w.copied, w.stored = gz, make([]byte, 32<<10), min(o.StoreBelow, 32<<10)
	return w, nil
}

// Reset makes w continue with another file, to which offset bytes have been written already. It
// keeps its memory, which is about 1 MiB if the file is compressed, and forgets an error. Only
// Offset is different from what the options of [NewWriter] have set.
func (w *Writer) Reset(dst io.Writer, offset int64) {
	w.sent = counter{to: dst, n: offset}
	w.offset, w.err = offset, nil
	w.to = &w.sent
	if _, ok := dst.(io.ByteWriter); ok {
		return
	}
	if w.buffer == nil {
		w.buffer = bufio.NewWriterSize(&w.sent, 64<<10)
	}
	w.buffer.Reset(&w.sent)
	w.to = w.buffer
}

// Offset returns the length of the file up to the end of the last whole record.
func (w *Writer) Offset() int64 { return w.offset }

// WriteRecord writes a record whose block is the next length bytes of block. h is not changed.
//
// If h cannot be written, nothing is written. Any other error may leave part of the record in the
// file: the Writer returns that error from then on. To continue, truncate the file to Offset and
// reset the Writer.
func (w *Writer) WriteRecord(h *Header, block io.Reader, length int64) (Place, error) {
	if w.err != nil {
		return Place{}, w.err
	}
	head, id, err := w.encode(h, length)
	if err != nil {
		return Place{}, fmt.Errorf("warc: %w", err)
	}
	if err := w.write(head, block, length); err != nil {
		w.err = fmt.Errorf("warc: write record: %w", err)
		return Place{}, w.err
	}
	place := Place{ID: id, Offset: w.offset, Length: w.sent.n - w.offset}
	w.offset = w.sent.n
	return place, nil
}

// WriteSeeker writes a record whose block is all of block. It reads block twice: to compute its
// length and digests, and to write it. It sets the digests that h does not have and that a record
// of its type has.
func (w *Writer) WriteSeeker(h *Header, block io.ReadSeeker, a Algorithm) (Place, error) {
	d, err := NewDigester(a, payloadOf(h) == payloadHTTP)
	if err != nil {
		return Place{}, err
	}
	if _, err := block.Seek(0, io.SeekStart); err != nil {
		return Place{}, fmt.Errorf("warc: %w", err)
	}
	if _, err := io.Copy(d, block); err != nil {
		return Place{}, fmt.Errorf("warc: %w", err)
	}
	if _, err := block.Seek(0, io.SeekStart); err != nil {
		return Place{}, fmt.Errorf("warc: %w", err)
	}
	with := *h
	if with.BlockDigest == "" {
		with.BlockDigest = d.Block()
	}
	if with.PayloadDigest == "" && payloadOf(h) != payloadNone {
		with.PayloadDigest = d.Payload()
	}
	return w.WriteRecord(&with, block, d.Length())
}

// encode returns the head of the record and its identifier.
func (w *Writer) encode(h *Header, length int64) ([]byte, string, error) {
	if length < 0 {
		return nil, "", errors.New("the length of the block is negative")
	}
	for _, t := range []string{h.ContentType, h.IdentifiedPayloadType} {
		switch t {
		case "", HTTPRequest, HTTPResponse, WarcFields:
			continue
		}
		if _, _, err := mime.ParseMediaType(t); err != nil {
			return nil, "", fmt.Errorf("%.80q is not a media type", t)
		}
	}
	if h.Profile == IdenticalPayloadDigest && length > 0 && h.Truncated != TruncatedLength {
		return nil, "", fmt.Errorf("the block of a record with this profile has no payload: set %s to %q",
			nameTruncated, TruncatedLength)
	}
	if h.ID == "" {
		with := *h
		with.ID = NewID()
		h = &with
	}
	head, err := h.encode(w.head[:0], length)
	if err == nil {
		w.head = head
	}
	return head, h.ID, err
}

func (w *Writer) write(head []byte, block io.Reader, length int64) error {
	if length < int64(w.stored-len(head)-len(recordEnd)) {
		return w.store(head, block, int(length))
	}
	to := w.to
	if w.gz != nil {
		w.gz.Reset(w.to)
		to = w.gz
	}
	if _, err := to.Write(head); err != nil {
		return err
	}
	if length > 0 {
		n, err := io.CopyBuffer(to, io.LimitReader(block, length), w.copied)
		if err != nil {
			return err
		}
		if n < length {
			return shortBlock(n, length)
		}
	}
	if _, err := io.WriteString(to, recordEnd); err != nil {
		return err
	}
	if w.gz != nil {
		if err := w.gz.Close(); err != nil {
			return err
		}
	}
	return w.flush()
}

// store writes a record as one stored block of deflate (RFC 1951 section 3.2.4) in a member of gzip
// (RFC 1952).
func (w *Writer) store(head []byte, block io.Reader, length int) error {
	const start = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + "\x01"
	n := len(head) + length + len(recordEnd)
	b := append(w.copied[:0], start...)
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	b = binary.LittleEndian.AppendUint16(b, ^uint16(n))
	record := len(b)
	b = append(b, head...)
	b = slices.Grow(b, length+len(recordEnd)+8)
	body := b[len(b) : len(b)+length]
	switch got, err := io.ReadFull(block, body); {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return shortBlock(int64(got), int64(length))
	case err != nil:
		return err
	}
	b = append(b[:len(b)+length], recordEnd...)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[record:]))
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	w.copied = b[:cap(b)]
	if _, err := w.to.Write(b); err != nil {
		return err
	}
	return w.flush()
}

func shortBlock(got, length int64) error {
	return fmt.Errorf("the block has %d of %d bytes: %w", got, length, io.ErrUnexpectedEOF)
}

func (w *Writer) flush() error {
	if w.to == w.buffer {
		return w.buffer.Flush()
	}
	return nil
}

// recordEnd follows every block.
const recordEnd = "\r\n\r\n"

// counter counts the bytes that were written to a writer.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
