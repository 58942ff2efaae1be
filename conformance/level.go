package conformance

import "slices"

// Levels are the parts of the specification that an implementation can be whole at, from the first to the last.
var Levels = []string{"core", "waiting", "redirects", "bodies", "resumption"}

// Level returns the level of what is about these rules: the last one that a rule belongs to. Core is which failures
// are retried, and how often.
func Level(rules ...string) string {
	last := 0
	for _, rule := range rules {
		level := "core"
		switch {
		case rule == "B2":
			level = "resumption"
		case rule[0] == 'W':
			level = "waiting"
		case rule[0] == 'D' || rule[0] == 'R':
			level = "redirects"
		case rule[0] == 'B' || rule[0] == 'C':
			level = "bodies"
		}
		last = max(last, slices.Index(Levels, level))
	}
	return Levels[last]
}
