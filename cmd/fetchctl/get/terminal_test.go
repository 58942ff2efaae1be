package get

import (
	"bytes"
	"testing"

	"fetchd/test/clitest"
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
		clitest.Must(t, w.flush())
		if got := out.String(); got != want {
			t.Errorf("in pieces of %d: %q, want %q", piece, got, want)
		}
	}
}
