// Package progress shows on standard error how far a run, or another command that takes long, has come.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/show"
	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

const (
	// Progress is shown every drawEvery on a terminal, and every printEvery elsewhere.
	drawEvery  = time.Second
	printEvery = 10 * time.Second
	// countEvery is how often the whole table is counted. If counting is slow, it is done less
	// often, so that it takes a hundredth of the time.
	countEvery = time.Second
	countShare = 100
	// rateOver is the period of the rate, trendOver that of the estimate.
	rateOver  = 10 * time.Second
	trendOver = 2 * time.Minute
)

// disallowed describes URLs that robots.txt forbids, which are no failures.
const disallowed = "disallowed by robots.txt"

// Display shows the progress of a run, and its sum.
type Display struct {
	Out     *Console
	Quiet   bool                                        // show only the sum
	Endless bool                                        // the run does not end when nothing is left
	Counts  func(context.Context) (store.Counts, error) // of the whole frontier
	Found   func() frontier.Found                       // of this worker; nil without discovery
	Metrics *frontier.Metrics
	// Deferred says why URLs wait for an unreachable robots.txt. It is printed once.
	Deferred func(context.Context) (string, error)

	stats   func() frontier.Stats // of this worker
	faults  faults
	started time.Time

	last   store.Counts
	took   time.Duration // duration of the last count
	named  bool          // Deferred was printed
	before int64         // URLs that this worker had ended at the last count
	done   trend         // outcomes of this worker
	robots trend         // files that it has fetched
	left   trend         // URLs of the frontier still to be fetched, at each count
}

// Recorded returns a function that counts outcomes and passes them to next, which may be nil.
func (p *Display) Recorded(next func(frontier.Record) error) func(frontier.Record) error {
	return func(r frontier.Record) error {
		if r.ErrorClass != "" {
			p.faults.add(r.ErrorClass, r.Status)
		}
		if next == nil {
			return nil
		}
		return next(r)
	}
}

// Watch runs the worker and shows its progress.
func (p *Display) Watch(ctx context.Context, w *frontier.Worker) error {
	showing, stop := context.WithCancel(context.WithoutCancel(ctx))
	shown := make(chan struct{})
	p.stats, p.started = w.Stats, time.Now()
	go func() {
		defer close(shown)
		p.run(showing, ctx.Done())
	}()
	err := w.Run(ctx)
	stop()
	<-shown
	if errors.Is(err, frontier.ErrNoService) {
		return err
	}
	p.sum()
	if s := p.stats(); err == nil && s.Completed == 0 && s.Dead > 0 {
		return cli.PrintedError(cli.ExitNothing, "nothing was completed")
	}
	return err
}

// run shows the progress until ctx ends. draining is closed when the run must stop.
func (p *Display) run(ctx context.Context, draining <-chan struct{}) {
	every := printEvery
	if p.Out.Draws {
		every = drawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	p.done.add(p.started, 0, rateOver)
	p.robots.add(p.started, 0, rateOver)
	p.count(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-draining:
			draining = nil
			if !p.Quiet {
				p.Out.Printf("stopping: waiting for fetches in flight; a second signal stops at once\n")
			}
		case <-tick.C:
			p.count(ctx)
			if !p.Quiet {
				p.show(time.Now())
			}
		}
	}
}

// count counts the table, unless that was done just now, because the table may be long.
func (p *Display) count(ctx context.Context) {
	if p.Quiet && p.Metrics == nil || len(p.left) > 0 && time.Since(p.left.at()) < max(countEvery, countShare*p.took) {
		return
	}
	started, s := time.Now(), p.stats()
	c, err := p.Counts(ctx)
	if err != nil {
		return // the worker logs errors of the store
	}
	p.last, p.took, p.before = c, time.Since(started), s.Completed+s.Dead
	p.left.add(started, c.Pending+c.Failed+c.Fetching, trendOver)
	p.Metrics.Counted(c)
	if c.OriginsDeferred == 0 || p.named || p.Quiet {
		return
	}
	if cause, err := p.Deferred(ctx); err == nil && cause != "" { // the worker logs errors of the store
		p.named = true
		p.Out.Printf("%s\n", cause)
	}
}

func (p *Display) show(now time.Time) {
	s := p.stats()
	p.done.add(now, s.Completed+s.Failed+s.Dead, rateOver)
	p.robots.add(now, s.Robots, rateOver)
	text := fmt.Sprintf("%d completed, %d failed", s.Completed, s.Dead-s.Disallowed)
	if s.Disallowed > 0 {
		text += fmt.Sprintf(", %d %s", s.Disallowed, disallowed)
	}
	if !p.Out.Draws { // each second another class could be the most frequent
		text += p.faults.lately()
	}
	text += fmt.Sprintf(", %.0f/s", p.done.rate())
	if rate := p.robots.rate(); rate > 0 {
		text += fmt.Sprintf(", %d robots.txt read, %.0f/s", s.Robots, rate)
	}
	if len(p.left) > 0 {
		left, rest := p.toGo(s), "to go"
		if left > 0 && left == p.last.Failed {
			rest = "to try again"
		}
		text += fmt.Sprintf(", %d %s", left, rest)
		if d, ok := p.estimate(now); ok {
			text += fmt.Sprintf(" in about %s", why.Span(d))
		}
		if d := p.pause(now); d > 0 && s.Open == 0 {
			text += fmt.Sprintf(", the next in %s", why.Span(d))
		}
	}
	text += fmt.Sprintf(", %d in flight", s.Open)
	if len(p.left) > 0 {
		text += fmt.Sprintf(", hosts: %d waiting, %d blocked", p.last.HostsWaiting, p.last.HostsBlocked) + show.Deferred(p.last.Waits.RobotsUnreachable, p.last.OriginsDeferred)
	}
	if p.last.Paused {
		text += ", paused"
	}
	if p.Out.Draws {
		p.Out.draw(text)
		return
	}
	p.Out.Printf("%s\n", text)
}

// toGo returns how many URLs are left. That is the last count, which may be minutes old, without those
// that this worker has ended since.
func (p *Display) toGo(s frontier.Stats) int64 {
	left := p.last.Pending + p.last.Failed + p.last.Fetching
	return max(0, left-(s.Completed+s.Dead-p.before))
}

// estimate returns how long the rest takes if the current trend continues. It returns false if the
// number of URLs to fetch does not decrease.
func (p *Display) estimate(now time.Time) (time.Duration, bool) {
	fall := -p.left.rate()
	if fall <= 0 || p.Endless || p.last.Paused {
		return 0, false
	}
	seconds := float64(p.left[len(p.left)-1].n)/fall - now.Sub(p.left.at()).Seconds()
	const most = 365 * 24 * time.Hour
	if seconds < 1 || seconds > most.Seconds() {
		return 0, false
	}
	return time.Duration(seconds) * time.Second, true
}

// pause returns how long all hosts wait, as after a failure or for a long Crawl-delay. It returns zero if a
// URL is being fetched, or if it is less than two seconds.
func (p *Display) pause(now time.Time) time.Duration {
	d := p.last.NextDue - now.Sub(p.left.at())
	if p.last.Fetching > 0 || p.last.HostsDue > 0 || p.last.Paused || d < 2*time.Second {
		return 0
	}
	return d
}

// sum prints the errors, and a last line with the counts of the worker.
func (p *Display) sum() {
	s := p.stats()
	retries := fmt.Sprintf("%d retries", s.Retried)
	if s.Retried == 1 {
		retries = "1 retry"
	}
	parts := []string{fmt.Sprintf("%d completed", s.Completed), fmt.Sprintf("%d failed", s.Dead-s.Disallowed), retries}
	for _, more := range []struct {
		n    int64
		name string
	}{{s.Disallowed, disallowed}, {s.Failed, "postponed"}, {s.Lost, "lost"}, {s.Stale, "stale"}, {s.Errors, "errors"}} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", more.n, more.name))
		}
	}
	if p.Found != nil {
		p.Out.Printf("%s", crawl.Summary(p.Found(), s.Bytes))
	}
	p.Out.Printf("%s%s in %v\n", p.faults.sum(), strings.Join(parts, ", "), time.Since(p.started).Round(100*time.Millisecond))
}

// trend is a number at several times, the oldest first.
type trend []reading

type reading struct {
	at time.Time
	n  int64
}

// add appends a reading, and drops those that are not needed to cover the period over.
func (t *trend) add(at time.Time, n int64, over time.Duration) {
	*t = append(*t, reading{at, n})
	for len(*t) > 2 && at.Sub((*t)[1].at) >= over {
		*t = (*t)[1:]
	}
}

// at returns the time of the last reading.
func (t trend) at() time.Time { return t[len(t)-1].at }

// rate returns the growth per second, or zero with fewer than two readings.
func (t trend) rate() float64 {
	if len(t) < 2 {
		return 0
	}
	first, last := t[0], t[len(t)-1]
	elapsed := last.at.Sub(first.at).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return float64(last.n-first.n) / elapsed
}

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
