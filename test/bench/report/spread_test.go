package report_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fetchd/test/bench/report"
)

func TestSpreadOf(t *testing.T) {
	for _, row := range []struct {
		name   string
		values []float64
		want   report.Spread
	}{
		{"none", nil, report.Spread{}},
		{"one", []float64{3}, report.Spread{Median: 3, Min: 3, Max: 3}},
		{"an odd number, not in order", []float64{9, 1, 4}, report.Spread{Median: 4, Min: 1, Max: 9}},
		{"an even number", []float64{4, 1, 2, 9}, report.Spread{Median: 3, Min: 1, Max: 9}},
		{"below zero", []float64{-2, -8, 1}, report.Spread{Median: -2, Min: -8, Max: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := append([]float64(nil), row.values...)
			if got := report.SpreadOf(row.values); got != row.want {
				t.Errorf("SpreadOf(%v) = %+v, want %+v", row.values, got, row.want)
			}
			if diff := cmp.Diff(before, row.values); diff != "" {
				t.Errorf("SpreadOf changed its values (-before +after):\n%s", diff)
			}
		})
	}
}

func TestPairs(t *testing.T) {
	for _, row := range []struct {
		name        string
		of, base    []float64
		ratios      []float64
		differences []float64
	}{
		{"none", nil, nil, nil, nil},
		{"two pairs", []float64{2, 9}, []float64{4, 3}, []float64{0.5, 3}, []float64{-2, 6}},
		{"a value without a base", []float64{2, 9}, []float64{4}, []float64{0.5}, []float64{-2}},
		{"a base of zero", []float64{2, 9}, []float64{0, 3}, []float64{3}, []float64{2, 6}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if diff := cmp.Diff(row.ratios, report.Ratios(row.of, row.base)); diff != "" {
				t.Errorf("Ratios(%v, %v) (-want +got):\n%s", row.of, row.base, diff)
			}
			if diff := cmp.Diff(row.differences, report.Differences(row.of, row.base)); diff != "" {
				t.Errorf("Differences(%v, %v) (-want +got):\n%s", row.of, row.base, diff)
			}
		})
	}
}

func TestGoal(t *testing.T) {
	for _, row := range []struct {
		name    string
		goal    report.Goal
		value   float64
		text    string
		verdict string
	}{
		{"none", report.Goal{}, 5, "", ""},
		{"at most, below", report.AtMost(1.2), 1.1, "≤ 1.2", "met"},
		{"at most, equal", report.AtMost(1.2), 1.2, "≤ 1.2", "met"},
		{"at most, above", report.AtMost(1.2), 1.45, "≤ 1.2", "missed by 0.25"},
		{"at most none", report.AtMost(0), 1, "≤ 0", "missed by 1.00"},
		{"at least, above", report.AtLeast(5), 7, "≥ 5", "met"},
		{"at least, equal", report.AtLeast(5), 5, "≥ 5", "met"},
		{"at least, below", report.AtLeast(0.95), 0.9, "≥ 0.95", "missed by 0.05"},
		{"not a number", report.AtMost(1), math.NaN(), "≤ 1", "not measured"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.goal.String(); got != row.text {
				t.Errorf("goal = %q, want %q", got, row.text)
			}
			if got := row.goal.Verdict(row.value); got != row.verdict {
				t.Errorf("verdict of %v on %s = %q, want %q", row.value, row.text, got, row.verdict)
			}
		})
	}
}
