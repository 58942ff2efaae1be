//go:build linux

package limits

import (
	"bytes"
	"math/rand/v2"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// windows returns, for each coding, the start of a body with a window of 8 MiB that decodes
// to more than that. It is about a thirtieth of that on the wire, and far from fetchd's
// limit on the ratio.
var windows = sync.OnceValue(func() map[string][]byte {
	const window, decoded, record, noise = 8 << 20, 9 << 20, 4 << 10, 128
	source := rand.NewChaCha8([32]byte{})
	text := make([]byte, decoded)
	for at := 0; at < decoded; at += record {
		_, _ = source.Read(text[at : at+noise]) // never fails
	}
	var z, b bytes.Buffer
	zw, err := zstd.NewWriter(&z, zstd.WithWindowSize(window), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(err)
	}
	bw := brotli.NewWriterOptions(&b, brotli.WriterOptions{Quality: 1, LGWin: 23})
	for _, w := range []interface {
		Write([]byte) (int, error)
		Flush() error
	}{zw, bw} {
		if _, err := w.Write(text); err != nil {
			panic(err)
		}
		if err := w.Flush(); err != nil {
			panic(err)
		}
	}
	return map[string][]byte{"zstd": z.Bytes(), "br": b.Bytes()}
})
