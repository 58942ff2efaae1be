package main

import (
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
		Allocs:     of(func(r *run) float64 { return perFetch(r, r.allocs) }),
		AllocBytes: of(func(r *run) float64 { return perFetch(r, r.bytes) }),
		Peak:       of(func(r *run) float64 { return float64(r.peak) }),
	}
}
