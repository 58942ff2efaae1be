package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fetchd/bench/report"
)

// newPage returns the page of the results.
func newPage(results []measured, leftOut []string) *report.Page {
	p := &report.Page{LeftOut: leftOut, Plots: plots(results)}
	for i := range results {
		m := &results[i]
		for _, r := range m.rows {
			p.Goals = append(p.Goals, m.cells(r))
		}
		for _, s := range m.subjects() {
			switch {
			case len(m.runs[s.name]) == 0 || s.decide:
			case s.hold:
				p.Held = append(p.Held, []string{s.name, report.Number(float64(s.open)), m.spread(s.name, memory).String()})
			default:
				p.Lines = append(p.Lines, m.line(s))
			}
		}
	}
	return p
}

// spread returns the spread of a figure over the runs of a subject.
func (m *measured) spread(name string, f figure) report.Spread {
	return report.SpreadOf(m.values(name, f))
}

// value returns the ratio, difference or figure of a row, and its unit.
func (m *measured) value(r row) (report.Spread, string) {
	of, base := m.values(r.of.name, r.figure), m.values(r.base.name, r.figure)
	switch r.mode {
	case ratio:
		return report.SpreadOf(report.Ratios(of, base)), ""
	case difference:
		return report.SpreadOf(report.Differences(of, base)), r.figure.unit
	default:
		return report.SpreadOf(of), r.figure.unit
	}
}

// cells returns the cells of a comparison.
func (m *measured) cells(r row) []string {
	value, unit := m.value(r)
	verdict := r.goal.Verdict(value.Median)
	if strings.HasPrefix(verdict, "missed") {
		verdict = "**" + verdict + "**"
	}
	cells := []string{r.name, r.what, strings.TrimSpace(value.String() + " " + unit), r.goal.String(), verdict, "", ""}
	for i, name := range []string{r.of.name, r.base.name} {
		if name != "" {
			cells[5+i] = report.Number(m.spread(name, r.figure).Median) + " " + r.figure.unit
		}
	}
	return cells
}

// line returns the medians of a subject's figures. A figure that was not measured is empty.
func (m *measured) line(s subject) []string {
	cells := []string{m.title, s.name}
	for _, f := range []figure{rate, serviceCPU, callerCPU, originCPU, p50, p90, p99, allocations, allocated, peak} {
		cell := ""
		if v := m.spread(s.name, f).Median; v != 0 {
			cell = report.Number(v)
		}
		cells = append(cells, cell)
	}
	return cells
}

// plots returns the plots that have at least one subject.
func plots(results []measured) []report.Plot {
	var all []report.Plot
	bars := func(file, title, unit string, parts map[string]figure, order []string, groups ...string) {
		plot := report.Bars{Title: title, Unit: unit, Parts: order}
		each(results, groups, func(m *measured, s subject) {
			bar := report.Bar{Label: s.name}
			for _, part := range order {
				bar.Values = append(bar.Values, m.spread(s.name, parts[part]).Median)
			}
			plot.Bars = append(plot.Bars, bar)
		})
		if len(plot.Bars) > 0 {
			all = append(all, report.Plot{Title: title, Name: file, SVG: plot.SVG()})
		}
	}
	cpu, order := map[string]figure{"service": serviceCPU, "caller": callerCPU}, []string{"service", "caller"}
	bars("cpu.svg", "CPU of a fetch of 1 KiB, 64 open", "µs", cpu, order, "unary", "stream", "engine")
	bars("languages.svg", "CPU of a fetch of 1 KiB by callers in other languages", "µs", cpu, order, "python", "uvloop", "node")
	ranges := report.Ranges{Title: "Time of a fetch of 1 KiB", Unit: "µs", Points: [3]string{"50 %", "90 %", "99 %"}}
	each(results, []string{"latency", "unary", "stream", "engine"}, func(m *measured, s subject) {
		ranges.Ranges = append(ranges.Ranges, report.Range{Label: s.name, Values: [3]float64{
			m.spread(s.name, p50).Median, m.spread(s.name, p90).Median, m.spread(s.name, p99).Median}})
	})
	if len(ranges.Ranges) > 0 {
		all = append(all, report.Plot{Title: ranges.Title, Name: "latency.svg", SVG: ranges.SVG()})
	}
	bars("memory.svg", "Memory of a fetch that waits, of 10,000", "KiB", map[string]figure{"memory": memory}, []string{"memory"}, "backoff", "origin")
	return all
}

// each calls f for the measured subjects of the groups, in the order of groups. It calls f
// once per name.
func each(results []measured, groups []string, f func(*measured, subject)) {
	var seen []string
	for _, name := range groups {
		for i := range results {
			if results[i].name != name {
				continue
			}
			for _, s := range results[i].subjects() {
				if len(results[i].runs[s.name]) > 0 && !slices.Contains(seen, s.name) {
					seen = append(seen, s.name)
					f(&results[i], s)
				}
			}
		}
	}
}

// write writes the page and its plots into a folder. It keeps the part of an existing page
// that people wrote.
func write(folder string, p *report.Page) error {
	path := filepath.Join(folder, "benchmarks.md")
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if p.ByHand, err = report.ByHand(string(old)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, "benchmarks"), 0o755); err != nil {
		return err
	}
	for _, plot := range p.Plots {
		if err := os.WriteFile(filepath.Join(folder, "benchmarks", plot.Name), []byte(plot.SVG), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(p.Markdown()), 0o644)
}
