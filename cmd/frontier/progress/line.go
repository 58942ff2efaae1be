package progress

import (
	"fmt"
	"io"
	"time"

	"fetchd/internal/cli"
)

const (
	// drawnEvery is the time between two readings on a terminal.
	drawnEvery = time.Second / 2
	// logEvery is the time between two lines of progress without a terminal.
	logEvery = 10 * time.Second
)

// Line shows on standard error how far a command has come: in one line of a terminal, or in a line
// now and then.
type Line struct {
	*cli.Printer
	Terminal bool // shown in one line of it
	started  time.Time
	last     time.Time // when it was shown last
	shown    bool      // the terminal shows it now
}

// NewLine returns a line on w, which begins now.
func NewLine(w io.Writer) *Line {
	now := time.Now()
	return &Line{Printer: &cli.Printer{W: w}, Terminal: cli.IsTerminal(w), started: now, last: now}
}

// Show shows that n items, such as "203000 URLs", were done, unless it did so a moment ago.
func (p *Line) Show(n int64, items string) {
	now := time.Now()
	every := logEvery
	if p.Terminal {
		every = drawnEvery
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	text := fmt.Sprintf("%s, %.0f/s", items, float64(n)/now.Sub(p.started).Seconds())
	if !p.Terminal {
		p.Printf("%s\n", text)
		return
	}
	p.Printf("\r\x1b[K%s", text)
	p.shown = true
}

// Clear removes the progress from the terminal.
func (p *Line) Clear() {
	if p.shown {
		p.Printf("\r\x1b[K")
		p.shown = false
	}
}
