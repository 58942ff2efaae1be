package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"fetchd/bench/report"
)

// page puts together what was measured.
func page(results []measured, leftOut []string) *report.Page {
	p := &report.Page{LeftOut: leftOut}
	for i := range results {
		m := &results[i]
		p.Rows = append(p.Rows, m.compared()...)
		for _, s := range m.subjects {
			switch {
			case len(m.runs[s.name]) == 0 || s.decide:
			case s.hold != "":
				p.Held = append(p.Held, report.Held{Subject: s.name, Open: s.open,
					Each: report.SpreadOf(m.values(s.name, figure{of: func(r *run) float64 { return r.held }}))})
			default:
				p.Lines = append(p.Lines, m.line(s))
			}
		}
	}
	return p
}

// line has the medians of a subject's figures.
func (m *measured) line(s subject) report.Line {
	of := func(take func(*run) float64) float64 {
		return report.SpreadOf(m.values(s.name, figure{of: take})).Median
	}
	return report.Line{Case: m.title, Subject: s.name,
		Rate:       of(rate.of),
		Service:    of(serviceCPU.of),
		Caller:     of(callerCPU.of),
		Origin:     of(func(r *run) float64 { return perFetch(r, r.origin.Seconds()*1e6) }),
		P50:        of(func(r *run) float64 { return r.P50 }),
		P90:        of(func(r *run) float64 { return r.P90 }),
		P99:        of(func(r *run) float64 { return r.P99 }),
		Allocs:     of(func(r *run) float64 { return r.allocs }),
		AllocBytes: of(func(r *run) float64 { return r.bytes }),
		Peak:       of(func(r *run) float64 { return float64(r.peak) }),
	}
}

// pictures draw what the page is about. One without subjects is left out.
func pictures(results []measured, p *report.Page) []report.Picture {
	var all []report.Picture
	for _, plot := range []struct {
		file, title string
		groups      []string
	}{
		{"cpu.svg", "CPU of a fetch of 1 KiB, 64 open", []string{"unary", "stream", "engine"}},
		{"languages.svg", "CPU of a fetch of 1 KiB by callers in other languages", []string{"python", "uvloop", "node"}},
	} {
		bars := report.Bars{Title: plot.title, Unit: "µs", Parts: []string{"service", "caller"}}
		for _, l := range linesOf(results, plot.groups) {
			bars.Bars = append(bars.Bars, report.Bar{Label: l.Subject, Values: []float64{l.Service, l.Caller}})
		}
		if len(bars.Bars) > 0 {
			all = append(all, report.Picture{Title: plot.title, Name: plot.file, SVG: bars.SVG()})
		}
	}
	ranges := report.Ranges{Title: "Time of a fetch of 1 KiB", Unit: "µs", Points: [3]string{"50 %", "90 %", "99 %"}}
	for _, l := range linesOf(results, []string{"latency", "unary", "stream", "engine"}) {
		ranges.Ranges = append(ranges.Ranges, report.Range{Label: l.Subject, Values: [3]float64{l.P50, l.P90, l.P99}})
	}
	if len(ranges.Ranges) > 0 {
		all = append(all, report.Picture{Title: ranges.Title, Name: "latency.svg", SVG: ranges.SVG()})
	}
	bars := report.Bars{Title: "Memory of a fetch that waits, of 10,000", Unit: "KiB", Parts: []string{"memory"}}
	for _, h := range p.Held {
		bars.Bars = append(bars.Bars, report.Bar{Label: h.Subject, Values: []float64{h.Each.Median / (1 << 10)}})
	}
	if len(bars.Bars) > 0 {
		all = append(all, report.Picture{Title: bars.Title, Name: "memory.svg", SVG: bars.SVG()})
	}
	return all
}

// linesOf are those of some groups, in the order of the groups, each subject once.
func linesOf(results []measured, groups []string) []report.Line {
	var lines []report.Line
	for _, name := range groups {
		for i := range results {
			m := &results[i]
			if m.name != name {
				continue
			}
			for _, s := range m.subjects {
				known := slices.ContainsFunc(lines, func(l report.Line) bool { return l.Subject == s.name })
				if len(m.runs[s.name]) > 0 && !known {
					lines = append(lines, m.line(s))
				}
			}
		}
	}
	return lines
}

// write puts the page and its pictures into a folder. What was written by hand in
// the page that was there stays.
func write(folder string, p *report.Page, plots []report.Picture) error {
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
	for _, plot := range plots {
		if err := os.WriteFile(filepath.Join(folder, "benchmarks", plot.Name), []byte(plot.SVG), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(p.Markdown(plots)), 0o644)
}
