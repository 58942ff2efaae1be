package main

import (
	"fmt"
	"slices"
	"strings"

	pb "fetchd/gen/fetchd/v1"
)

// errorClasses are the classes that a failed URL can have, sorted: those of the
// service, and those that the scheduler gives itself.
func errorClasses() []string {
	classes := []string{"robots_disallowed", "robots_unreachable", "service_lost", "crashed"}
	for number, name := range pb.ErrorClass_name {
		if number != int32(pb.ErrorClass_ERROR_CLASS_UNSPECIFIED) {
			classes = append(classes, strings.ToLower(strings.TrimPrefix(name, "ERROR_CLASS_")))
		}
	}
	slices.Sort(classes)
	return classes
}

// checkClass says which class was probably meant, where class is none.
func checkClass(class string) error {
	classes := errorClasses()
	if slices.Contains(classes, class) {
		return nil
	}
	wanted := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(class), "-", "_"), "error_class_")
	nearest := slices.MinFunc(classes, func(a, b string) int { return edits(wanted, a) - edits(wanted, b) })
	if edits(wanted, nearest) <= 3 {
		return &usageError{"--class", fmt.Sprintf("there is no error class %.40q; is it %s?", class, nearest)}
	}
	return &usageError{"--class", fmt.Sprintf("there is no error class %.40q: it is one of %s", class, strings.Join(classes, ", "))}
}

// edits is how many bytes must be put in, left out or changed to make b of a
// (Levenshtein's distance).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
