package progress

import (
	"fmt"
	"io"
	"sync"

	"fetchd/internal/cli"
)

// Console is the standard error of a run. On a terminal it shows the progress in its last line, and
// prints everything else above it. It is safe for concurrent use and ignores write errors.
type Console struct {
	Draws bool // the progress in its last line

	mu    sync.Mutex
	w     io.Writer
	drawn bool
}

// NewConsole returns a console on w. It draws if w is a terminal that is not dumb.
func NewConsole(w io.Writer, env func(string) string) *Console {
	return &Console{Draws: cli.IsTerminal(w) && env("TERM") != "dumb", w: w}
}

// Write implements io.Writer.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseLocked()
	return c.w.Write(p)
}

// Printf prints complete lines.
func (c *Console) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(c, format, args...) // a failed write cannot be reported
}

// draw replaces the last line by text. It truncates text to the width of the terminal, because a
// longer line could not be erased.
func (c *Console) draw(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseLocked()
	columns, _ := cli.TerminalSize(c.w)
	text = text[:min(len(text), columns-1)] // some terminals wrap after the last column
	_, _ = io.WriteString(c.w, text)        // a failed write cannot be reported
	c.drawn = true
}

// eraseLocked removes the drawn line.
func (c *Console) eraseLocked() {
	if c.drawn {
		_, _ = io.WriteString(c.w, "\r\x1b[K") // a failed write cannot be reported
		c.drawn = false
	}
}
