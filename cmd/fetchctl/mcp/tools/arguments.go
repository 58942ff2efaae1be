package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// arguments are the arguments of a call that are not read yet. After the last one, fault is what
// is wrong with them.
type arguments struct {
	values map[string]json.RawMessage
	names  []string // of the arguments that were asked for
	faults []string
}

func readArguments(raw json.RawMessage) *arguments {
	a := &arguments{values: make(map[string]json.RawMessage)}
	if len(raw) > 0 && json.Unmarshal(raw, &a.values) != nil {
		a.faults = append(a.faults, fmt.Sprintf("The arguments are %s: give an object.", quoted(raw)))
	}
	return a
}

// reject adds a fault: the argument, its value and the remedy.
func (a *arguments) reject(name, remedy string) {
	a.faults = append(a.faults, fmt.Sprintf("%s is %s: %s.", name, quoted(a.values[name]), remedy))
}

// value decodes an argument into to, and reports whether it is there. A value of another type is
// rejected.
func (a *arguments) value(name string, to any, remedy string) bool {
	a.names = append(a.names, name)
	raw, ok := a.values[name]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return false
	}
	if json.Unmarshal(raw, to) != nil {
		a.reject(name, remedy)
		return false
	}
	return true
}

// text returns a string.
func (a *arguments) text(name string) (s string) {
	a.value(name, &s, "give a string")
	return s
}

// integer returns a whole number from lowest to highest, or fallback if there is none.
func (a *arguments) integer(name string, fallback, lowest, highest int) int {
	remedy := fmt.Sprintf("give a whole number from %d to %d", lowest, highest)
	if lowest == 0 {
		remedy = "give a whole number of 0 or more"
	}
	var n float64 // models write 5000.0 too
	if !a.value(name, &n, remedy) {
		return fallback
	}
	if n != math.Trunc(n) || n < float64(lowest) || n > float64(highest) {
		a.reject(name, remedy)
		return fallback
	}
	return int(n)
}

// boolean returns true or false.
func (a *arguments) boolean(name string) (b bool) {
	a.value(name, &b, "give true or false")
	return b
}

// fault returns what is wrong with the arguments, or an empty text. An argument that was not asked
// for is a fault.
func (a *arguments) fault() string {
	for _, name := range slices.Sorted(maps.Keys(a.values)) {
		if !slices.Contains(a.names, name) {
			a.faults = append(a.faults, fmt.Sprintf("%.60q is not an argument: use %s.", name, strings.Join(a.names, ", ")))
		}
	}
	return strings.Join(a.faults, "\n")
}

// quoted returns a value as it was sent, shortened.
func quoted(raw json.RawMessage) string {
	const limit = 200
	if len(raw) == 0 {
		return "missing"
	}
	if len(raw) > limit {
		return strings.ToValidUTF8(string(raw[:limit]), "") + "…"
	}
	return string(raw)
}
