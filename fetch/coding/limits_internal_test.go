package coding

import (
	"bytes"
	"errors"
	"strconv"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"fetchd/classify"
	"fetchd/fetch/fault"
)

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
			if err != nil {
				t.Fatal(err)
			}
			if mask := 1<<len(pattern) - 1; b&mask == int(value) {
				want, matches = bits, matches+1
			}
		}
		if got := brotliWindowBits(byte(b)); got != want || matches != 1 {
			t.Errorf("first byte %08b: %d bits, want %d (%d patterns match)", b, got, want, matches)
		}
	}
}
