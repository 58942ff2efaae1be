package get

import (
	"io"
	"os"
	"strings"

	"fetchd/cmd/fetchctl/show"
	"fetchd/internal/cli"
)

// splitLines makes everything that is written to std.Err begin on a new line if standard
// output is the same terminal, because a body there may end without a line end. Only one
// goroutine at a time may then use the two streams.
func splitLines(std cli.Streams) cli.Streams {
	out, isFile := std.Out.(*os.File)
	err, both := std.Err.(*os.File)
	if !isFile || !both || !sameTerminal(out, err) {
		return std
	}
	body := &bodyOnTerminal{file: out}
	std.Out, std.Err = body, &linesOnTerminal{file: err, body: body}
	return std
}

func sameTerminal(a, b *os.File) bool {
	if !cli.IsTerminal(a) || !cli.IsTerminal(b) {
		return false
	}
	first, err := a.Stat()
	if err != nil {
		return false
	}
	second, err := b.Stat()
	return err == nil && os.SameFile(first, second)
}

// bodyOnTerminal is standard output.
type bodyOnTerminal struct {
	file   *os.File
	inLine bool // the last byte was not a line end
}

// Fd makes it a terminal for [cli.IsTerminal].
func (b *bodyOnTerminal) Fd() uintptr { return b.file.Fd() }

// Write implements io.Writer.
func (b *bodyOnTerminal) Write(p []byte) (int, error) {
	n, err := b.file.Write(p)
	if n > 0 {
		b.inLine = p[n-1] != '\n'
	}
	return n, err
}

// linesOnTerminal is standard error.
type linesOnTerminal struct {
	file *os.File
	body *bodyOnTerminal
}

// Fd makes it a terminal for [cli.IsTerminal].
func (l *linesOnTerminal) Fd() uintptr { return l.file.Fd() }

// Write implements io.Writer.
func (l *linesOnTerminal) Write(p []byte) (int, error) {
	if l.body.inLine {
		if _, err := l.file.Write([]byte("\n")); err != nil {
			return 0, err
		}
		l.body.inLine = false
	}
	return l.file.Write(p)
}

// terminalWriter writes a body to a terminal, and escapes control characters.
type terminalWriter struct {
	w    io.Writer
	rest []byte // an incomplete character or line end
}

// Write implements io.Writer.
func (t *terminalWriter) Write(p []byte) (int, error) {
	text := append(t.rest, p...)
	whole := show.WholeRunes(text)
	lines := strings.ReplaceAll(string(text[:whole]), "\r\n", "\n")
	out := cli.AppendEscaped(nil, lines, func(r rune) bool { return r == '\n' || r == '\t' })
	t.rest = append([]byte(nil), text[whole:]...)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes the rest of a body that ends within a character.
func (t *terminalWriter) flush() error {
	_, err := t.w.Write(cli.AppendEscaped(nil, string(t.rest), func(rune) bool { return false }))
	t.rest = nil
	return err
}
