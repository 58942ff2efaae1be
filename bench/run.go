package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"fetchd/bench/process"
	"fetchd/bench/report"
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

// measured is what a group gave: of each subject one run a round.
type measured struct {
	group
	runs map[string][]*run
}

// all measures group after group.
func (b *bench) all(ctx context.Context, plan []group) ([]measured, error) {
	for _, g := range plan {
		b.total += g.rounds(b.rounds) * len(g.subjects)
	}
	var results []measured
	for _, g := range plan {
		m, err := b.group(ctx, b.possible(g))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", g.name, err)
		}
		results = append(results, *m)
	}
	return results, nil
}

// possible leaves out what is known not to be possible here.
func (b *bench) possible(g group) group {
	for _, s := range g.subjects {
		if why := b.missing(s); why != "" {
			b.leave(&g, s.name, why)
		}
	}
	return g
}

// missing says what a subject lacks; empty means nothing that is known before.
func (b *bench) missing(s subject) string {
	if s.program == "node" && b.choices.NodeModules == "" {
		return "no modules are given for it with --node-modules: .ci/bench-install tells where it has put them"
	}
	files, err := process.Files()
	if err != nil {
		return fmt.Sprint(err)
	}
	if need := uint64(max(s.open, 0)) + 200; need > files {
		return fmt.Sprintf("it needs %d open files in one process and may have %d: raise the hard limit, ulimit -Hn", need, files)
	}
	return ""
}

// leave takes a subject out of a group, and the rows that need it.
func (b *bench) leave(g *group, name, why string) {
	b.leftOut = append(b.leftOut, name+": "+why)
	g.subjects = slices.DeleteFunc(slices.Clone(g.subjects), func(s subject) bool { return s.name == name })
	g.rows = slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return r.of == name || r.beside == name })
	if len(g.rows) == 0 {
		g.subjects = nil
	}
}

// group measures the subjects in turn, forwards in one round and backwards in the
// next: A, B, B, A.
func (b *bench) group(ctx context.Context, g group) (*measured, error) {
	m := &measured{group: g, runs: make(map[string][]*run)}
	for round := range g.rounds(b.rounds) {
		if err := b.round(ctx, m, round); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (b *bench) round(ctx context.Context, m *measured, round int) error {
	subjects := slices.Clone(m.subjects)
	if round%2 == 1 {
		slices.Reverse(subjects)
	}
	var r *rig
	var err error
	defer func() {
		if r != nil {
			_ = r.stop() // what was measured is measured
		}
	}()
	for _, s := range subjects {
		if !slices.ContainsFunc(m.subjects, func(left subject) bool { return left.name == s.name }) {
			continue // its group was given up
		}
		if r == nil && !s.decide {
			if r, err = b.start(ctx, servicesOf(m.subjects, s, m.fresh)); err != nil {
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
		b.tell(m, s, round, out)
		if m.fresh && r != nil {
			err, r = r.stop(), nil
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// servicesOf are those that the subjects go through, or only the one that is next.
func servicesOf(all []subject, next subject, fresh bool) []string {
	if fresh {
		all = []subject{next}
	}
	var names []string
	for _, s := range all {
		if s.service != "" && !slices.Contains(names, s.service) {
			names = append(names, s.service)
		}
	}
	return names
}

func (b *bench) subject(ctx context.Context, r *rig, m *measured, s subject) (*run, error) {
	switch {
	case s.decide:
		return decide(), nil
	case s.hold != "":
		return r.held(ctx, s)
	}
	warmup, span := b.warmup, b.span
	if m.warmup > 0 {
		warmup = m.warmup
	}
	if m.span > 0 {
		span = m.span
	}
	out, err := r.once(ctx, s, warmup, span)
	if err != nil {
		return nil, err
	}
	return out, r.keep(ctx, r.services[s.service], m.name+" "+s.name, len(m.runs[s.name]))
}

// tell writes a line of progress.
func (b *bench) tell(m *measured, s subject, round int, out *run) {
	b.done++
	what := fmt.Sprintf("%.1f µs of the service, %.1f µs of the caller, %.0f/s", serviceCPU.of(out), callerCPU.of(out), rate.of(out))
	switch {
	case s.decide:
		what = fmt.Sprintf("%.1f ns", out.single)
	case s.hold != "":
		what = fmt.Sprintf("%.1f KiB each", memory.of(out))
	}
	_, _ = fmt.Fprintf(b.progress, "%3d/%d %4.0fs  %s %d/%d  %s: %s\n", b.done, b.total, time.Since(b.began).Seconds(),
		m.name, round+1, m.rounds(b.rounds), s.name, what)
}

// values are a figure of every run of a subject.
func (m *measured) values(name string, f figure) []float64 {
	var values []float64
	for _, r := range m.runs[name] {
		values = append(values, f.of(r))
	}
	return values
}

// rows are the comparisons of what was measured.
func (m *measured) compared() []report.Row {
	var rows []report.Row
	for _, r := range m.rows {
		of, beside := m.values(r.of, r.figure), m.values(r.beside, r.figure)
		out := report.Row{Name: r.name, What: r.what, Goal: r.goal,
			Of: report.Figure{Name: r.of, Spread: report.SpreadOf(of), Unit: r.figure.unit}}
		if r.beside != "" {
			out.Beside = report.Figure{Name: r.beside, Spread: report.SpreadOf(beside), Unit: r.figure.unit}
		}
		switch r.mode {
		case ratio:
			out.Value = report.SpreadOf(report.Ratios(of, beside))
		case difference:
			out.Value, out.Unit = report.SpreadOf(report.Differences(of, beside)), r.figure.unit
		case alone:
			out.Value, out.Unit = out.Of.Spread, r.figure.unit
		}
		rows = append(rows, out)
	}
	return rows
}
