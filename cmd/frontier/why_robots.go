package main

import (
	"fmt"

	"fetchd/frontier"
	"fetchd/frontier/robots"
	"fetchd/internal/cli"
)

// robotsReason returns a reason for a URL that robots.txt forbids, as far as it is known. An old
// file decides nothing, because it is fetched again first.
func robotsReason(e *evidence) reason {
	r := &e.Robots
	switch {
	case !r.Known || r.Decision.Allowed:
		return reason{}
	case r.Decision.Reason == robots.Unreachable:
		text := fmt.Sprintf("No URL of its origin is fetched while robots.txt is %s", unreachable(r))
		if e.URL.ReadyAt.After(e.Now) {
			text += fmt.Sprintf("; it is tried again %s at the earliest", relative(e.URL.ReadyAt, e.Now))
		}
		return reason{frontier.ClassRobotsUnreachable, text + "."}
	case r.Fresh, r.UnreachableFor > 0:
		return reason{frontier.ClassRobotsDisallowed, fmt.Sprintf("robots.txt forbids it: %s.", robotsFact(r))}
	}
	return reason{}
}

// robotsNow adds what robots.txt says now about a URL that it has ended.
func robotsNow(e *evidence) string {
	r := &e.Robots
	if e.URL.ErrorClass != frontier.ClassRobotsDisallowed || !r.Known {
		return ""
	}
	return "; robots.txt: " + robotsFact(r)
}

// robotsFact returns in one line what robots.txt says about the URL.
func robotsFact(r *frontier.RobotsState) string {
	d := r.Decision
	read := fmt.Sprintf("(read %s ago)", span(r.Age))
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
		return fmt.Sprintf("there is none, so everything is allowed: %s (fetched %s ago)", r.Cause, span(r.Age))
	case d.Reason == robots.RobotsTxt:
		return "is always allowed " + read
	}
	return fmt.Sprintf("%s (tried %s ago)", unreachable(r), span(r.Age))
}

// unreachable returns for how long robots.txt has been unreachable, and why.
func unreachable(r *frontier.RobotsState) string {
	return fmt.Sprintf("unreachable for %s: %s", span(r.UnreachableFor), r.Cause)
}

// robotsFigures is the part of the JSON of why about robots.txt.
type robotsFigures struct {
	Origin string `json:"origin"`
	Known  bool   `json:"known"` // the other fields are empty otherwise
	// Allowed and Reason are the decision. Reason is unreachable, unavailable, robots_txt, no_rule
	// or by_rule.
	Allowed       bool   `json:"allowed"`
	Reason        string `json:"reason"`
	Line          int    `json:"line,omitempty"`
	Rule          string `json:"rule,omitempty"`
	Cause         string `json:"cause,omitempty"` // why there is no file
	AgeMS         int64  `json:"age_ms"`
	UnreachableMS int64  `json:"unreachable_ms"`
}

func robotsFiguresOf(r *frontier.RobotsState) robotsFigures {
	f := robotsFigures{Origin: r.Origin, Known: r.Known}
	if !r.Known {
		return f
	}
	f.Allowed, f.Reason = r.Decision.Allowed, r.Decision.Reason.String()
	f.Line, f.Rule, f.Cause = r.Decision.Line.Number, r.Decision.Line.Text, r.Cause
	f.AgeMS, f.UnreachableMS = r.Age.Milliseconds(), r.UnreachableFor.Milliseconds()
	return f
}
