// Package rules has one sentence for each rule of docs/spec.md, and the departures from the source
// documents (X1 and up). The command line, the console and docs/outcomes.md show them.
package rules

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
)

// Rule is a rule of the specification in one sentence.
type Rule struct {
	ID       string // a letter and a number, such as "H6"
	Sentence string
}

// Sentence returns the sentence of a rule, or "" if the rule has none.
func Sentence(id string) string {
	for _, r := range All {
		if r.ID == id {
			return r.Sentence
		}
	}
	return ""
}

// Exceptions returns the rules that limit or replace a rule in some cases, in the order of the specification.
func Exceptions(id string) []Rule {
	var all []Rule
	for _, r := range All {
		if slices.Contains(strings.Fields(excepted[r.ID]), id) {
			all = append(all, r)
		}
	}
	return all
}

// retried are the classes that are retried.
const retried = "N1 N2 N3 N4 N5 N7 N8 N9 N11 H1 H2 H5 H10 H11"

// excepted has the rules that a rule limits or replaces in some cases.
var excepted = map[string]string{
	"N1": "P1", "H9": "P1 R1 R2 R3", "H10": "H5 H6", "H11": "H6 H10 W1",
	"W2": "W1", "W3": "W2", "W4": "W1 W2 I1",
	"I2": retried + " I6", "I3": "D1 I2", "I4": retried + " I1",
	"B2": "H6 I5", "B3": "N8 N9 I1", "B8": "B1 B3", "B9": "I5",
	"A2": "H3 W1 I2", "A3": "A2", "A5": "I6", "A6": "I6", "A8": "H3 H4 W1 I2",
}

// sentences has a line for each rule.
//
//go:embed rules.tsv
var sentences string

// All has the rules in the order of the specification. It must not be changed.
var All = func() (all []Rule) {
	for line := range strings.Lines(sentences) {
		id, sentence, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		all = append(all, Rule{id, sentence})
	}
	return all
}()

// departures has the table of docs/spec.md §14 with tabs between the cells. .ci/generated writes it.
//
//go:embed departures.tsv
var departures string

// Departure is a difference from the source documents: a row of docs/spec.md §14.
type Departure struct {
	ID, Document      string // such as "X3" and "S2 §5.2"
	Says, Here, Cause string
}

// Amends reports whether the departure names a rule.
func (d *Departure) Amends(id string) bool {
	named, err := regexp.MatchString(`\b`+id+`\b`, d.Says+" "+d.Here)
	return err == nil && named
}

// Departures returns all departures in the order of the specification.
func Departures() []Departure {
	var all []Departure
	for line := range strings.Lines(departures) {
		if cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(cells) == 5 {
			all = append(all, Departure{cells[0], cells[1], cells[2], cells[3], cells[4]})
		}
	}
	return all
}
