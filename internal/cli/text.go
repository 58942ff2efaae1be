package cli

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
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

// Color is an SGR parameter.
type Color string

// The colors and styles that the programs use.
const (
	Bold   Color = "1"
	Dim    Color = "2"
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
)

// Painter colors text if it is true.
type Painter bool

// Painter returns the painter for w. It colors only on a terminal, and respects NO_COLOR
// (https://no-color.org).
func (p *Program) Painter(w io.Writer) Painter {
	return Painter(IsTerminal(w) && p.Env("NO_COLOR") == "" && p.Env("TERM") != "dumb")
}

// Paint returns s in the color c.
func (p Painter) Paint(c Color, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// ByteSize is a number of bytes, written with or without a unit.
type ByteSize int64

// units are decimal and binary units.
var units = map[string]float64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *ByteSize) UnmarshalText(text []byte) error {
	text = bytes.TrimSpace(text)
	end := bytes.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	unit, known := units[strings.ToUpper(string(bytes.TrimSpace(text[end:])))]
	n, err := strconv.ParseFloat(string(text[:end]), 64)
	if err != nil || !known || n*unit > math.MaxInt64/2 {
		return fmt.Errorf("%.20q is not a size: give bytes, or a number with kB, MB, GB, KiB, MiB or GiB", text)
	}
	*s = ByteSize(n * unit)
	return nil
}
