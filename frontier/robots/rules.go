package robots

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Line is a line of a robots.txt. The zero Line means none.
type Line struct {
	Number int    // from 1
	Text   string // without its comment, at most 200 characters
}

// MaxSize limits the memory of one file's rules in bytes, as [Rules.Size] counts them:
// 6,000 rules of 40 characters, or 11,000 short ones.
const MaxSize = 512 << 10

// maxText is the maximum length of a stored line, in characters.
const maxText = 200

// rule is one line of a file. Its strings are spans of the Rules' text, so a file of many short
// lines uses little memory.
type rule struct {
	line          uint32
	octets        uint32 // length of the escaped pattern, with all * of a run; the longest match decides
	text          span   // the line
	strict, loose span   // see pattern
	end, allow    bool
}

// span is a part of a text.
type span struct{ from, to uint32 }

func (s span) of(text string) string { return text[s.from:s.to] }

// Rules are the rules of a file for one crawler. They are immutable and safe for concurrent use.
type Rules struct {
	// CrawlDelay is the longest Crawl-delay for this crawler, without a limit; zero if there is
	// none.
	CrawlDelay time.Duration
	// Group is the agent of the groups whose rules apply, in lower case: the crawler's, "*", or
	// empty if the file has none.
	Group string
	rules []rule // the longest first, and Allow before Disallow
	wild  int    // those with a *, which is looked for in the whole URL
	text  string
}

const ruleSize = int(unsafe.Sizeof(rule{}))

// Size returns the memory of r in bytes: at most [MaxSize] and the fields of r.
func (r *Rules) Size() int {
	return int(unsafe.Sizeof(*r)) + cap(r.rules)*ruleSize + len(r.text)
}

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.rules) }

// builder collects rules.
type builder struct {
	list []rule
	text []byte
	full bool // later rules are ignored
}

func (b *builder) add(number uint32, text string, allow bool, value string) {
	if b.full {
		return
	}
	before, p := len(b.text), compile(value)
	r := rule{line: number, octets: p.octets, end: p.end, allow: allow}
	r.text = b.keep(firstRunes(text, maxText), span{})
	r.strict = b.keep(p.strict, r.text)
	r.loose = b.keep(p.loose, r.strict)
	if b.full = (len(b.list)+1)*ruleSize+len(b.text) > MaxSize; b.full {
		b.text = b.text[:before]
		return
	}
	b.list = append(b.list, r)
}

// keep returns the span of s in the text. It looks in the span near before it appends s.
func (b *builder) keep(s string, near span) span {
	from := len(b.text)
	if i := bytes.Index(b.text[near.from:near.to], []byte(s)); i >= 0 {
		from = int(near.from) + i
	} else {
		b.text = append(b.text, s...)
	}
	return span{from: uint32(from), to: uint32(from + len(s))} //nolint:gosec // MaxSize and one rule at most
}

// firstRunes returns the first n characters of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

func (b *builder) rules() *Rules {
	slices.SortFunc(b.list, byRank)
	r := &Rules{rules: append(make([]rule, 0, len(b.list)), b.list...), text: string(b.text)}
	for i := range r.rules {
		if strings.Contains(r.rules[i].loose.of(r.text), "*") { // the strict form has the same
			r.wild++
		}
	}
	return r
}

// byRank orders rules so that the first match decides: more octets first, then Allow before
// Disallow (RFC 9309 §2.2.2), then the order of the file.
func byRank(a, b rule) int {
	if a.octets == b.octets && a.allow != b.allow {
		if a.allow {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.octets, a.octets), cmp.Compare(a.line, b.line))
}

// Decision is a decision about one URL, with its reason.
type Decision struct {
	Allowed bool
	Reason  Reason
	// Line is the rule that decided, if Reason is ByRule.
	Line Line
}

// robotsTxt is always allowed: RFC 9309 §2.2.2.
const robotsTxt = "/robots.txt"

// Cost returns how many bytes [Rules.Decide] compares at most, about.
func (r *Rules) Cost(pathAndQuery string) int {
	return 16*len(r.rules) + 2*r.wild*len(pathAndQuery) + len(pathAndQuery)
}

// Decide decides about a path with its query, as (*url.URL).RequestURI returns it. An empty path
// means "/".
func (r *Rules) Decide(pathAndQuery string) Decision {
	if !strings.HasPrefix(pathAndQuery, "/") {
		pathAndQuery = "/" + pathAndQuery
	}
	if pathAndQuery == robotsTxt {
		return Decision{Allowed: true, Reason: RobotsTxt}
	}
	t := newTarget(pathAndQuery)
	for i := range r.rules {
		rule := &r.rules[i]
		p := pattern{strict: rule.strict.of(r.text), loose: rule.loose.of(r.text), end: rule.end}
		if p.match(t) {
			line := Line{Number: int(rule.line), Text: rule.text.of(r.text)}
			return Decision{Allowed: rule.allow, Reason: ByRule, Line: line}
		}
	}
	return Decision{Allowed: true, Reason: NoRule}
}
