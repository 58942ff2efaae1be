package frontier

import (
	"fmt"
	"slices"
	"strings"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/typo"
)

// Error classes of the scheduler, in addition to those of fetchd's ErrorClass.
const (
	// ClassRobotsDisallowed means that a line of robots.txt forbids the URL.
	ClassRobotsDisallowed = "robots_disallowed"
	// ClassRobotsUnreachable means that robots.txt could not be fetched, so nothing may be fetched
	// for now.
	ClassRobotsUnreachable = "robots_unreachable"
	// ClassCrashed means that several fetches of the URL were started and their process ended
	// before the fetch did.
	ClassCrashed = "crashed"
	// ClassHostAborted means that the outcome of another URL aborted the whole host.
	ClassHostAborted = "host_aborted"
	// ClassOutOfScope means that a redirect leads to a URL that is not in the scope of the crawl.
	ClassOutOfScope = "out_of_scope"
	// ClassOverBudget means that the host has used up its budget.
	ClassOverBudget = "over_budget"
	// ClassBadSitemap means that a sitemap is not valid, or is longer than its protocol allows.
	ClassBadSitemap = "bad_sitemap"
)

// The last_error of redirects that lead nowhere (S3).
const (
	reasonTooManyRedirects = "too_many_redirects"
	reasonRedirectLoop     = "redirect_loop"
)

// className returns an ErrorClass in lower_snake_case without the prefix, as in the tables and in
// --on.
func className(c pb.ErrorClass) string {
	return strings.ToLower(strings.TrimPrefix(c.String(), "ERROR_CLASS_"))
}

// Classes returns the names of all error classes in alphabetical order.
func Classes() []string {
	names := []string{ClassRobotsDisallowed, ClassRobotsUnreachable, ClassCrashed, ClassHostAborted, ClassOutOfScope, ClassOverBudget, ClassBadSitemap}
	for n := range pb.ErrorClass_name {
		if n != 0 {
			names = append(names, className(pb.ErrorClass(n)))
		}
	}
	slices.Sort(names)
	return names
}

// CheckClass returns nil for a name of [Classes]. For another name, the error suggests the nearest
// class or lists all of them.
func CheckClass(name string) error {
	classes := Classes()
	if slices.Contains(classes, name) {
		return nil
	}
	wanted := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(name), "-", "_"), "error_class_")
	nearest := slices.MinFunc(classes, func(a, b string) int { return typo.Distance(wanted, a) - typo.Distance(wanted, b) })
	if typo.Distance(wanted, nearest) <= 3 {
		return fmt.Errorf("unknown error class %.40q; did you mean %s?", name, nearest)
	}
	return fmt.Errorf("unknown error class %.40q: the classes are %s", name, strings.Join(classes, ", "))
}
