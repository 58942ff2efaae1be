// Package report writes what was measured as a page of Markdown with plots in SVG.
// It is given figures and measures nothing itself.
package report

import (
	"fmt"
	"math"
	"slices"
)

// Spread is what repeated measurements of one figure gave.
type Spread struct{ Median, Min, Max float64 }

// SpreadOf sums up values; of none it is zero. The median of an even number of them
// lies in the middle of the two nearest.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Ratios divides each value by the one measured beside it. A pair whose divisor is
// 0 gives none.
func Ratios(of, beside []float64) []float64 {
	var ratios []float64
	for i := range min(len(of), len(beside)) {
		if beside[i] != 0 {
			ratios = append(ratios, of[i]/beside[i])
		}
	}
	return ratios
}

// Differences takes from each value the one measured beside it.
func Differences(of, beside []float64) []float64 {
	var differences []float64
	for i := range min(len(of), len(beside)) {
		differences = append(differences, of[i]-beside[i])
	}
	return differences
}

// Goal is a limit on a figure. The zero value is none.
type Goal struct {
	sign  string
	limit float64
}

// AtMost is a goal that is met up to limit, AtLeast one that is met from there on.
func AtMost(limit float64) Goal { return Goal{"≤", limit} }

// AtLeast is a goal that is met from limit on.
func AtLeast(limit float64) Goal { return Goal{"≥", limit} }

// String is such as "≤ 1.2"; empty where there is no goal.
func (g Goal) String() string {
	if g.sign == "" {
		return ""
	}
	return fmt.Sprintf("%s %g", g.sign, g.limit)
}

// Verdict says "met", or by how much the goal is missed; empty where there is none.
func (g Goal) Verdict(value float64) string {
	miss := value - g.limit
	if g.sign == "≥" {
		miss = -miss
	}
	switch {
	case g.sign == "":
		return ""
	case math.IsNaN(value):
		return "not measured"
	case miss <= 0:
		return "met"
	}
	return "missed by " + number(miss)
}

// number shows three digits that matter, and all those before the point.
func number(v float64) string {
	switch size := math.Abs(v); {
	case v == 0:
		return "0"
	case size >= 100:
		return grouped(fmt.Sprintf("%.0f", v))
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	case size >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// grouped puts commas between thousands.
func grouped(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
