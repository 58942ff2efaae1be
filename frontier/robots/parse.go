package robots

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// MaxBytes is how much of a file is read; the rest is as if it were not there.
// RFC 9309 §2.5.
const MaxBytes = 500 << 10

// File is a robots.txt that was read. It does not change, and may be used by
// many goroutines.
type File struct {
	// Sitemaps are the values of Sitemap lines, in order and as written.
	Sitemaps []string
	groups   []*group
}

// group is a run of user-agent lines and what follows it: RFC 9309 §2.1.
type group struct {
	agents []string // their tokens in the order of their lines, in lower case; "*" for all
	delays []delay  // those that count for one agent or another, the longest first
	rules  []rule
}

// delay is told to the first agents of a group, as many as were named before it.
type delay struct {
	agents int
	length time.Duration
}

// Parse reads a file. Any bytes are a file: a line that is not understood is
// passed over, and touches no other.
func Parse(body []byte) *File {
	if len(body) > MaxBytes {
		body = wholeLines(body[:MaxBytes+1])
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	p := parser{file: &File{}}
	for number := 1; len(body) > 0; number++ {
		var line []byte
		line, body = nextLine(body)
		p.line(number, string(line))
	}
	return p.file
}

// wholeLines takes off the line that a limit goes through: half of
// "Disallow: /private" would close the whole site.
func wholeLines(body []byte) []byte {
	return body[:bytes.LastIndexAny(body, "\r\n")+1]
}

// nextLine ends a line at CR, LF or both: RFC 9309 §2.2, EOL.
func nextLine(body []byte) (line, rest []byte) {
	i := bytes.IndexAny(body, "\r\n")
	if i < 0 {
		return body, nil
	}
	line, rest = body[:i], body[i+1:]
	if body[i] == '\r' {
		rest = bytes.TrimPrefix(rest, []byte("\n"))
	}
	return line, rest
}

// parser is the state between two lines.
type parser struct {
	file  *File
	group *group // nil before the first user-agent line
	ruled bool   // the group has a rule, so a user-agent line begins another
}

func (p *parser) line(number int, text string) {
	text, _, _ = strings.Cut(text, "#")
	name, value := record(text)
	switch strings.ToLower(name) {
	case "user-agent", "useragent", "user agent":
		p.agents(value)
	case "allow":
		p.rule(Line{Number: number, Text: trim(text)}, true, value)
	// The spellings that google/robotstxt takes for disallow too.
	case "disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw":
		p.rule(Line{Number: number, Text: trim(text)}, false, value)
	case "crawl-delay":
		p.delay(value)
	case "sitemap":
		if value != "" {
			p.file.Sitemaps = append(p.file.Sitemaps, value)
		}
	}
}

// record cuts a line into name and value. google/robotstxt and crawler-commons
// do without the colon where the line has two words.
func record(text string) (name, value string) {
	if name, value, ok := strings.Cut(text, ":"); ok {
		return trim(name), trim(value)
	}
	if words := strings.Fields(text); len(words) == 2 {
		return words[0], words[1]
	}
	return "", ""
}

// agents begins a group, or adds to it. A line should name one agent; those
// that name several mean all of them, as crawler-commons has it.
func (p *parser) agents(value string) {
	for name := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		token := productToken(name)
		if token == "" {
			continue
		}
		if p.group == nil || p.ruled {
			p.group, p.ruled = &group{}, false
			p.file.groups = append(p.file.groups, p.group)
		}
		p.group.agents = append(p.group.agents, token)
	}
}

func (p *parser) rule(line Line, allow bool, value string) {
	if p.group == nil {
		return
	}
	p.ruled = true
	// An empty pattern matches nothing: RFC 9309 §2.2, empty-pattern. It is
	// a rule all the same, and ends the user-agent lines.
	if value != "" {
		p.group.rules = append(p.group.rules, rule{line: line, allow: allow, pattern: compile(value)})
	}
}

// delay is told to the agents named so far. It does not end their lines: other
// records must not interfere with groups, RFC 9309 §2.2.4.
func (p *parser) delay(value string) {
	length, ok := seconds(value)
	if p.group == nil || !ok {
		return
	}
	// One that came before and is no longer is told to no agent that this one is not.
	// Each is put in once and taken out once, so a file takes no more steps than lines.
	delays := p.group.delays
	for len(delays) > 0 && delays[len(delays)-1].length <= length {
		delays = delays[:len(delays)-1]
	}
	p.group.delays = append(delays, delay{len(p.group.agents), length})
}

// productToken is the part of a name that is compared: a version or a comment
// after it is no part of it.
func productToken(name string) string {
	if i := strings.IndexAny(name, "/ \t(;"); i >= 0 {
		name = name[:i]
	}
	return strings.ToLower(name)
}

// seconds reads digits with a fraction. What does not fit is the longest delay.
func seconds(value string) (time.Duration, bool) {
	if strings.Trim(value, "0123456789.") != "" {
		return 0, false
	}
	s, err := strconv.ParseFloat(value, 64)
	if err != nil && !math.IsInf(s, 1) {
		return 0, false
	}
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64, true
	}
	return time.Duration(s * float64(time.Second)), true
}

// trim takes more for space than RFC 9309 does, as files do.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r == 0 || unicode.IsSpace(r) })
}
