package main

import (
	"fmt"
	"time"

	"fetchd/internal/cli"
)

const (
	// drawnEvery is the time between two readings on a terminal.
	drawnEvery = time.Second / 2
	// logEvery is the time between two lines of progress without a terminal.
	logEvery = 10 * time.Second
)

// progressLine shows on standard error how far a command has come: in one line of a terminal, or in a line
// now and then.
type progressLine struct {
	err      *cli.Printer
	terminal bool
	started  time.Time
	last     time.Time // when it was shown last
	shown    bool      // the terminal shows it now
}

func newProgressLine(a *app) *progressLine {
	now := time.Now()
	return &progressLine{err: &cli.Printer{W: a.Err}, terminal: cli.IsTerminal(a.Err), started: now, last: now}
}

// show shows that n items, such as "203000 URLs", were done, unless it did so a moment ago.
func (p *progressLine) show(n int64, items string) {
	now := time.Now()
	every := logEvery
	if p.terminal {
		every = drawnEvery
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	text := fmt.Sprintf("%s, %.0f/s", items, float64(n)/now.Sub(p.started).Seconds())
	if !p.terminal {
		p.err.Printf("%s\n", text)
		return
	}
	p.err.Printf("\r\x1b[K%s", text)
	p.shown = true
}

// clear removes the progress from the terminal.
func (p *progressLine) clear() {
	if p.shown {
		p.err.Printf("\r\x1b[K")
		p.shown = false
	}
}
