package robots

import (
	"fmt"
	"time"
)

const (
	// FreshFor is how long a policy may be used before the file is fetched
	// again: RFC 9309 §2.4.
	FreshFor = 24 * time.Hour
	// DeferFor is how long a file may be unreachable before its site is no
	// longer deferred: RFC 9309 §2.3.1.4.
	DeferFor = 30 * 24 * time.Hour
	// MaxRedirects are followed in a fetch of /robots.txt: RFC 9309 §2.3.1.2.
	MaxRedirects = 5
)

// Answer is what a fetch of /robots.txt came to.
type Answer struct {
	// Status of the last response; zero if there was none.
	Status int
	// ErrorClass is the outcome's, in lower_snake_case; empty on success.
	ErrorClass string
	// Body may be cut, but not before MaxBytes+1 bytes: the one byte more reports
	// whether the last line is whole. (fetchd: that limit, and
	// OVERSIZE_ACTION_TRUNCATE.)
	Body []byte
}

// Policy is what holds for a host. The zero Policy defers everything. It may
// be used by many goroutines.
type Policy struct {
	// Rules is nil unless a file was read.
	Rules *Rules
	// Unavailable: there is no file, and everything is allowed.
	Unavailable bool
	// Cause says in a few words why there is no file.
	Cause string
}

// Judge returns the policy for the crawler with the name product after an answer: RFC
// 9309 §2.3.1. It depends only on its arguments, and tests in this order:
//
//  1. redirects that ended nowhere (more than MaxRedirects, a loop, a target
//     that may not be followed): the file is unavailable, §2.3.1.2;
//  2. 4xx: unavailable, §2.3.1.3. So is 429: the wait that it asks for is the
//     host's and not the file's;
//  3. 2xx whose body came, an empty one too: the file;
//  4. 3xx that names no target: unavailable;
//  5. all else, 5xx and no response among it: unreachable, §2.3.1.4.
func Judge(a Answer, product string) Policy {
	switch a.ErrorClass {
	case "too_many_redirects", "redirect_loop", "redirect_rejected":
		return Policy{Unavailable: true, Cause: a.ErrorClass}
	}
	switch class := a.Status / 100; {
	case class == 4:
		return Policy{Unavailable: true, Cause: fmt.Sprintf("status %d", a.Status)}
	case class == 2 && (a.ErrorClass == "" || a.ErrorClass == "empty_body"):
		return Policy{Rules: Parse(a.Body, product)}
	case class == 3 && a.ErrorClass == "":
		return Policy{Unavailable: true, Cause: fmt.Sprintf("status %d", a.Status)}
	case a.ErrorClass != "":
		return Policy{Cause: a.ErrorClass}
	case a.Status != 0:
		return Policy{Cause: fmt.Sprintf("status %d", a.Status)}
	}
	return Policy{Cause: "no response"}
}

// Deferred says that the file cannot be reached, and nothing may be fetched for now.
func (p Policy) Deferred() bool { return p.Rules == nil && !p.Unavailable }

// After is the policy once the file has been out of reach for so long. Up to
// DeferFor nothing changes. After it the rules of the last fetch that
// succeeded are used, or, if stale is nil, the file counts as unavailable.
// A policy that does not defer stays as it is.
func (p Policy) After(unreachable time.Duration, stale *Rules) Policy {
	if !p.Deferred() || unreachable < DeferFor {
		return p
	}
	return Policy{Rules: stale, Unavailable: stale == nil, Cause: p.Cause}
}

// Decide applies the rules of the file, or the policy without one. See [Rules.Decide].
func (p Policy) Decide(pathAndQuery string) Decision {
	switch {
	case pathAndQuery == robotsTxt:
		return Decision{Allowed: true, Reason: RobotsTxt}
	case p.Rules != nil:
		return p.Rules.Decide(pathAndQuery)
	case p.Unavailable:
		return Decision{Allowed: true, Reason: Unavailable}
	}
	return Decision{Reason: Unreachable}
}

// Reason says what a decision rests on.
type Reason int

const (
	// Unreachable says that the file could not be fetched, so the URL is deferred.
	Unreachable Reason = iota
	// Unavailable says that there is no file, so the URL is allowed.
	Unavailable
	// RobotsTxt is always allowed.
	RobotsTxt
	// NoRule of the file matches, so the URL is allowed.
	NoRule
	// ByRule says that the Line of the decision matches, and none outranks it.
	ByRule
)

// String is the reason in lower_snake_case.
func (r Reason) String() string {
	switch r {
	case Unreachable:
		return "unreachable"
	case Unavailable:
		return "unavailable"
	case RobotsTxt:
		return "robots_txt"
	case NoRule:
		return "no_rule"
	case ByRule:
		return "by_rule"
	}
	return fmt.Sprintf("reason_%d", int(r))
}
