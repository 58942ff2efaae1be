package percent_test

import (
	"strings"
	"testing"

	"fetchd/frontier/percent"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for c, want := range map[byte]string{0: "%00", ' ': "%20", '/': "%2F", 0xab: "%AB", 0xff: "%FF"} {
		var out strings.Builder
		if percent.Escape(&out, c); out.String() != want {
			t.Errorf("Escape(%#x) = %s, want %s", c, out.String(), want)
		}
		if got := string(percent.Append([]byte("x"), c)); got != "x"+want {
			t.Errorf("Append(x, %#x) = %s, want x%s", c, got, want)
		}
	}
}

func TestUnescape(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]byte{"%00": 0, "%2F": '/', "%2f": '/', "%aB": 0xab, "%41B": 'A', "%%41": 0, "%4": 0, "%": 0, "": 0,
		"%4G": 0, "%G4": 0, "%é": 0, "A41": 0, "%-1": 0} {
		c, ok := percent.Unescape(s)
		if c != want || ok != (want != 0 || s == "%00") {
			t.Errorf("Unescape(%q) = %#x, %v; want %#x", s, c, ok, want)
		}
	}
}

func TestUnreserved(t *testing.T) {
	t.Parallel()
	const want = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
	var got []byte
	for c := range 256 {
		if percent.Unreserved(byte(c)) {
			got = append(got, byte(c))
		}
	}
	if string(got) != want {
		t.Errorf("unreserved are %q, want %q", got, want)
	}
}
