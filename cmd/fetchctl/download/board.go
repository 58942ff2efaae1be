package download

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/cmd/fetchctl/show"
	"fetchd/internal/cli"

	"golang.org/x/text/width"
)

// drawEvery is the time between two drawings of the bars.
const drawEvery = 250 * time.Millisecond

// board prints the progress of a run: lines, and on a terminal, below them, a bar for each
// file in flight and one for all files.
type board struct {
	out     *cli.Printer
	paint   cli.Painter
	draws   bool              // bars
	quiet   bool              // only failures are printed
	size    func() (int, int) // columns and rows of the terminal
	files   int
	started time.Time

	mu     sync.Mutex
	lines  bytes.Buffer // not yet on the terminal
	rows   []*track
	drawn  int // rows on the terminal
	ended  int
	before int64 // bytes of files that have ended
	quit   chan struct{}
	wait   sync.WaitGroup
}

// track is the row of a file in flight.
type track struct {
	name           atomic.Pointer[string]
	at, total      atomic.Int64
	from, received atomic.Int64 // offset of the first byte of this run; bytes of this run
	started        time.Time
}

func (r *track) rename(name string) { r.name.Store(&name) }

// set records how far the file is. A file that goes back has started again.
func (r *track) set(at, total int64) {
	before := r.at.Swap(at)
	r.total.Store(total)
	if before < 0 || at < before {
		r.from.Store(at)
		return
	}
	r.received.Add(at - before)
}

// start starts drawing.
func (b *board) start() {
	if !b.draws {
		return
	}
	b.quit = make(chan struct{})
	b.wait.Go(func() {
		tick := time.NewTicker(drawEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.draw()
			case <-b.quit:
				return
			}
		}
	})
}

// end removes the bars. Lines can still be written.
func (b *board) end() {
	if !b.draws {
		return
	}
	close(b.quit)
	b.wait.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows, b.draws = nil, false
	b.show(nil)
}

// add adds a row.
func (b *board) add(name string) *track {
	r := &track{started: time.Now()}
	r.rename(name)
	r.at.Store(-1)
	r.total.Store(-1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = append(b.rows, r)
	return r
}

// remove removes a row.
func (b *board) remove(r *track) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = slices.DeleteFunc(b.rows, func(other *track) bool { return other == r })
	b.ended++
	b.before += r.received.Load()
}

// Write writes a line. If bars are drawn, the line appears with the next drawing.
func (b *board) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draws {
		return b.lines.Write(line)
	}
	return b.out.Write(line)
}

func (b *board) draw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	columns, height := b.size()
	now := time.Now()
	received := b.before
	var bars []string
	for _, r := range b.rows {
		received += r.received.Load()
		if len(bars) < height-2 {
			bars = append(bars, r.bar(columns-1, now)) // a full line would wrap
		}
	}
	total := fmt.Sprintf("%d of %s  %s  %s", b.ended, cli.Count(b.files, "file"), show.Size(received), rate(received, now.Sub(b.started)))
	b.show(append(bars, cutWidth(total, columns-1)))
}

// show replaces the drawn bars, in one write.
func (b *board) show(bars []string) {
	var text strings.Builder
	if b.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\r", b.drawn)
	}
	if b.drawn > 0 && (b.lines.Len() > 0 || len(bars) < b.drawn) {
		text.WriteString("\x1b[J")
	}
	text.Write(b.lines.Bytes())
	b.lines.Reset()
	for _, bar := range bars {
		text.WriteString(bar + "\x1b[K\n") // a bar is drawn over the one before: erasing it first would flicker
	}
	b.drawn = len(bars)
	b.out.Printf("%s", text.String())
}

// sum prints how the files ended.
func (b *board) sum(c counts, left int) {
	if b.quiet {
		return
	}
	parts := []string{fmt.Sprintf("%d completed", c.completed), fmt.Sprintf("%d failed", c.failed),
		retries(c), fmt.Sprintf("%d already there", c.alreadyThere)}
	if c.interrupted > 0 {
		parts = append(parts, fmt.Sprintf("%d interrupted", c.interrupted))
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d not started", left))
	}
	b.out.Printf("%s  %s  %s\n", strings.Join(parts, ", "), show.Size(c.bytes), show.Took(time.Since(b.started)))
}

// retries formats the number of attempts after the first, and of files that needed them.
func retries(c counts) string {
	switch c.retries {
	case 0:
		return "0 retries"
	case 1:
		return "1 retry"
	}
	return fmt.Sprintf("%d retries of %s", c.retries, cli.Count(c.retried, "file"))
}

// bar formats the row in the given number of columns:
//
//	image.iso  [=====     ]  48 %  3.4 MiB of 7.1 MiB  1.2 MiB/s  3s left
func (r *track) bar(columns int, now time.Time) string {
	const leastName, mostName = 8, 30
	room := min(max(columns/5, leastName), mostName)
	name := cutWidth(*r.name.Load(), room)
	name += strings.Repeat(" ", room-widthOf(name)) + "  "
	return cutWidth(name+show.Gauge(columns-room-2, max(r.at.Load(), 0), r.total.Load(), r.received.Load(), now.Sub(r.started)), columns)
}

// runeWidth returns the maximum number of terminal columns that a character needs.
func runeWidth(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

func widthOf(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// cutWidth shortens s to the given number of columns.
func cutWidth(s string, columns int) string {
	if widthOf(s) <= columns {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > columns-1 {
			return s[:i] + "…"
		}
	}
	return s
}
