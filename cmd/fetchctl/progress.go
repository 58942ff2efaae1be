package main

import (
	"fmt"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// redrawAfter is the least time between two drawings.
const redrawAfter = 100 * time.Millisecond

// progress is one line of a terminal that is drawn again and again. The zero
// value draws nothing. It has no clock: it goes by the times of the events.
type progress struct {
	on      bool
	out     *cli.Printer
	columns int

	shown bool
	total int64         // of the whole body; 0 or less: not known
	begun time.Duration // of the body, from the begin of the fetch
	drawn time.Duration // last
}

// say draws a text.
func (p *progress) say(text string) {
	if !p.on {
		return
	}
	p.out.Printf("\r\x1b[K%s", cut(text, p.columns-1)) // a full line would wrap
	p.shown = true
}

// clear takes the line away, so that another can stand there.
func (p *progress) clear() {
	if p.shown {
		p.out.Printf("\r\x1b[K")
		p.shown = false
	}
}

// start begins a body.
func (p *progress) start(r *pb.HttpResponse) {
	p.total, p.begun, p.drawn = totalOf(r), 0, 0
}

// chunk tells how far the body has come: bytes, total if known, rate.
func (p *progress) chunk(c *pb.BodyChunk, now time.Duration) {
	if p.begun == 0 {
		p.begun = now
	}
	if now-p.drawn < redrawAfter {
		return
	}
	p.drawn = now
	n := c.GetOffsetBytes() + int64(len(c.GetData()))
	text := size(n)
	if p.total > 0 {
		text += fmt.Sprintf(" of %s  %d %%", size(p.total), n*100/p.total)
	}
	if spent := now - p.begun; spent > 0 {
		text += fmt.Sprintf("  %s/s", size(int64(float64(n)/spent.Seconds())))
	}
	p.say(text)
}

// codingOf is the content coding that a response names.
func codingOf(r *pb.HttpResponse) string {
	for _, h := range r.GetHeaders() {
		if h.GetName() == "Content-Encoding" {
			return h.GetValue()
		}
	}
	return ""
}
