package rules

import (
	_ "embed"
	"regexp"
	"strings"
)

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
