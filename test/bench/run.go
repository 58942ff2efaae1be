package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"fetchd/test/bench/process"
)

// bench measures a plan.
type bench struct {
	*workshop
	rounds       int
	warmup, span time.Duration
	progress     io.Writer
	began        time.Time
	done, total  int
	leftOut      []string
}

// measured holds the results of a group: for each subject one run per round.
type measured struct {
	group
	runs map[string][]*run
}

// all measures the groups one after the other.
func (b *bench) all(ctx context.Context, plan []group) ([]measured, error) {
	for _, g := range plan {
		b.total += g.rounds(b.rounds) * len(g.subjects())
	}
	var results []measured
	for _, g := range plan {
		for _, s := range g.subjects() {
			if why := b.missing(s); why != "" {
				b.leave(&g, s.name, why)
			}
		}
		m := measured{group: g, runs: make(map[string][]*run)}
		for round := range g.rounds(b.rounds) {
			if err := b.round(ctx, &m, round); err != nil {
				return nil, fmt.Errorf("%s: %w", g.name, err)
			}
		}
		results = append(results, m)
	}
	return results, nil
}

// missing returns what a subject lacks, as far as that is known in advance.
func (b *bench) missing(s subject) string {
	if s.program == "node" && b.choices.NodeModules == "" {
		return "its modules are missing: run .ci/bench-install, and give the folder that it prints as --node-modules"
	}
	if _, is := proxies[s.service]; is {
		if _, err := os.Stat(proxyPath(s.service)); err != nil {
			return fmt.Sprintf("it is not installed: %v", err)
		}
	}
	files, err := process.Files()
	if err != nil {
		return fmt.Sprint(err)
	}
	if need := uint64(max(s.open, 0)) + 200; need > files {
		return fmt.Sprintf("it needs %d open files in one process, and the limit is %d: raise the hard limit, ulimit -Hn", need, files)
	}
	return ""
}

// leave removes a subject from a group, and the rows that need it.
func (b *bench) leave(g *group, name, why string) {
	b.leftOut = append(b.leftOut, name+": "+why)
	g.rows = slices.DeleteFunc(g.rows, func(r row) bool { return r.of.name == name || r.base.name == name })
}

// round measures the subjects of a group one after the other, in reverse order in every
// second round, so that a drift over time affects all of them equally.
func (b *bench) round(ctx context.Context, m *measured, round int) (err error) {
	subjects := m.subjects()
	if round%2 == 1 {
		slices.Reverse(subjects)
	}
	var r *rig
	defer func() {
		if r != nil {
			_ = r.stop() // the results are complete
		}
	}()
	for _, s := range subjects {
		if !slices.Contains(m.subjects(), s) {
			continue // it was left out
		}
		if r == nil && !s.decide {
			used := m.subjects()
			if m.fresh {
				used = []subject{s}
			}
			if r, err = b.start(ctx, used); err != nil {
				return err
			}
		}
		out, err := b.subject(ctx, r, m, s)
		if errors.Is(err, errMissing) {
			b.leave(&m.group, s.name, fmt.Sprint(err))
			continue
		}
		if err != nil {
			return err
		}
		m.runs[s.name] = append(m.runs[s.name], out)
		b.report(m, s, round, out)
		if m.fresh && r != nil {
			err, r = r.stop(), nil
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) subject(ctx context.Context, r *rig, m *measured, s subject) (*run, error) {
	switch {
	case s.decide:
		return decide(), nil
	case s.hold:
		return r.held(ctx, s)
	}
	return r.once(ctx, s, cmp.Or(m.warmup, b.warmup), cmp.Or(m.span, b.span))
}

// report writes a line of progress.
func (b *bench) report(m *measured, s subject, round int, out *run) {
	b.done++
	what := fmt.Sprintf("%.1f µs of the service, %.1f µs of the caller, %.0f/s", serviceCPU.of(out), callerCPU.of(out), rate.of(out))
	switch {
	case s.decide:
		what = fmt.Sprintf("%.1f ns", out.single)
	case s.hold:
		what = fmt.Sprintf("%.1f KiB each", memory.of(out))
	}
	_, _ = fmt.Fprintf(b.progress, "%3d/%d %4.0fs  %s %d/%d  %s: %s\n", b.done, b.total, time.Since(b.began).Seconds(),
		m.name, round+1, m.rounds(b.rounds), s.name, what)
}

// values returns a figure of every run of a subject.
func (m *measured) values(name string, f figure) []float64 {
	var values []float64
	for _, r := range m.runs[name] {
		values = append(values, f.of(r))
	}
	return values
}
