package why

import (
	"fmt"
	"strings"
	"time"

	"fetchd/frontier/robots"
	"fetchd/frontier/rulebook"
	"fetchd/internal/cli"
)

// robotsReason returns a reason for a URL that robots.txt forbids, as far as it is known. An old
// file decides nothing, because it is fetched again first.
func robotsReason(e *Evidence) Reason {
	r := &e.Robots
	switch {
	case !r.Known || r.Decision.Allowed:
		return Reason{}
	case r.Decision.Reason == robots.Unreachable:
		text := fmt.Sprintf("The robots.txt of its origin, %s, is %s. No URL of this origin is fetched until it can be read", cli.Escape(r.Origin), unreachable(r))
		return Reason{"robots_unreachable", text + nextTry(e) + "."}
	case r.Fresh, r.UnreachableFor > 0:
		return Reason{"robots_disallowed", fmt.Sprintf("robots.txt forbids it: %s.", RobotsFact(r))}
	}
	return Reason{}
}

// nextTry says when an unreachable robots.txt is fetched again. A host that is closed makes that later.
func nextTry(e *Evidence) string {
	at := e.Deferred
	for _, later := range []time.Time{e.URL.ReadyAt, e.Host.BlockedUntil} {
		if later.After(at) {
			at = later
		}
	}
	if !at.After(e.Now) {
		return "; it is tried again with the next turn of the host"
	}
	return fmt.Sprintf("; it is tried again %s at the earliest", Relative(at, e.Now))
}

// robotsNow adds what is known now about a robots.txt that has ended a URL.
func robotsNow(e *Evidence) string {
	r := &e.Robots
	switch {
	case !r.Known:
	case e.URL.ErrorClass == "robots_disallowed":
		return "; robots.txt: " + RobotsFact(r)
	case e.URL.ErrorClass == "robots_unreachable":
		return fmt.Sprintf("; the robots.txt of %s: %s", cli.Escape(r.Origin), RobotsFact(r))
	}
	return ""
}

// RobotsFact returns in one line what robots.txt says about the URL.
func RobotsFact(r *rulebook.State) string {
	d := r.Decision
	read := fmt.Sprintf("(read %s ago)", Span(r.Age))
	if r.UnreachableFor > 0 {
		read = fmt.Sprintf("(as last read; %s)", unreachable(r))
	}
	switch {
	case !r.Known:
		return "not read yet"
	case d.Reason == robots.ByRule && !d.Allowed:
		return fmt.Sprintf("line %d, %.200s %s", d.Line.Number, cli.Escape(d.Line.Text), read)
	case d.Reason == robots.ByRule:
		return fmt.Sprintf("allowed by line %d, %.200s %s", d.Line.Number, cli.Escape(d.Line.Text), read)
	case d.Reason == robots.NoRule:
		return "no line matches it " + read
	case d.Reason == robots.Unavailable:
		return fmt.Sprintf("there is none, so everything is allowed: %s (fetched %s ago)", r.Cause, Span(r.Age))
	case d.Reason == robots.RobotsTxt:
		return "is always allowed " + read
	}
	return fmt.Sprintf("%s (tried %s ago)", unreachable(r), Span(r.Age))
}

// unreachable returns for how long robots.txt has been unreachable, and why.
func unreachable(r *rulebook.State) string {
	return fmt.Sprintf("unreachable for %s: %s", Span(r.UnreachableFor), cli.Escape(RobotsCause(r)))
}

// RobotsCause returns why robots.txt is unreachable: the error class, and what fetchd said. It is not escaped.
func RobotsCause(r *rulebook.State) string {
	if r.Text == "" {
		return r.Cause
	}
	return r.Cause + ": " + strings.TrimSuffix(r.Text, ".")
}
