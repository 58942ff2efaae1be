package main

import (
	"fmt"
	"io"
	"sync"

	"fetchd/internal/cli"
)

// console is the standard error of a run. On a terminal it shows the progress in its last line, and
// prints everything else above it. It is safe for concurrent use and ignores write errors.
type console struct {
	terminal bool // draw works

	mu    sync.Mutex
	w     io.Writer
	drawn bool
}

// newConsole returns a console on w. It can draw if w is a terminal that is not dumb.
func newConsole(w io.Writer, env func(string) string) *console {
	return &console{terminal: cli.IsTerminal(w) && env("TERM") != "dumb", w: w}
}

// Write implements io.Writer.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseLocked()
	return c.w.Write(p)
}

// Printf prints complete lines.
func (c *console) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(c, format, args...) // a failed write cannot be reported
}

// draw replaces the last line by text. It truncates text to the width of the terminal, because a
// longer line could not be erased.
func (c *console) draw(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eraseLocked()
	columns, _ := cli.TerminalSize(c.w)
	text = text[:min(len(text), columns-1)] // some terminals wrap after the last column
	_, _ = io.WriteString(c.w, text)        // a failed write cannot be reported
	c.drawn = true
}

// eraseLocked removes the drawn line.
func (c *console) eraseLocked() {
	if c.drawn {
		_, _ = io.WriteString(c.w, "\r\x1b[K") // a failed write cannot be reported
		c.drawn = false
	}
}
