package stores

import (
	"errors"
	"io"
	"sync"

	"fetchd/internal/budget"
)

const (
	pieceSize = 64 << 10
	partSize  = 5 << 20 // the smallest part that S3 accepts, except for the last one
)

type piece [pieceSize]byte

// pieces are reused, because each part needs up to 80 of them. A piece in the pool is not charged:
// the next two garbage collections free it.
var pieces = sync.Pool{New: func() any { return new(piece) }}

// part is the part of an object that is written or sent. It holds as many pieces as it has bytes.
// It is an io.ReadSeeker of what was written.
type part struct {
	memory *budget.Lease
	pieces []*piece
	size   int
	read   int // offset of the next Read
}

// space returns memory for the next bytes of a part that is not full. A piece is charged before it
// is held. The error is [budget.ErrRefused].
func (b *part) space() ([]byte, error) {
	if b.size == len(b.pieces)*pieceSize {
		if !b.memory.Grow(budget.Body, pieceSize) {
			return nil, budget.ErrRefused
		}
		free, _ := pieces.Get().(*piece)
		b.pieces = append(b.pieces, free)
	}
	return b.pieces[b.size/pieceSize][b.size%pieceSize:], nil
}

// next returns the next bytes to read, up to the end of their piece.
func (b *part) next() []byte {
	at := b.read / pieceSize
	if at == len(b.pieces) {
		return nil
	}
	return b.pieces[at][b.read%pieceSize : min(pieceSize, b.size-at*pieceSize)]
}

// Read implements io.Reader.
func (b *part) Read(p []byte) (int, error) {
	n := copy(p, b.next())
	b.read += n
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo implements io.WriterTo. The SDK hashes the part with it, which saves a copy.
func (b *part) WriteTo(w io.Writer) (sum int64, err error) {
	for b.read < b.size && err == nil {
		var n int
		n, err = w.Write(b.next())
		b.read += n
		sum += int64(n)
	}
	return sum, err
}

// Seek implements io.Seeker.
func (b *part) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += int64(b.read)
	case io.SeekEnd:
		offset += int64(b.size)
	}
	if offset < 0 || offset > int64(b.size) {
		return 0, errors.New("seek outside of the part")
	}
	b.read = int(offset)
	return offset, nil
}

// reset drops what was written.
func (b *part) reset() {
	for i, free := range b.pieces {
		pieces.Put(free)
		b.pieces[i] = nil
	}
	b.memory.Shrink(budget.Body, int64(len(b.pieces))*pieceSize)
	b.pieces, b.size, b.read = b.pieces[:0], 0, 0
}
