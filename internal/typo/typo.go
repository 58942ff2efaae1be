// Package typo finds misspelt names. A program rejects an unknown flag, but it never
// notices an environment variable that is misspelt, so [Find] looks for them.
package typo

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Variable is an environment variable that has no effect.
type Variable struct {
	// Name of the variable. Its value is not kept, because it may be a secret.
	Name string
	// Nearest is the name that was probably meant; empty if none is near.
	Nearest string
}

// String returns a warning about the variable.
func (v Variable) String() string {
	text := fmt.Sprintf("the environment variable %q is not a setting and is ignored", v.Name)
	if v.Nearest != "" {
		text += ": did you mean " + v.Nearest + "?"
	}
	return text
}

// Find returns the variables in environ, as from [os.Environ], that begin with prefix but
// are not known, sorted by name. It also finds the prefix in lower case and with hyphens.
// It leaves out the variables that Kubernetes sets for a Service with that name.
func Find(environ []string, prefix string, known []string) []Variable {
	var found []Variable
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		upper := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
		if !strings.HasPrefix(upper, prefix) || slices.Contains(known, name) || injected(upper, value) {
			continue
		}
		found = append(found, Variable{name, Nearest(upper, prefix, known)})
	}
	slices.SortFunc(found, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Near is like [Find], but returns only variables that resemble a known name. It is for
// prefixes that other programs use too.
func Near(environ []string, prefix string, known []string) []Variable {
	return slices.DeleteFunc(Find(environ, prefix, known), func(v Variable) bool { return v.Nearest == "" })
}

// services matches the variables in which Kubernetes passes the address of a Service, in
// its own form and in that of Docker links.
var services = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)$`)

// injected reports whether Kubernetes has set a variable. Its NAME_PORT has a URL such as
// tcp://10.0.0.1:8080 as value.
func injected(name, value string) bool {
	return services.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// Nearest returns the most similar known name, or "" if every known name differs in more
// than a third of its letters.
func Nearest(name, prefix string, known []string) string {
	rest, best, least := strings.TrimPrefix(name, prefix), "", 0
	for _, k := range known {
		wanted := strings.TrimPrefix(k, prefix)
		d := Distance(rest, wanted)
		if strings.Contains(rest, "_") && strings.HasSuffix(wanted, "_"+rest) {
			d = 1 // the first word is missing
		}
		if d <= max(len(wanted)/3, 1) && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// Distance returns the Levenshtein distance between a and b: how many bytes must be
// inserted, deleted or replaced to turn a into b.
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
