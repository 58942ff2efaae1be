// Package strayenv finds environment variables that look like settings of a program
// and are none. A typo in a variable is otherwise silent, where one in a flag is not.
package strayenv

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Variable is one that nothing reads.
type Variable struct {
	// Name of the variable. Its value may be a secret and is not kept.
	Name string
	// Nearest is the name that was probably meant; empty if none is near.
	Nearest string
}

// String describes the variable for people.
func (v Variable) String() string {
	text := fmt.Sprintf("the environment variable %q is no setting and is ignored", v.Name)
	if v.Nearest != "" {
		text += ": did you mean " + v.Nearest + "?"
	}
	return text
}

// Find returns the variables of environ, as [os.Environ] has it, that begin with prefix
// and are not among known, sorted by name. The prefix is found in lower case too, and
// with hyphens. Variables that Kubernetes sets for a Service of that name are left out.
func Find(environ []string, prefix string, known []string) []Variable {
	var found []Variable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		upper := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
		if !strings.HasPrefix(upper, prefix) || slices.Contains(known, name) || injected(upper, value) {
			continue
		}
		found = append(found, Variable{name, nearest(upper, prefix, known)})
	}
	slices.SortFunc(found, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Near returns those of [Find] to which a known name is near. It is for prefixes that
// other programs use too.
func Near(environ []string, prefix string, known []string) []Variable {
	return slices.DeleteFunc(Find(environ, prefix, known), func(v Variable) bool { return v.Nearest == "" })
}

// services are the names that Kubernetes gives to the address of a Service, as its API
// and as Docker links had it.
var services = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)$`)

// injected reports whether Kubernetes has set a variable. The value of its NAME_PORT is a
// URL such as tcp://10.0.0.1:8080.
func injected(name, value string) bool {
	return services.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// nearest returns the known name that differs least, or "" if every one differs in more
// than a third of its letters.
func nearest(name, prefix string, known []string) string {
	rest, best, least := strings.TrimPrefix(name, prefix), "", 0
	for _, k := range known {
		wanted := strings.TrimPrefix(k, prefix)
		d := Distance(rest, wanted)
		if strings.Contains(rest, "_") && strings.HasSuffix(wanted, "_"+rest) {
			d = 1 // a word is missing at its begin
		}
		if d <= max(len(wanted)/3, 1) && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// Distance returns the Levenshtein distance of a and b: how many bytes must be added, removed or
// replaced to turn one into the other.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
