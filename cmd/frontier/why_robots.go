package main

import "fetchd/frontier"

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
	Text          string `json:"text,omitempty"`  // what fetchd said about the error
	AgeMS         int64  `json:"age_ms"`
	UnreachableMS int64  `json:"unreachable_ms"`
}

func robotsFiguresOf(r *frontier.RobotsState) robotsFigures {
	f := robotsFigures{Origin: r.Origin, Known: r.Known}
	if !r.Known {
		return f
	}
	f.Allowed, f.Reason = r.Decision.Allowed, r.Decision.Reason.String()
	f.Line, f.Rule, f.Cause, f.Text = r.Decision.Line.Number, r.Decision.Line.Text, r.Cause, r.Text
	f.AgeMS, f.UnreachableMS = r.Age.Milliseconds(), r.UnreachableFor.Milliseconds()
	return f
}
