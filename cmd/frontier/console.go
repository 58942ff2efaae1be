package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"fetchd/internal/cli"

	"golang.org/x/term"
)

// console is standard error while a run tells of its progress there: on a
// terminal a line at the bottom is drawn anew, and whatever else is written goes
// above it. It is safe for concurrent use. What cannot be written is lost.
type console struct {
	terminal bool // draw is of use

	mu    sync.Mutex
	w     io.Writer
	drawn bool
}

// newConsole writes to w, and draws if w is a terminal that can.
func newConsole(w io.Writer, env func(string) string) *console {
	return &console{terminal: cli.IsTerminal(w) && env("TERM") != "dumb", w: w}
}

// Write implements io.Writer.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	return c.w.Write(p)
}

// printf writes lines of their own.
func (c *console) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(c, format, args...) // nobody to tell
}

// draw puts text in place of the line that was drawn last, and cuts it to the
// terminal's width: a longer one could not be erased.
func (c *console) draw(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.erase()
	text = text[:min(len(text), columns(c.w)-1)] // the last column makes some terminals go on
	_, _ = io.WriteString(c.w, text)             // nobody to tell
	c.drawn = true
}

// erase takes the drawn line off.
func (c *console) erase() {
	if c.drawn {
		_, _ = io.WriteString(c.w, "\r\x1b[K") // nobody to tell
		c.drawn = false
	}
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
