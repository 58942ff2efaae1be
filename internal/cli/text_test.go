package cli_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"fetchd/internal/cli"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "a b~", "a b~"},
		{"letters of other scripts", "grüße 漢字", "grüße 漢字"},
		{"escape sequence", "\x1b[2Jx", `\x1b[2Jx`},
		{"C1 control", "a\u009bb", `a\u009bb`},
		{"line end", "a\r\nb", `a\r\nb`},
		{"direction override", "a\u202eb", `a\u202eb`},
		{"invalid byte", "a\xffb", `a\xffb`},
		{"DEL and NUL", "\x7f\x00", `\x7f\x00`},
	} {
		if got := cli.Escape(tt.in); got != tt.want {
			t.Errorf("%s: Escape(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// FuzzEscape: no byte of an origin steers a terminal.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x1b]0;x\a", "\u202e", "\xc2", "é\r\n\t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := cli.Escape(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("Escape(%q) = %q", s, got)
		}
	})
}
