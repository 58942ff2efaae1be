package coding

import (
	"bufio"
	"errors"
	"io"
	"math/bits"
	"reflect"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
)

// The memory of decoders without their windows, in bytes, measured with the versions in
// go.mod.
const (
	flateBytes  = 64 << 10
	brotliBytes = 128 << 10 // without its prefix codes: see brotliReader
	zstdBytes   = 32 << 10
	zstdBlock   = 128 << 10 // the longest block, never longer than the window
	zstdBlocks  = 6         // buffers of one block
)

// MaxWindowBytes is the largest window of a content coding (spec §12).
const MaxWindowBytes = 8 << 20

var errWindow = fault.New(classify.BodyTooLarge, classify.PhaseTransfer, "decompression_window")

// window is the memory that a coded body needs, according to its first bytes.
type window struct {
	held  int64  // bytes
	limit uint64 // largest window of this and later zstd frames
}

// windowOf reads ahead as far as it must to learn the window. The decoder rejects a
// body with an invalid start.
func windowOf(r *bufio.Reader, coding string) (window, error) {
	switch coding {
	case "br":
		return brotliWindow(r)
	case "zstd":
		return zstdWindow(r)
	}
	return window{held: flateBytes}, nil
}

// zstdWindow reads the header of the first frame (RFC 8878 §3.1.1.1). Later frames may
// not have a larger window, unless the first frame is skippable.
func zstdWindow(r *bufio.Reader) (window, error) {
	h, _, _ := zstdHeader(r)
	size := h.WindowSize
	switch {
	case h.Skippable:
		size = MaxWindowBytes
	case h.SingleSegment:
		size = h.FrameContentSize
	}
	if size > MaxWindowBytes {
		return window{}, errWindow
	}
	return window{held: int64(size) + zstdBlocks*min(int64(size), zstdBlock) + zstdBytes, limit: max(size, zstd.MinWindowSize)}, nil
}

// brotliWindow reads the header of the stream (RFC 7932 §9.1). It refuses windows over
// the limit, which the decoder would allocate. The decoder allocates only what the rest
// of the body needs, if it knows that. So the length of a body that is a single
// meta-block counts (§9.2).
func brotliWindow(r *bufio.Reader) (window, error) {
	const longest = 5 // bytes up to the length of the first meta-block
	head, _ := r.Peek(1)
	size := brotliWindowBits(head[0])
	if size > bits.Len(MaxWindowBytes-1) {
		return window{}, errWindow
	}
	held := int64(1) << size
	if head, err := r.Peek(longest); err == nil {
		if n := onlyMetaBlock(head); n > 0 {
			held = min(held, 1<<bits.Len64(n))
		}
	}
	return window{held: held + brotliBytes}, nil
}

// brotliReader charges the prefix codes of its decoder. A stream of a kilobyte can have
// codes of 2.7 MiB without announcing them, so they are charged once they exist.
type brotliReader struct {
	*brotli.Reader
	memory Memory
	codes  [3]reflect.Value // slices of 4-byte elements
	held   int64
}

func newBrotliReader(r io.Reader, memory Memory) *brotliReader {
	b := &brotliReader{Reader: brotli.NewReader(r), memory: memory}
	state := reflect.ValueOf(b.Reader).Elem()
	for i, group := range []string{"literal_hgroup", "insert_copy_hgroup", "distance_hgroup"} {
		b.codes[i] = state.FieldByName(group).FieldByName("codes")
	}
	return b
}

// Read implements io.Reader.
func (b *brotliReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, errBehindBrotli) {
		err = io.EOF
	}
	more := -b.held
	for _, codes := range b.codes {
		more += 4 * int64(codes.Cap())
	}
	if !b.memory.Grow(budget.Decoder, more) {
		return n, fault.OutOfMemory
	}
	b.held += more
	return n, err
}

func (b *brotliReader) close() { b.memory.Shrink(budget.Decoder, b.held) }

// onlyMetaBlock returns the length of the first meta-block of a brotli stream if it is
// the last one, and 0 otherwise.
func onlyMetaBlock(head []byte) uint64 {
	var all uint64
	for i, b := range head {
		all |= uint64(b) << (8 * i)
	}
	take := func(n int) uint64 {
		v := all & (1<<n - 1)
		all >>= n
		return v
	}
	if take(1) == 1 && take(3) == 0 {
		take(3)
	}
	if last, empty := take(1), take(1); last == 0 || empty == 1 {
		return 0
	}
	nibbles := take(2)
	if nibbles == 3 { // metadata
		return 0
	}
	return take(int(16+4*nibbles)) + 1
}

func brotliWindowBits(b byte) int {
	switch {
	case b&1 == 0:
		return 16
	case b>>1&7 != 0:
		return 17 + int(b>>1&7)
	case b>>4&7 == 0:
		return 17
	case b>>4&7 == 1:
		return 64 // the large-window form, not of RFC 7932
	}
	return 8 + int(b>>4&7)
}
