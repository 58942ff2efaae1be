package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"fetchd/test/bench/report"
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
			case len(m.runs[s.name]) == 0 || s.decide || s.hold:
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
	if r.heap.name != "" {
		cells[5] = report.SpreadOf(report.Ratios(m.values(r.of.name, r.figure), m.values(r.heap.name, r.figure))).String()
	}
	cells[6] = report.Number(m.spread(r.of.name, r.figure).Median)
	if r.base.name != "" {
		cells[6] += " / " + report.Number(m.spread(r.base.name, r.figure).Median)
	}
	cells[6] += " " + r.figure.unit
	return cells
}

// line returns the medians of a subject's figures. A figure that was not measured is empty.
func (m *measured) line(s subject) []string {
	cells := []string{m.title, s.name}
	for _, f := range []figure{rate, serviceCPU, callerCPU, originCPU, p50, p99, allocations, allocated, peak} {
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
	cpu := []string{"service", "caller"}
	for _, p := range []struct {
		file    string
		chart   report.Chart
		figures []figure
		groups  []string
	}{
		{"cpu.svg", report.Chart{Title: "CPU of a fetch of 1 KiB, 64 open", Unit: "µs", Parts: cpu},
			[]figure{serviceCPU, callerCPU}, []string{"unary", "stream", "engine"}},
		{"languages.svg", report.Chart{Title: "CPU of a fetch of 1 KiB by callers in other languages", Unit: "µs", Parts: cpu},
			[]figure{serviceCPU, callerCPU}, []string{"python", "uvloop", "node"}},
		{"latency.svg", report.Chart{Title: "Time of a fetch of 1 KiB", Unit: "µs", Parts: []string{"50 %", "90 %", "99 %"}, Points: true},
			[]figure{p50, p90, p99}, []string{"latency", "unary", "stream", "engine"}},
		{"memory.svg", report.Chart{Title: "Memory of a fetch that waits, of 10,000", Unit: "KiB", Parts: []string{"memory"}},
			[]figure{memory}, []string{"backoff", "origin"}},
	} {
		for _, name := range p.groups {
			for i := range results {
				if m := &results[i]; m.name == name {
					p.chart.Rows = append(p.chart.Rows, m.chartRows(p.figures)...)
				}
			}
		}
		if len(p.chart.Rows) > 0 {
			all = append(all, report.Plot{Title: p.chart.Title, Name: p.file, SVG: p.chart.SVG()})
		}
	}
	return all
}

// chartRows returns the medians of the subjects that were measured.
func (m *measured) chartRows(figures []figure) []report.Row {
	var rows []report.Row
	for _, s := range m.subjects() {
		if len(m.runs[s.name]) == 0 {
			continue
		}
		row := report.Row{Label: s.name}
		for _, f := range figures {
			row.Values = append(row.Values, m.spread(s.name, f).Median)
		}
		rows = append(rows, row)
	}
	return rows
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
