package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Page is what docs/benchmarks.md tells.
type Page struct {
	// Machine says on what it was measured, and Command how to do it again.
	Machine []Fact
	Command string
	// Rows are the comparisons, Lines the absolute figures and Held the memory, each
	// in the order shown.
	Rows  []Row
	Lines []Line
	Held  []Held
	// LeftOut names what could not be measured, and why.
	LeftOut []string
	// ByHand is the part between the marks, which people write; see [ByHand].
	ByHand string
}

// Fact is a name and what it is.
type Fact struct{ Name, Value string }

// Row is a figure held against another, and against a goal.
type Row struct {
	Name, What string
	// Value is the ratio where Unit is empty, and else in that unit.
	Value Spread
	Unit  string
	Goal  Goal
	// Of and Beside are the absolute figures. Beside has no name where there is none.
	Of, Beside Figure
}

// Figure is an absolute one.
type Figure struct {
	Name string
	Spread
	Unit string
}

// Line has the absolute figures of one subject, as medians. What is 0 was not
// measured.
type Line struct {
	Case, Subject string
	// Rate in fetches a second.
	Rate float64
	// Service, Caller and Origin are their CPU in microseconds a fetch.
	Service, Caller, Origin float64
	// P50, P90 and P99 are times of a fetch in microseconds.
	P50, P90, P99 float64
	// Allocs and AllocBytes are those of one fetch, and Peak the most memory in
	// bytes: of the service, or of the caller where there is none.
	Allocs, AllocBytes, Peak float64
}

// Held is the memory of one of many that wait.
type Held struct {
	Subject string
	Open    int
	// Each in bytes.
	Each Spread
}

// text is such as "1.17 [1.15–1.21]", with the unit behind.
func (r *Row) text() string {
	text := fmt.Sprintf("%s [%s–%s]", number(r.Value.Median), number(r.Value.Min), number(r.Value.Max))
	if r.Unit != "" {
		text += " " + r.Unit
	}
	return text
}

// text is such as "52.1 µs"; empty where there is none.
func (f *Figure) text() string {
	if f.Name == "" {
		return ""
	}
	return number(f.Median) + " " + f.Unit
}

// Verdict says whether the goal is met.
func (r *Row) Verdict() string { return r.Goal.Verdict(r.Value.Median) }

// WriteTable writes the comparisons for a terminal.
func (p *Page) WriteTable(w io.Writer) error {
	cells := [][]string{{"case", "value", "goal", "", "of", "beside"}}
	for _, r := range p.Rows {
		cells = append(cells, []string{r.Name, r.text(), r.Goal.String(), r.Verdict(), r.Of.text(), r.Beside.text()})
	}
	if _, err := io.WriteString(w, aligned(cells)); err != nil {
		return err
	}
	for _, why := range p.LeftOut {
		if _, err := fmt.Fprintf(w, "left out: %s\n", why); err != nil {
			return err
		}
	}
	return nil
}

// aligned puts cells below each other.
func aligned(rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-len([]rune(cell))+2))
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

// Missed are the names of the rows whose goals are not met.
func (p *Page) Missed() []string {
	var names []string
	for _, r := range p.Rows {
		if v := r.Verdict(); v != "" && v != "met" {
			names = append(names, r.Name)
		}
	}
	return slices.Compact(names)
}
