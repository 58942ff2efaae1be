package frontier

import (
	"fmt"
	"slices"
	"strings"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/typo"
)

// The error classes that are the scheduler's own, beside those of fetchd's ErrorClass.
const (
	// ClassRobotsDisallowed: a line of robots.txt forbids the URL.
	ClassRobotsDisallowed = "robots_disallowed"
	// ClassRobotsUnreachable: robots.txt could not be fetched, so nothing may be for now.
	ClassRobotsUnreachable = "robots_unreachable"
	// ClassCrashed: the fetch was begun several times, and what carried it out died of it.
	ClassCrashed = "crashed"
	// ClassHostAborted: another URL of the host ended in a way that gives the host up.
	ClassHostAborted = "host_aborted"
)

// reasonTooManyRedirects and reasonRedirectLoop are what last_error says of a
// redirect that ended nowhere (S3).
const (
	reasonTooManyRedirects = "too_many_redirects"
	reasonRedirectLoop     = "redirect_loop"
)

// className is an ErrorClass as it stands in the tables and in --on:
// lower_snake_case without the prefix.
func className(c pb.ErrorClass) string {
	return strings.ToLower(strings.TrimPrefix(c.String(), "ERROR_CLASS_"))
}

// Classes are the names of all error classes, in alphabetical order.
func Classes() []string {
	names := []string{ClassRobotsDisallowed, ClassRobotsUnreachable, ClassCrashed, ClassHostAborted}
	for n := range pb.ErrorClass_name {
		if n != 0 {
			names = append(names, className(pb.ErrorClass(n)))
		}
	}
	slices.Sort(names)
	return names
}

// CheckClass returns nil for a name of [Classes], and else an error that says
// which one was probably meant, or which there are.
func CheckClass(name string) error {
	classes := Classes()
	if slices.Contains(classes, name) {
		return nil
	}
	wanted := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(name), "-", "_"), "error_class_")
	nearest := slices.MinFunc(classes, func(a, b string) int { return typo.Distance(wanted, a) - typo.Distance(wanted, b) })
	if typo.Distance(wanted, nearest) <= 3 {
		return fmt.Errorf("there is no error class %.40q; is it %s?", name, nearest)
	}
	return fmt.Errorf("there is no error class %.40q: it is one of %s", name, strings.Join(classes, ", "))
}
