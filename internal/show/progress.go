package show

import (
	"fmt"
	"time"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// redrawAfter is the minimum time between two drawings.
const redrawAfter = 100 * time.Millisecond

// Progress is a line on a terminal that is redrawn again and again. The zero value draws
// nothing. It has no clock, and uses the times of the events.
type Progress struct {
	On      bool
	Out     *cli.Printer
	Columns int

	shown bool
	total int64         // size of the complete body; 0 or less if unknown
	begun time.Duration // start of the body, since the start of the fetch
	drawn time.Duration // last drawing
}

// say draws a text.
func (p *Progress) say(text string) {
	if !p.On {
		return
	}
	p.Out.Printf("\r\x1b[K%s", cut(text, p.Columns-1)) // a full line would wrap
	p.shown = true
}

// Clear removes the line, so that other text can be written.
func (p *Progress) Clear() {
	if p.shown {
		p.Out.Printf("\r\x1b[K")
		p.shown = false
	}
}

// start starts a body.
func (p *Progress) start(r *pb.HttpResponse) {
	p.Start(TotalOf(r))
}

// Start starts something of total bytes, which is zero or less if that is not known.
func (p *Progress) Start(total int64) { p.total, p.begun, p.drawn = total, 0, 0 }

// chunk draws how far the body is.
func (p *Progress) chunk(c *pb.BodyChunk, now time.Duration) {
	p.Bytes("", c.GetOffsetBytes()+int64(len(c.GetData())), now)
}

// Bytes draws a label and how many bytes there are so far, the total if it is known, and the rate.
// The label must be safe to print.
func (p *Progress) Bytes(label string, n int64, now time.Duration) {
	if p.begun == 0 {
		p.begun = now
	}
	if now-p.drawn < redrawAfter {
		return
	}
	p.drawn = now
	text := label + Size(n)
	if p.total > 0 {
		text += fmt.Sprintf(" of %s  %d %%", Size(p.total), n*100/p.total)
	}
	if spent := now - p.begun; spent > 0 {
		text += fmt.Sprintf("  %s/s", Size(int64(float64(n)/spent.Seconds())))
	}
	p.say(text)
}

// CodingOf returns the Content-Encoding of a response.
func CodingOf(r *pb.HttpResponse) string {
	for _, h := range r.GetHeaders() {
		if h.GetName() == "Content-Encoding" {
			return h.GetValue()
		}
	}
	return ""
}
