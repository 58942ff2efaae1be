package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

const (
	// drawEvery is the time between two lines on a terminal, tellEvery elsewhere.
	drawEvery = time.Second
	tellEvery = 10 * time.Second
	// countEvery is how often the whole table is counted. Where that takes long, it is
	// done so seldom that it takes a hundredth of the time.
	countEvery = time.Second
	countShare = 100
	// rateOver is the time that a rate is of, trendOver that of an estimate.
	rateOver  = 10 * time.Second
	trendOver = 2 * time.Minute
)

// progress tells how a run goes.
type progress struct {
	out     *console
	draws   bool // on one line of a terminal; else in a line now and then
	quiet   bool // but for the sum
	endless bool
	counts  func(context.Context) (store.Counts, error) // of the whole frontier
	stats   func() frontier.Stats                       // of this worker
	metrics *frontier.Metrics
	faults  faults
	begun   time.Time

	last store.Counts
	took time.Duration // the last count
	done trend         // outcomes of this worker
	left trend         // URLs of the frontier that are to be fetched; one each count
}

// watched runs the worker while its progress is told.
func (p *progress) watched(ctx context.Context, w *frontier.Worker) error {
	telling, stop := context.WithCancel(context.WithoutCancel(ctx))
	told := make(chan struct{})
	p.stats, p.begun = w.Stats, time.Now()
	go func() {
		defer close(told)
		p.run(telling, ctx.Done())
	}()
	err := w.Run(ctx)
	stop()
	<-told
	if errors.Is(err, frontier.ErrNoService) {
		return err
	}
	p.sum()
	if s := p.stats(); err == nil && s.Completed == 0 && s.Dead > 0 {
		return cli.PrintedError(cli.ExitNothing, "nothing was completed")
	}
	return err
}

// run tells until ctx ends. draining is done when the run has been asked to end.
func (p *progress) run(ctx context.Context, draining <-chan struct{}) {
	every := tellEvery
	if p.draws {
		every = drawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	p.done.add(p.begun, 0, rateOver)
	p.count(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-draining:
			draining = nil
			if !p.quiet {
				p.out.Printf("stopping: fetches under way may end; a second signal ends at once\n")
			}
		case <-tick.C:
			p.count(ctx)
			if !p.quiet {
				p.tell(time.Now())
			}
		}
	}
}

// count reads the table, where that was not done just now: it may be a long one.
func (p *progress) count(ctx context.Context) {
	if p.quiet && p.metrics == nil || len(p.left) > 0 && time.Since(p.left.at()) < max(countEvery, countShare*p.took) {
		return
	}
	begun := time.Now()
	c, err := p.counts(ctx)
	if err != nil {
		return // the worker tells of a store that does not answer
	}
	p.last, p.took = c, time.Since(begun)
	p.left.add(begun, c.Pending+c.Failed+c.Fetching, trendOver)
	p.metrics.Counted(c)
}

func (p *progress) tell(now time.Time) {
	s := p.stats()
	p.done.add(now, s.Completed+s.Failed+s.Dead, rateOver)
	text := fmt.Sprintf("%d completed, %d failed", s.Completed, s.Dead)
	if !p.draws { // a line each second would name another class each time
		text += p.faults.lately()
	}
	text += fmt.Sprintf(", %.0f/s", p.done.rate())
	if len(p.left) > 0 {
		text += fmt.Sprintf(", %d to go", p.last.Pending+p.last.Failed+p.last.Fetching)
		if d, ok := p.estimate(now); ok {
			text += fmt.Sprintf(" in about %s", span(d))
		}
	}
	text += fmt.Sprintf(", %d open", s.Open)
	if len(p.left) > 0 {
		text += fmt.Sprintf(", hosts: %d waiting, %d blocked", p.last.HostsWaiting, p.last.HostsBlocked)
	}
	if p.last.Paused {
		text += ", paused"
	}
	if p.draws {
		p.out.draw(text)
		return
	}
	p.out.Printf("%s\n", text)
}

// estimate is how long the rest takes if it goes on as in the last counts. There is
// none where the end is not in sight: what is to be fetched does not grow less.
func (p *progress) estimate(now time.Time) (time.Duration, bool) {
	fall := -p.left.rate()
	if fall <= 0 || p.endless || p.last.Paused {
		return 0, false
	}
	seconds := float64(p.left[len(p.left)-1].n)/fall - now.Sub(p.left.at()).Seconds()
	const most = 365 * 24 * time.Hour
	if seconds < 1 || seconds > most.Seconds() {
		return 0, false
	}
	return time.Duration(seconds) * time.Second, true
}

// sum prints what went wrong, and on the last line what the worker has done.
func (p *progress) sum() {
	s := p.stats()
	retries := fmt.Sprintf("%d retries", s.Retried)
	if s.Retried == 1 {
		retries = "1 retry"
	}
	parts := []string{fmt.Sprintf("%d completed", s.Completed), fmt.Sprintf("%d failed", s.Dead), retries}
	for _, more := range []struct {
		n    int64
		name string
	}{{s.Failed, "put off"}, {s.Lost, "lost"}, {s.Stale, "stale"}, {s.Errors, "errors"}} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", more.n, more.name))
		}
	}
	p.out.Printf("%s%s in %v\n", p.faults.sum(), strings.Join(parts, ", "), time.Since(p.begun).Round(100*time.Millisecond))
}

// trend is a number as it was read at some times, the oldest first.
type trend []reading

type reading struct {
	at time.Time
	n  int64
}

// add puts a reading at the end, and forgets those that are not needed to look
// back as far as over.
func (t *trend) add(at time.Time, n int64, over time.Duration) {
	*t = append(*t, reading{at, n})
	for len(*t) > 2 && at.Sub((*t)[1].at) >= over {
		*t = (*t)[1:]
	}
}

// at is the time of the last reading.
func (t trend) at() time.Time { return t[len(t)-1].at }

// rate is how fast the number grew, in a second; zero with less than two readings.
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
