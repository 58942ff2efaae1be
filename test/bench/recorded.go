package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"fetchd/test/bench/report"
)

// allowance is by how much the median of a ratio may exceed the recorded one: 15 %.
const allowance = 1.15

// ratios are the medians of the rows that compare two subjects, by the names of the rows.
type ratios map[string]float64

func ratiosOf(results []measured) ratios {
	found := make(ratios)
	for i := range results {
		m := &results[i]
		for _, r := range m.rows {
			if r.mode == ratio {
				of, base := m.values(r.of.name, r.figure), m.values(r.base.name, r.figure)
				found[r.name] = report.SpreadOf(report.Ratios(of, base)).Median
			}
		}
	}
	return found
}

// readRatios reads lines such as "unary 1.52". Lines that begin with # are comments.
func readRatios(file string) (ratios, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := make(ratios)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s: %q: write a name and a ratio", file, strings.TrimSpace(line))
		}
		value, err := strconv.ParseFloat(fields[1], 64)
		if err != nil || value <= 0 {
			return nil, fmt.Errorf("%s: %q: the ratio of %s must be a number above 0", file, fields[1], fields[0])
		}
		found[fields[0]] = value
	}
	return found, nil
}

// record writes the ratios to a file.
func (now ratios) record(file string) error {
	text := "# CPU of the service a fetch, divided by the bare relay's in the same rounds: medians.\n# .ci/allocs --write makes this file.\n"
	for _, name := range now.names() {
		text += fmt.Sprintf("%s %.3f\n", name, now[name])
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// compare returns an error that names each ratio that exceeds the recorded one by more than the
// allowance, and each that is only in one of both.
func (now ratios) compare(recorded ratios) error {
	var faults []error
	for _, name := range now.names() {
		was, there := recorded[name]
		switch {
		case now[name] <= 0:
			faults = append(faults, fmt.Errorf("%s was not measured", name))
		case !there:
			faults = append(faults, fmt.Errorf("%s is not recorded", name))
		case now[name] > was*allowance:
			faults = append(faults, fmt.Errorf("%s: the ratio is %.2f, %.2f allowed, %.2f recorded", name, now[name], was*allowance, was))
		}
	}
	for _, name := range recorded.names() {
		if _, there := now[name]; !there {
			faults = append(faults, fmt.Errorf("%s is recorded and was not measured", name))
		}
	}
	return errors.Join(faults...)
}

func (now ratios) names() []string {
	var names []string
	for name := range now {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
