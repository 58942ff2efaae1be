package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// isTerminal tells whether w is one.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columns is the width of the terminal w, or 80.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// rows is the height of the terminal w, or 24.
func rows(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			return height
		}
	}
	return 24
}

// color is an SGR parameter.
type color string

const (
	bold   color = "1"
	dim    color = "2"
	red    color = "31"
	green  color = "32"
	yellow color = "33"
)

// painter colors text, or does not. The zero value does not.
type painter bool

// painterFor colors where w is a terminal that is not told otherwise
// (https://no-color.org).
func (a *app) painterFor(w io.Writer) painter {
	return painter(isTerminal(w) && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb")
}

func (p painter) paint(c color, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// terminalWriter writes a body to a terminal: text as it is, what could steer
// the terminal escaped.
type terminalWriter struct {
	w    io.Writer
	rest []byte // the begin of a character or a line end whose end is still to come
}

// Write implements io.Writer.
func (t *terminalWriter) Write(p []byte) (int, error) {
	text := append(t.rest, p...)
	whole := wholeRunes(text)
	lines := strings.ReplaceAll(string(text[:whole]), "\r\n", "\n")
	out := appendEscaped(nil, lines, func(r rune) bool { return r == '\n' || r == '\t' })
	t.rest = append([]byte(nil), text[whole:]...)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes what was left of a body that ends inside a character.
func (t *terminalWriter) flush() error {
	_, err := t.w.Write(appendEscaped(nil, string(t.rest), func(rune) bool { return false }))
	t.rest = nil
	return err
}

// wholeRunes is the length of b without an unfinished character or line end.
func wholeRunes(b []byte) int {
	if len(b) > 0 && b[len(b)-1] == '\r' {
		return len(b) - 1
	}
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}
