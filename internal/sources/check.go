package sources

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	tableRule  = regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|`)
	listRule   = regexp.MustCompile(`(?m)^- ([A-Z]\d+)\.`)
	sectionNum = regexp.MustCompile(`(?m)^## (\d+)\.`)
)

// Rules returns the rules that the specification defines: the first cell of a
// table's row ("| H1 |"), the head of a list's item ("- W1."), and each
// numbered section, as "§9".
func Rules(spec string) map[string]bool {
	rules := map[string]bool{}
	for _, pattern := range []*regexp.Regexp{tableRule, listRule} {
		for _, m := range pattern.FindAllStringSubmatch(spec, -1) {
			rules[m[1]] = true
		}
	}
	for _, m := range sectionNum.FindAllStringSubmatch(spec, -1) {
		rules["§"+m[1]] = true
	}
	return rules
}

// Check returns what is wrong with rows, each as "line N: …", and then the departures
// (rules X1 and so on) that no row cites.
func Check(rows []Row, rules map[string]bool, tree *Tree) []string {
	var faults []string
	cited := map[string]bool{}
	for _, row := range rows {
		for _, fault := range rowFaults(row, rules, tree) {
			faults = append(faults, fmt.Sprintf("line %d: %s", row.Line, fault))
		}
		for _, rule := range row.Rules {
			cited[rule] = true
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		if strings.HasPrefix(rule, "X") && !cited[rule] {
			faults = append(faults, fmt.Sprintf("no row cites the departure %s", rule))
		}
	}
	return faults
}

func rowFaults(row Row, rules map[string]bool, tree *Tree) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if strings.Trim(row.Statement, none+"- ") == "" {
		fault("the row has no statement")
	}
	if len(row.Rules) == 0 {
		fault("the statement has no rule")
	}
	// What this tree leaves to others has neither; code without a test, or a
	// test of nothing, is a gap.
	if (len(row.Symbols) == 0) != (len(row.Tests) == 0) {
		fault("symbol and test: name both or neither")
	}
	for _, rule := range row.Rules {
		if !rules[rule] {
			fault("the specification has no rule %s", rule)
		}
	}
	for _, symbol := range row.Symbols {
		if !tree.HasSymbol(symbol) {
			fault("the sources have no symbol %s", symbol)
		}
	}
	for _, test := range row.Tests {
		if !tree.HasTest(test) {
			fault("the sources have no test %s", test)
		}
	}
	return faults
}
