package robots

import (
	"fmt"
	"time"
)

const (
	// FreshFor is how long a policy may be used before the file is fetched again: RFC 9309 §2.4.
	FreshFor = 24 * time.Hour
	// DeferFor is how long an unreachable file defers its site: RFC 9309 §2.3.1.4.
	DeferFor = 30 * 24 * time.Hour
	// MaxRedirects is the maximum of redirects to a /robots.txt: RFC 9309 §2.3.1.2.
	MaxRedirects = 5
)

// Answer is the result of a fetch of /robots.txt.
type Answer struct {
	// Status is that of the last response; zero if there was none.
	Status int
	// ErrorClass is the error class of the outcome in lower_snake_case; empty on success.
	ErrorClass string
	// Body may be truncated, but only after MaxBytes+1 bytes: the additional byte shows whether the
	// last line is complete. With fetchd, use that limit and OVERSIZE_ACTION_TRUNCATE.
	Body []byte
}

// Policy decides which URLs of an origin may be fetched. The zero Policy defers everything. It is
// safe for concurrent use.
type Policy struct {
	// Rules is nil if no file was read.
	Rules *Rules
	// Unavailable means that there is no file, so everything is allowed.
	Unavailable bool
	// Cause says briefly why there is no file.
	Cause string
}

// Judge returns the policy for the crawler with the name product after an answer: RFC 9309 §2.3.1.
// It depends only on its arguments, and checks in this order:
//
//  1. Redirects that lead nowhere (more than MaxRedirects, a loop, a target that may not be
//     followed): the file is unavailable, §2.3.1.2.
//  2. 4xx: unavailable, §2.3.1.3. That includes 429, whose wait applies to the host and not to the
//     file.
//  3. 2xx with a complete body, which may be empty: the file.
//  4. 3xx without a target: unavailable.
//  5. Everything else, such as 5xx or no response: unreachable, §2.3.1.4.
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

// Deferred reports whether the file is unreachable, so that nothing may be fetched for now.
func (p Policy) Deferred() bool { return p.Rules == nil && !p.Unavailable }

// After returns the policy for a file that has been unreachable for a time. Up to DeferFor it
// returns p. After that the policy has the rules of the last successful fetch or, if stale is nil,
// treats the file as unavailable. A policy that does not defer is returned unchanged.
func (p Policy) After(unreachable time.Duration, stale *Rules) Policy {
	if !p.Deferred() || unreachable < DeferFor {
		return p
	}
	return Policy{Rules: stale, Unavailable: stale == nil, Cause: p.Cause}
}

// Cost returns what [Policy.Decide] costs. See [Rules.Cost].
func (p Policy) Cost(pathAndQuery string) int {
	if p.Rules == nil {
		return 0
	}
	return p.Rules.Cost(pathAndQuery)
}

// Decide applies the rules of the file, or the policy if there is none. See [Rules.Decide].
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

// Reason is the basis of a decision.
type Reason int

const (
	// Unreachable means that the file could not be fetched, so the URL is deferred.
	Unreachable Reason = iota
	// Unavailable means that there is no file, so the URL is allowed.
	Unavailable
	// RobotsTxt means that the URL is robots.txt, which is always allowed.
	RobotsTxt
	// NoRule means that no rule matches, so the URL is allowed.
	NoRule
	// ByRule means that the Line of the decision matches with the highest rank.
	ByRule
)

// String returns the reason in lower_snake_case.
func (r Reason) String() string {
	names := [...]string{Unreachable: "unreachable", Unavailable: "unavailable", RobotsTxt: "robots_txt", NoRule: "no_rule", ByRule: "by_rule"}
	if r < 0 || int(r) >= len(names) {
		return fmt.Sprintf("reason_%d", int(r))
	}
	return names[r]
}
