package cli

import (
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Escape makes text from elsewhere safe for one line of a terminal. Control and format
// characters, invalid bytes and line ends are written as in a Go string.
func Escape(s string) string {
	return string(AppendEscaped(nil, s, func(rune) bool { return false }))
}

// AppendEscaped appends s to dst and escapes it like [Escape], except for runes for which
// keep returns true.
func AppendEscaped(dst []byte, s string, keep func(rune) bool) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, s[i])
		case keep(r) || unicode.IsGraphic(r): // neither Cc nor Cf: no controls, no direction overrides
			dst = append(dst, s[i:i+n]...)
		default:
			quoted := strconv.QuoteRune(r)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		i += n
	}
	return dst
}

// Count formats a number with its noun: "1 URL", "2 URLs".
func Count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// IsTerminal reports whether w, a file or a writer around one, is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Printer writes text. It keeps the first error and then writes nothing more.
type Printer struct {
	W   io.Writer
	Err error // the first error of W
}

// Write implements io.Writer.
func (p *Printer) Write(b []byte) (int, error) {
	if p.Err != nil {
		return 0, p.Err
	}
	var n int
	n, p.Err = p.W.Write(b)
	return n, p.Err
}

// Printf writes formatted text.
func (p *Printer) Printf(format string, args ...any) {
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.W, format, args...)
	}
}

// End returns an [OutputError] if a write failed.
func (p *Printer) End() error {
	if p.Err == nil {
		return nil
	}
	return OutputError(p.Err)
}

// TerminalSize returns the columns and rows of the terminal w, or 80 and 24.
func TerminalSize(w io.Writer) (columns, rows int) {
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}
