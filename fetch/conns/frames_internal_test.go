package conns

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// FuzzFrameHeads checks that the heads of frames are found in whatever pieces the bytes arrive.
func FuzzFrameHeads(f *testing.F) {
	var b bytes.Buffer
	framer := http2.NewFramer(&b, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14}) // into memory, as what follows
	_ = framer.WriteGoAway(1<<31-1, http2.ErrCodeNo, []byte("soon"))
	_ = framer.WriteData(1, true, make([]byte, 40))
	_ = framer.WriteGoAway(1, http2.ErrCodeNo, nil)
	_ = framer.WriteRawFrame(http2.FrameGoAway, 0, 0, []byte{1, 2, 3})
	f.Add(b.Bytes(), uint8(3))
	f.Add([]byte{0xff, 0xff, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 9}, uint8(1))
	f.Fuzz(func(t *testing.T, p []byte, size uint8) {
		var want []string
		for rest := p; len(rest) >= frameHeadBytes; {
			n, length := frameHeadBytes, int(rest[0])<<16|int(rest[1])<<8|int(rest[2])
			if rest[3] == byte(http2.FrameGoAway) && length >= 4 {
				n = goAwayHeadBytes
			}
			if len(rest) < n {
				break
			}
			want = append(want, string(rest[:n]))
			rest = rest[min(frameHeadBytes+length, len(rest)):]
		}
		var got []string
		var h frameHeads
		for piece := range slices.Chunk(p, int(size)+1) {
			for h.next(&piece) {
				n := frameHeadBytes
				if h.isGoAway() {
					n = goAwayHeadBytes
				}
				got = append(got, string(h.head[:n]))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("heads %q, want %q", got, want)
		}
	})
}
