package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/store"
)

const (
	// drawEvery is the time between two lines on a terminal, tellEvery elsewhere.
	drawEvery = time.Second
	tellEvery = 10 * time.Second
)

// progress tells how a run goes: on one line of a terminal that is drawn anew, or
// a line now and then elsewhere.
type progress struct {
	out      *printer
	terminal bool
	quiet    bool
	store    store.Store
	worker   *frontier.Worker
	metrics  *frontier.Metrics
	begun    time.Time

	counts  store.Counts
	counted time.Time
	took    time.Duration // the last count
	last    int64         // outcomes at the last line
	at      time.Time     // of the last line
	drawn   bool
}

// run tells until ctx ends. draining is done when the run has been asked to end.
func (p *progress) run(ctx context.Context, draining <-chan struct{}) {
	every := tellEvery
	if p.terminal {
		every = drawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	p.at = p.begun
	for {
		select {
		case <-ctx.Done():
			return
		case <-draining:
			draining = nil
			p.line("stopping: fetches under way may end; a second signal ends at once")
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
	if p.quiet && p.metrics == nil || time.Since(p.counted) < max(countEvery, 50*p.took) {
		return
	}
	begun := time.Now()
	c, err := p.store.Counts(ctx)
	if err != nil {
		return // the worker tells of a store that does not answer
	}
	p.counts, p.counted, p.took = c, time.Now(), time.Since(begun)
	p.metrics.Counted(c)
}

func (p *progress) tell(now time.Time) {
	s := p.worker.Stats()
	done := s.Completed + s.Failed + s.Dead
	rate := float64(done-p.last) / now.Sub(p.at).Seconds()
	p.last, p.at = done, now
	text := fmt.Sprintf("%d fetched, %d failed, %d dead  %.0f/s  %d open", s.Completed, s.Failed, s.Dead, rate, s.Open)
	if !p.counted.IsZero() {
		left := p.counts.Pending + p.counts.Failed
		text += fmt.Sprintf("  %d to go, hosts: %d waiting, %d blocked", left, p.counts.HostsWaiting, p.counts.HostsBlocked)
		if p.counts.Paused {
			text += ", paused"
		}
	}
	if !p.terminal {
		p.line(text)
		return
	}
	p.out.printf("\r\x1b[K%s", text)
	p.drawn = true
}

// line is a line of its own.
func (p *progress) line(text string) {
	if p.quiet {
		return
	}
	if p.drawn {
		p.out.printf("\n")
		p.drawn = false
	}
	p.out.printf("%s\n", text)
}

// sum tells what the worker has done.
func (p *progress) sum() {
	s := p.worker.Stats()
	parts := []string{fmt.Sprintf("%d completed", s.Completed), fmt.Sprintf("%d failed", s.Dead), fmt.Sprintf("%d to be tried again", s.Failed), fmt.Sprintf("%d retried", s.Retried)}
	for _, more := range []struct {
		n    int64
		name string
	}{{s.Lost, "lost"}, {s.Stale, "stale"}, {s.Troubles, "troubles"}} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", more.n, more.name))
		}
	}
	p.line(fmt.Sprintf("%s in %v", strings.Join(parts, ", "), time.Since(p.begun).Round(100*time.Millisecond)))
}
