//go:build linux

package limits

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// line is one line of the report.
type line struct {
	row, column, setting string
	verdict              *verdict
	faults               []string
}

// report collects the lines of all lanes.
type report struct {
	mu    sync.Mutex
	lines []line
}

func (r *report) add(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l)
}

// markdown returns a table with the rows and columns in their order.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString("| row | limit | settings | peak | charged peak | refused | other caller | outcome |\n|---|---|---|---|---|---|---|---|\n")
	at := func(l line) int {
		column := slices.IndexFunc(columns, func(c column) bool { return c.name == l.column })
		return slices.IndexFunc(rows, func(r row) bool { return r.name == l.row })*2*len(columns) + 2*column + strings.Compare(l.setting, none)
	}
	slices.SortFunc(r.lines, func(x, y line) int { return at(x) - at(y) })
	for _, l := range r.lines {
		outcome := "ok: " + l.verdict.trial.tally.String()
		if len(l.faults) > 0 {
			outcome = "**" + strings.Join(l.faults, "; ") + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %d | %s | %s |\n", l.row, l.column, l.setting,
			mib(l.verdict.meter.peak), mib(l.verdict.meter.charged), l.verdict.refused(), l.verdict.bystander, strings.ReplaceAll(outcome, "|", "\\|"))
	}
	return b.String()
}
