package main

import (
	"bytes"
	"testing"
)

// A body reaches a terminal whole however it was cut into pieces.
func TestTerminalWriter(t *testing.T) {
	t.Parallel()
	const text = "grüße\r\n\tcut\x1b[31m\r漢\xff\nend \xe6\xbc"
	const want = "grüße\n\tcut\\x1b[31m\\r漢\\xff\nend \\xe6\\xbc"
	for piece := 1; piece <= len(text); piece++ {
		var out bytes.Buffer
		w := &terminalWriter{w: &out}
		for rest := []byte(text); len(rest) > 0; {
			n := min(piece, len(rest))
			if wrote, err := w.Write(rest[:n]); err != nil || wrote != n {
				t.Fatalf("Write of %d bytes: %d, %v", n, wrote, err)
			}
			rest = rest[n:]
		}
		must(t, w.flush())
		if got := out.String(); got != want {
			t.Errorf("in pieces of %d: %q, want %q", piece, got, want)
		}
	}
}

func TestByteSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want byteSize
		bad  bool
	}{
		{in: "0"}, {in: "1000", want: 1000}, {in: "500kB", want: 500_000}, {in: "16MiB", want: 16 << 20},
		{in: "1.5K", want: 1536}, {in: "1 GB", want: 1e9},
		{in: "", bad: true}, {in: "MiB", bad: true}, {in: "-1", bad: true}, {in: "1X", bad: true}, {in: "9e99", bad: true},
		{in: "99999999999999TB", bad: true},
	} {
		var got byteSize
		if err := got.UnmarshalText([]byte(tt.in)); (err != nil) != tt.bad || got != tt.want {
			t.Errorf("UnmarshalText(%q) = %d, %v; want %d, error %t", tt.in, got, err, tt.want, tt.bad)
		}
	}
}
