package robots

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Line is a line of a robots.txt. The zero Line is none.
type Line struct {
	Number int    // from 1
	Text   string // without its comment
}

type rule struct {
	line    Line
	allow   bool
	pattern pattern
}

// Rules are what a file says to one crawler. They do not change, and may be
// used by many goroutines.
type Rules struct {
	// CrawlDelay is the greatest that the file asks this crawler for, of any
	// size; zero if none.
	CrawlDelay time.Duration
	// Group is the token by which the rules were found, in lower case: that of
	// the crawler, "*", or empty where the file has no group for it.
	Group string
	rules []rule // the longest first, and Allow before Disallow
}

// Rules merges the groups that name the crawler, or those of "*" if none does:
// RFC 9309 §2.2.1. The product token is compared without regard to case; a
// version after it does no harm.
func (f *File) Rules(product string) *Rules {
	token := productToken(product)
	if token == "" || !f.names(token) {
		token = "*"
	}
	if !f.names(token) {
		return &Rules{}
	}
	merged := &Rules{Group: token}
	for _, g := range f.groups {
		if g.names(token) {
			merged.rules = append(merged.rules, g.rules...)
			merged.CrawlDelay = max(merged.CrawlDelay, g.delay(token))
		}
	}
	slices.SortStableFunc(merged.rules, byRank)
	return merged
}

func (f *File) names(token string) bool {
	return slices.ContainsFunc(f.groups, func(g *group) bool { return g.names(token) })
}

func (g *group) names(token string) bool {
	return slices.Contains(g.agents, token)
}

// delay is the longest that was told to an agent. The line that named it first is
// told the most.
func (g *group) delay(token string) time.Duration {
	first := slices.Index(g.agents, token)
	for _, d := range g.delays {
		if d.agents > first {
			return d.length
		}
	}
	return 0
}

// byRank puts the rule first that decides where two match: the one with the
// most octets, and Allow of two that are equal. RFC 9309 §2.2.2.
func byRank(a, b rule) int {
	if c := cmp.Compare(b.pattern.octets, a.pattern.octets); c != 0 || a.allow == b.allow {
		return c
	}
	if a.allow {
		return -1
	}
	return 1
}

// Decision is what was decided about one URL, and why.
type Decision struct {
	Allowed bool
	Reason  Reason
	// Line decided, if Reason is ByRule.
	Line Line
}

// robotsTxt is allowed whatever the file says: RFC 9309 §2.2.2.
const robotsTxt = "/robots.txt"

// Decide says whether pathAndQuery may be fetched: what (*url.URL).RequestURI
// returns. An empty path is the same as "/".
func (r *Rules) Decide(pathAndQuery string) Decision {
	if !strings.HasPrefix(pathAndQuery, "/") {
		pathAndQuery = "/" + pathAndQuery
	}
	if pathAndQuery == robotsTxt {
		return Decision{Allowed: true, Reason: RobotsTxt}
	}
	t := newTarget(pathAndQuery)
	for _, rule := range r.rules {
		if rule.pattern.match(t) {
			return Decision{Allowed: rule.allow, Reason: ByRule, Line: rule.line}
		}
	}
	return Decision{Allowed: true, Reason: NoRule}
}
