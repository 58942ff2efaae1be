// Package report formats measurements as a Markdown page with SVG plots.
package report

import (
	"fmt"
	"math"
	"slices"
)

// Spread summarizes repeated measurements of one figure.
type Spread struct{ Median, Min, Max float64 }

// String formats the spread for example as "1.17 [1.10–1.25]".
func (s Spread) String() string {
	return fmt.Sprintf("%s [%s–%s]", Number(s.Median), Number(s.Min), Number(s.Max))
}

// SpreadOf returns the spread of values, or zero if there are none. The median of an even
// number of values is the mean of the middle two.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Ratios divides each value by the one measured in the same round. It skips pairs with a
// divisor of 0.
func Ratios(of, base []float64) []float64 {
	var ratios []float64
	for i := range min(len(of), len(base)) {
		if base[i] != 0 {
			ratios = append(ratios, of[i]/base[i])
		}
	}
	return ratios
}

// Differences subtracts from each value the one measured in the same round.
func Differences(of, base []float64) []float64 {
	var differences []float64
	for i := range min(len(of), len(base)) {
		differences = append(differences, of[i]-base[i])
	}
	return differences
}

// Goal is a limit for a figure. The zero value means no goal.
type Goal struct {
	sign  string
	limit float64
}

// AtMost returns a goal that values up to limit meet.
func AtMost(limit float64) Goal { return Goal{"≤", limit} }

// AtLeast returns a goal that values from limit on meet.
func AtLeast(limit float64) Goal { return Goal{"≥", limit} }

// String formats the goal for example as "≤ 1.2". It is empty if there is no goal.
func (g Goal) String() string {
	if g.sign == "" {
		return ""
	}
	return fmt.Sprintf("%s %g", g.sign, g.limit)
}

// Verdict returns "met" or by how much value misses the goal. It is empty if there is no
// goal.
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
	return "missed by " + Number(miss)
}

// Number formats v with three significant digits, and all digits before the point.
func Number(v float64) string {
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

// grouped inserts commas between thousands.
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
