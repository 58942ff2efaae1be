package show

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// redrawAfter is the minimum time between two drawings.
const redrawAfter = 100 * time.Millisecond

// Progress is a line on a terminal that is redrawn again and again. The zero value draws
// nothing. It has no clock, and uses the times of the events.
type Progress struct {
	On      bool
	Waits   bool // [Progress.Wait] draws
	Out     *cli.Printer
	Columns int

	shown bool
	first int64         // bytes before the first event of the body
	total int64         // size of the complete body; 0 or less if unknown
	begun time.Duration // start of the body, since the start of the fetch
	drawn time.Duration // last drawing
}

// say draws a text.
func (p *Progress) say(text string) {
	if !p.On {
		return
	}
	p.draw(text)
}

// draw draws a text, whether or not the line is on.
func (p *Progress) draw(text string) {
	p.Out.Printf("\r%s\x1b[K", cut(text, p.Columns-1)) // a full line would wrap
	p.shown = true
}

// Clear removes the line, so that other text can be written. A nil Progress has none.
func (p *Progress) Clear() {
	if p != nil && p.shown {
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
		p.begun, p.first = now, n
	}
	if now-p.drawn < redrawAfter {
		return
	}
	p.drawn = now
	p.say(label + Gauge(p.Columns-1-utf8.RuneCountInString(label), n, p.total, n-p.first, now-p.begun))
}

// Gauge formats how far something is in the given number of columns:
//
//	[=====     ]  48 %  3.4 MiB of 7.1 MiB  1.2 MiB/s  3s left
//
// The first at bytes of total are there, and received of them took spent. The total is zero or
// less if it is not known: then there is no bar. The text is longer than columns if they are too
// few for the numbers.
func Gauge(columns int, at, total, received int64, spent time.Duration) string {
	text := Size(at)
	if total > 0 {
		text = fmt.Sprintf("%3d %%  %s of %s", min(at, total)*100/total, text, Size(total))
	}
	if received > 0 && spent > 0 {
		text += fmt.Sprintf("  %s/s", Size(int64(float64(received)/spent.Seconds())))
		if total > at {
			left := time.Duration(float64(total-at) / float64(received) * float64(spent))
			text += fmt.Sprintf("  %s left", max(left.Round(time.Second), time.Second))
		}
	}
	const leastBar, mostBar, frame = 5, 20, 4
	cells := min(columns-len(text)-frame, mostBar)
	if total <= 0 || cells < leastBar {
		return text
	}
	full := int(float64(min(at, total)) / float64(total) * float64(cells))
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", cells-full) + "] " + text
}
