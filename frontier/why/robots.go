package why

import (
	"fmt"

	"fetchd/frontier"
	"fetchd/frontier/robots"
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
		text := fmt.Sprintf("No URL of its origin is fetched while robots.txt is %s", unreachable(r))
		if e.URL.ReadyAt.After(e.Now) {
			text += fmt.Sprintf("; it is tried again %s at the earliest", Relative(e.URL.ReadyAt, e.Now))
		}
		return Reason{frontier.ClassRobotsUnreachable, text + "."}
	case r.Fresh, r.UnreachableFor > 0:
		return Reason{frontier.ClassRobotsDisallowed, fmt.Sprintf("robots.txt forbids it: %s.", RobotsFact(r))}
	}
	return Reason{}
}

// robotsNow adds what robots.txt says now about a URL that it has ended.
func robotsNow(e *Evidence) string {
	r := &e.Robots
	if e.URL.ErrorClass != frontier.ClassRobotsDisallowed || !r.Known {
		return ""
	}
	return "; robots.txt: " + RobotsFact(r)
}

// RobotsFact returns in one line what robots.txt says about the URL.
func RobotsFact(r *frontier.RobotsState) string {
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
func unreachable(r *frontier.RobotsState) string {
	return fmt.Sprintf("unreachable for %s: %s", Span(r.UnreachableFor), r.Cause)
}
