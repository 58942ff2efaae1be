package coding

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"fetchd/classify"
	"fetchd/fetch/fault"
	"fetchd/internal/budget"
	"fetchd/test/must"
)

// bitWriter writes numbers as brotli does, lowest bit first.
type bitWriter struct {
	bytes []byte
	n     int
}

func (w *bitWriter) put(value uint64, size int) {
	for i := range size {
		if w.n%8 == 0 {
			w.bytes = append(w.bytes, 0)
		}
		w.bytes[w.n/8] |= byte(value>>i&1) << (w.n % 8)
		w.n++
	}
}

// manyTrees returns the start of a brotli stream with a window of 1 KiB and the maximum
// number of prefix codes, each of one symbol (RFC 7932 §9.2, §3.4).
func manyTrees() []byte {
	w := new(bitWriter)
	one := func(alphabet int) { w.put(1, 2); w.put(0, 2); w.put(0, alphabet) } // a prefix code of the symbol 0 only
	most := func() { w.put(1, 1); w.put(7, 3); w.put(127, 7) }                 // 256 of something
	w.put(0b0100001, 7)                                                        // WBITS: 10
	w.put(0, 1)                                                                // ISLAST
	w.put(0, 2)                                                                // MNIBBLES: 4
	w.put(1<<16-1, 16)                                                         // MLEN - 1
	w.put(0, 1)                                                                // ISUNCOMPRESSED
	w.put(0, 1)                                                                // NBLTYPESL: 1
	most()                                                                     // NBLTYPESI
	one(9)                                                                     // block types
	one(5)                                                                     // block counts
	w.put(0, 2)                                                                // the first block has one command
	w.put(0, 1)                                                                // NBLTYPESD: 1
	w.put(3, 2)                                                                // NPOSTFIX
	w.put(15, 4)                                                               // NDIRECT >> NPOSTFIX
	w.put(0, 2)                                                                // context mode
	for range 2 {                                                              // literals, then distances
		most()
		w.put(0, 1) // RLEMAX
		one(8)      // the context map: 0 everywhere
		w.put(0, 1) // IMTF
	}
	for range 256 {
		one(8) // literals
	}
	for range 256 {
		one(10) // commands
	}
	for range 256 {
		one(10) // distances: 16 + 120 + 48 << 3 symbols
	}
	return append(w.bytes, make([]byte, 64)...)
}

// patchwork returns a body whose parts differ, so that an encoder gives each part its
// own codes.
func patchwork(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		part := i >> 12
		b[i] = byte(part*37) + byte(random.IntN(2+part%61)&random.IntN(256))
	}
	return b
}

func encodeBrotli(t testing.TB, body []byte, flush int, options brotli.WriterOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	w := brotli.NewWriterOptions(&b, options)
	for len(body) > flush && flush > 0 {
		if _, err := w.Write(body[:flush]); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, w.Flush())
		body = body[flush:]
	}
	return encoded(t, w, &b, body)
}

// TestDecoderMemory measures what decoders hold in the middle of a body, and compares
// it with what they are charged.
func TestDecoderMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	body, long := patchwork(1<<20), noise(9<<20)
	zstdOf := func(n int, options ...zstd.EOption) []byte {
		return encodeZstd(t, body[:n], options...)
	}
	for _, row := range []struct {
		name, coding string
		sent         []byte
	}{
		{"gzip", "gzip", codings[0].encode(t, body[:1<<20])},
		{"deflate", "deflate", codings[2].encode(t, body[:1<<20])},
		{"br, one meta-block", "br", encodeBrotli(t, body[:50_000], 0, brotli.WriterOptions{Quality: 5, LGWin: 22})},
		{"br, a window of 1 KiB", "br", encodeBrotli(t, body[:1<<20], 0, brotli.WriterOptions{Quality: 5, LGWin: 10})},
		{"br, a window of 8 MiB", "br", encodeBrotli(t, long, 0, brotli.WriterOptions{Quality: 2, LGWin: 23})},
		{"br, the best quality", "br", encodeBrotli(t, body[:200_000], 0, brotli.WriterOptions{Quality: 11, LGWin: 18})},
		{"br, the maximum number of codes", "br", manyTrees()},
		{"zstd, single segment", "zstd", zstdOf(60_000, zstd.WithSingleSegment(true))},
		{"zstd, a window of 1 KiB", "zstd", zstdOf(1<<20, zstd.WithWindowSize(1<<10))},
		{"zstd, a window of 128 KiB", "zstd", zstdOf(1<<20, zstd.WithWindowSize(128<<10))},
		{"zstd, a window of 1 MiB", "zstd", encodeZstd(t, long[:4<<20], zstd.WithWindowSize(1<<20))},
		{"zstd, a window of 8 MiB", "zstd", encodeZstd(t, long, zstd.WithWindowSize(8<<20))},
	} {
		t.Run(row.name, func(t *testing.T) {
			const many = 4
			open := make([]Decoder, many)
			lease := budget.New(1 << 40).Lease("a")
			buf := make([]byte, 32<<10)
			before := heapAlloc()
			for i := range open {
				var err error
				if open[i], err = NewDecoder(&Counter{Reader: bytes.NewReader(row.sent)}, row.coding, lease); err != nil {
					t.Fatal(err)
				}
				for n := 0; n < 9<<20; { // until the window is full or the body almost ends
					m, err := open[i].Read(buf)
					if n += m; err != nil {
						break
					}
				}
			}
			held := int64(heapAlloc()) - int64(before)
			charged := lease.Total()
			if held > charged || charged > 3*held+many*128<<10 {
				t.Errorf("%d bytes are held, %d are charged", held/many, charged/many)
			}
			for i := range open {
				open[i].Close()
			}
			if got := lease.Total(); got != 0 {
				t.Errorf("%d bytes are charged after Close", got)
			}
		})
	}
}

func heapAlloc() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// segmentOf encodes a body as a zstd frame that is a single segment.
func segmentOf(t *testing.T, body []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true), zstd.WithEncoderConcurrency(1))
	must.Succeed(t, err)
	return w.EncodeAll(body, nil)
}

// skipped is a skippable zstd frame.
var skipped = []byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}

// TestWindowOf checks what a body is charged before it is decoded.
func TestWindowOf(t *testing.T) {
	t.Parallel()
	body := noise(300_000)
	segment := func(n int) []byte { return segmentOf(t, body[:n]) }
	frame := func(size int) []byte {
		return encodeZstd(t, body, zstd.WithWindowSize(size), zstd.WithSingleSegment(false))
	}
	br := func(n, flush, window int) []byte {
		return encodeBrotli(t, make([]byte, n), flush, brotli.WriterOptions{Quality: 5, LGWin: window})
	}
	charge := func(size int64) int64 { return size + 6*min(size, 128<<10) + 32<<10 }
	for _, row := range []struct {
		name, coding string
		sent         []byte
		held         int64
		limit        uint64
	}{
		{"gzip", "gzip", codings[0].encode(t, body), 64 << 10, 0},
		{"deflate", "deflate", codings[2].encode(t, body), 64 << 10, 0},
		{"zstd, a segment of 1 KiB", "zstd", segment(1 << 10), charge(1 << 10), 1 << 10},
		{"zstd, a segment of 10 bytes", "zstd", segment(10), charge(10), 1 << 10},
		{"zstd, a segment of 300,000 bytes", "zstd", segment(300_000), charge(300_000), 300_000},
		{"zstd, a window of 1 KiB", "zstd", frame(1 << 10), charge(1 << 10), 1 << 10},
		{"zstd, a window of 8 MiB", "zstd", frame(8 << 20), charge(8 << 20), 8 << 20},
		{"zstd, a skippable frame first", "zstd", append(bytes.Clone(skipped), segment(10)...), charge(8 << 20), 8 << 20},
		{"zstd, no frame", "zstd", []byte("hello, hello, hello"), charge(0), 1 << 10},
		{"zstd, half a header", "zstd", frame(8 << 20)[:5], charge(0), 1 << 10},
		{"br, one meta-block of 100 bytes", "br", br(100, 0, 22), 128 + 128<<10, 0},
		{"br, one meta-block of 60,000 bytes", "br", br(60_000, 0, 22), 1<<16 + 128<<10, 0},
		{"br, one meta-block that is longer than the window", "br", br(60_000, 0, 10), 1<<10 + 128<<10, 0},
		{"br, several meta-blocks", "br", br(60_000, 1000, 22), 4<<20 + 128<<10, 0},
		{"br, less than the length of a meta-block", "br", br(60_000, 0, 22)[:4], 4<<20 + 128<<10, 0},
		{"br, an empty body", "br", []byte{0x06}, 1<<16 + 128<<10, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for name, r := range map[string]io.Reader{"at once": bytes.NewReader(row.sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(row.sent))} {
				buffered := bufio.NewReaderSize(r, 4<<10)
				if _, err := buffered.Peek(1); err != nil {
					t.Fatal(err)
				}
				w, err := windowOf(buffered, row.coding)
				if err != nil || w.held != row.held || w.limit != row.limit {
					t.Errorf("%s: %+v, %v, want %d bytes, limit %d", name, w, err, row.held, row.limit)
				}
				if rest, err := io.ReadAll(buffered); err != nil || !bytes.Equal(rest, row.sent) {
					t.Errorf("%s: %d bytes are left to be decoded, %v, want %d", name, len(rest), err, len(row.sent))
				}
			}
		})
	}
}

// TestLaterFrame checks that a zstd frame may not have a larger window than the one that
// was charged.
func TestLaterFrame(t *testing.T) {
	t.Parallel()
	body := noise(300_000)
	small := segmentOf(t, body[:10])
	frame := func(size int) []byte {
		return encodeZstd(t, body, zstd.WithWindowSize(size), zstd.WithSingleSegment(false))
	}
	for _, row := range []struct {
		name string
		sent [][]byte
		size int // decoded; -1: refused
	}{
		{"a larger one", [][]byte{frame(1 << 10), frame(1 << 11)}, -1},
		{"a segment, then a window", [][]byte{small, frame(8 << 20)}, -1},
		{"a segment, then a longer one", [][]byte{small, segmentOf(t, body)}, -1},
		{"the same", [][]byte{frame(1 << 20), frame(1 << 20)}, 600_000},
		{"a smaller one", [][]byte{frame(1 << 20), frame(1 << 10)}, 600_000},
		{"segments that are smaller than any window", [][]byte{small, small}, 20},
		{"after a skippable frame", [][]byte{skipped, small, frame(8 << 20)}, 300_010},
		{"after a skippable frame, too large", [][]byte{skipped, small, frame(16 << 20)}, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := decode(bytes.NewReader(bytes.Join(row.sent, nil)), "zstd")
			if row.size >= 0 {
				if err != nil || len(got) != row.size {
					t.Errorf("%d bytes, %v, want %d", len(got), err, row.size)
				}
			} else if !errors.Is(err, &fault.Error{Class: classify.BodyTooLarge}) || fault.ReasonOf(err) != "decompression_window" {
				t.Errorf("%d bytes, %v, want BODY_TOO_LARGE, decompression_window", len(got), err)
			}
		})
	}
}

// TestCodesWithoutMemory checks that a body is not decoded if there is no memory for its
// prefix codes, and that its charge is released.
func TestCodesWithoutMemory(t *testing.T) {
	t.Parallel()
	lease := budget.New(1 << 20).Lease("a")
	d, err := NewDecoder(&Counter{Reader: bytes.NewReader(manyTrees())}, "br", lease)
	must.Succeed(t, err)
	if _, err := io.ReadAll(&d); !errors.Is(err, fault.OutOfMemory) {
		t.Errorf("%v, want OUT_OF_MEMORY", err)
	}
	if d.Close(); lease.Total() != 0 {
		t.Errorf("%d bytes are charged after Close", lease.Total())
	}
}

// FuzzWindowOf checks that any input has a window within the limit, and that windowOf
// leaves every byte to the decoder.
func FuzzWindowOf(f *testing.F) {
	for _, c := range codings {
		sent := c.encode(f, []byte("hello, hello"))
		f.Add(c.coding, sent)
		f.Add(c.coding, sent[:1])
	}
	f.Add("br", manyTrees())
	f.Add("br", []byte{0x11, 0, 0})
	f.Add("zstd", append(bytes.Clone(skipped), 0x28, 0xb5, 0x2f, 0xfd, 0xe0, 255, 255, 255, 255, 255, 255, 255, 255))
	f.Fuzz(func(t *testing.T, coding string, sent []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(sent), 4<<10)
		if _, err := r.Peek(1); err != nil {
			return
		}
		w, err := windowOf(r, coding)
		if err == nil && (w.held <= 0 || w.held > MaxWindowBytes+1<<20 || w.limit > MaxWindowBytes) || err != nil && !errors.Is(err, errWindow) {
			t.Errorf("%q: %+v, %v", coding, w, err)
		}
		if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, sent) {
			t.Errorf("%q: %d bytes are left, %v, want %d", coding, len(rest), err, len(sent))
		}
	})
}

// FuzzOnlyMetaBlock checks that a length that onlyMetaBlock returns is that of the whole
// body.
func FuzzOnlyMetaBlock(f *testing.F) {
	for _, n := range []int{0, 1, 100, 1 << 16, 1<<16 + 1, 1 << 20, 1<<20 + 1} {
		f.Add(patchwork(n), uint8(5), uint8(22), uint(0))
		f.Add(patchwork(n), uint8(0), uint8(10), uint(n/2))
		f.Add(make([]byte, n), uint8(9), uint8(23), uint(n/3))
	}
	f.Fuzz(func(t *testing.T, body []byte, quality, window uint8, flush uint) {
		sent := encodeBrotli(t, body, int(flush%(1<<20)), brotli.WriterOptions{Quality: int(quality % 12), LGWin: 10 + int(window%14)})
		if len(sent) < 5 {
			return
		}
		if n := onlyMetaBlock(sent[:5]); n != 0 && n != uint64(len(body)) {
			t.Errorf("one meta-block of %d bytes, want %d", n, len(body))
		}
	})
}
