package coding

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/bits"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// A body in gzip or zstd is a sequence of parts. Bytes that do not begin another part are behind the
// coded data. They are ignored, as in curl, urllib3 and browsers (spec B6).

var (
	gzipMagic = []byte{0x1f, 0x8b, 8} // RFC 1952 §2.3.1, with the only method that it has
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	skipMagic = []byte{0x2a, 0x4d, 0x18} // behind 0x50 to 0x5f (RFC 8878 §3.1.2)
)

var errGzip = errors.New("gzip: invalid header or checksum")

// gzipReader reads the members of a gzip body. The standard library's reader has a limit for the
// lengths of file names and comments, and RFC 1952 has none.
type gzipReader struct {
	in        *bufio.Reader
	data      inflater // nil: no header has been read
	sum, size uint32   // of the current member
}

// inflater is a reader of flate that can be used again.
type inflater interface {
	io.Reader
	flate.Resetter
}

// Read implements io.Reader.
func (z *gzipReader) Read(p []byte) (int, error) {
	if z.data == nil {
		if err := z.start(); err != nil {
			return 0, err
		}
		z.data, _ = flate.NewReader(z.in).(inflater)
	}
	for {
		n, err := z.data.Read(p)
		z.sum, z.size = crc32.Update(z.sum, crc32.IEEETable, p[:n]), z.size+uint32(n)
		if errors.Is(err, io.EOF) {
			err = z.next()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// next reads the end of a member, and the header of the next one. It returns io.EOF if none follows.
func (z *gzipReader) next() error {
	var end [8]byte
	if _, err := io.ReadFull(z.in, end[:]); err != nil {
		return noEOF(err)
	}
	if binary.LittleEndian.Uint32(end[:4]) != z.sum || binary.LittleEndian.Uint32(end[4:]) != z.size {
		return errGzip
	}
	if head, _ := z.in.Peek(len(gzipMagic)); len(head) == 0 || !bytes.HasPrefix(gzipMagic, head) {
		return io.EOF
	}
	if err := z.start(); err != nil {
		return err
	}
	z.sum, z.size = 0, 0
	return z.data.Reset(z.in, nil)
}

// start reads the header of a member (RFC 1952 §2.3). It stores none of its fields.
func (z *gzipReader) start() error {
	const hcrc, extra, strings = 1 << 1, 1 << 2, 1<<3 | 1<<4
	sum := crc32.NewIEEE()
	in := io.TeeReader(z.in, sum)
	var head [10]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return noEOF(err)
	}
	if !bytes.HasPrefix(head[:], gzipMagic) {
		return errGzip
	}
	flags := head[3]
	if flags&extra != 0 {
		if _, err := io.ReadFull(in, head[:2]); err != nil {
			return noEOF(err)
		}
		if _, err := io.CopyN(io.Discard, in, int64(binary.LittleEndian.Uint16(head[:]))); err != nil {
			return noEOF(err)
		}
	}
	for range bits.OnesCount8(flags & strings) {
		for err := bufio.ErrBufferFull; err != nil; {
			var piece []byte
			piece, err = z.in.ReadSlice(0)
			_, _ = sum.Write(piece)
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return noEOF(err)
			}
		}
	}
	if want := uint16(sum.Sum32()); flags&hcrc != 0 {
		if _, err := io.ReadFull(in, head[:2]); err != nil {
			return noEOF(err)
		}
		if binary.LittleEndian.Uint16(head[:]) != want {
			return errGzip
		}
	}
	return nil
}

// noEOF returns the error for an end within a part.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// zstdFrames reads the bytes of the frames of a zstd body. A decoder would read on behind them.
type zstdFrames struct {
	in      *bufio.Reader
	left    int64 // bytes that are read without another look
	later   bool  // a frame has been read
	inFrame bool  // a block follows
	sum     int64 // bytes behind the last block
}

// Read implements io.Reader.
func (z *zstdFrames) Read(p []byte) (int, error) {
	if z.left == 0 && !z.look() {
		return 0, io.EOF
	}
	n, err := z.in.Read(p[:min(int64(len(p)), z.left)])
	z.left -= int64(n)
	return n, err
}

// look finds the length of the next header or block (RFC 8878 §3.1.1). It reports whether there
// is one. It leaves to the decoder whatever is invalid.
func (z *zstdFrames) look() bool {
	if !z.inFrame {
		return z.lookAtFrame()
	}
	z.left = math.MaxInt64
	head, err := z.in.Peek(3)
	if err != nil {
		return true
	}
	header := int64(head[0]) | int64(head[1])<<8 | int64(head[2])<<16
	z.left = 3 + header>>3
	if header>>1&3 == 1 { // one byte that is repeated
		z.left = 3 + 1
	}
	if header&1 == 1 {
		z.left, z.inFrame = z.left+z.sum, false
	}
	return true
}

func (z *zstdFrames) lookAtFrame() bool {
	h, head, err := zstdHeader(z.in)
	if z.later && !startsFrame(head) {
		return false
	}
	z.later, z.left, z.inFrame, z.sum = true, int64(h.HeaderSize)+int64(h.SkippableSize), !h.Skippable, 0
	if h.HasCheckSum {
		z.sum = 4
	}
	if err != nil {
		z.left = math.MaxInt64
	}
	return true
}

// startsFrame reports whether bytes are the start of a zstd frame, or a part of that.
func startsFrame(head []byte) bool {
	head = head[:min(len(head), len(zstdMagic))]
	return len(head) > 0 && (bytes.HasPrefix(zstdMagic, head) || head[0]&0xf0 == 0x50 && bytes.HasPrefix(skipMagic, head[1:]))
}

// zstdHeader reads ahead to the end of the header of a frame. It returns the bytes that it saw too.
func zstdHeader(r *bufio.Reader) (h zstd.Header, head []byte, err error) {
	for n := max(r.Buffered(), 1); ; n++ {
		var end error
		head, end = r.Peek(n)
		if err = h.Decode(head); !errors.Is(err, io.ErrUnexpectedEOF) || end != nil || n >= zstd.HeaderMaxSize {
			return h, head, err
		}
	}
}

// errBehindBrotli is the decoder's error for bytes behind a brotli stream. The package does not export it.
var errBehindBrotli = func() error {
	_, err := io.ReadAll(brotli.NewReader(bytes.NewReader([]byte{6, 0}))) // an empty stream, and one byte
	return err
}()
