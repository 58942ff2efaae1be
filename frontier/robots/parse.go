package robots

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// MaxBytes is how much of a file is read. The rest is ignored: RFC 9309 §2.5.
const MaxBytes = 500 << 10

// Parse parses a file and returns its rules for the crawler with the name product. It merges the
// groups that name the crawler, or those of "*" if none does: RFC 9309 §2.2.1. It compares names
// without regard to case, by their leading letters, _ and -. So "mybot*", "MyBot/2.1" and "mybot2"
// are all "mybot".
//
// Any bytes are a valid file: an unknown line is ignored and does not affect others. Rules that do
// not fit into [MaxSize] are ignored.
func Parse(body []byte, product string) *Rules {
	if len(body) > MaxBytes {
		body = wholeLines(body[:MaxBytes+1])
	}
	rest := string(trimMark(body))
	p := parser{token: ProductToken(product)}
	if p.token == "" {
		p.token = everyone
	}
	for number := uint32(1); rest != ""; number++ {
		var line string
		line, rest = nextLine(rest)
		p.line(number, line)
	}
	return p.rules()
}

// trimMark removes a byte order mark. Like google/robotstxt, it accepts an incomplete one: otherwise
// the first line, which names a crawler, would be lost.
func trimMark(body []byte) []byte {
	for _, c := range []byte("\ufeff") {
		if len(body) == 0 || body[0] != c {
			break
		}
		body = body[1:]
	}
	return body
}

// wholeLines drops an incomplete last line: half of "Disallow: /private" would close the whole
// site.
func wholeLines(body []byte) []byte {
	return body[:bytes.LastIndexAny(body, "\r\n")+1]
}

// nextLine returns the text up to CR, LF or CRLF: RFC 9309 §2.2, EOL.
func nextLine(text string) (line, rest string) {
	i := strings.IndexAny(text, "\r\n")
	if i < 0 {
		return text, ""
	}
	line, rest = text[:i], text[i+1:]
	if text[i] == '\r' {
		rest = strings.TrimPrefix(rest, "\n")
	}
	return line, rest
}

// everyone is the agent of the groups for all crawlers without a group.
const everyone = "*"

// parser is the state between two lines.
type parser struct {
	token string // of this crawler, in lower case
	group group
	// If named is set, the rules are those of the groups for token. Otherwise, if general is set,
	// they are those of the groups for everyone.
	named, general bool
	delay          time.Duration
	builder        builder
}

// group is a run of user-agent lines and what follows it: RFC 9309 §2.1.
type group struct {
	open  bool // a user-agent line was read
	ruled bool // it has a rule, so the next user-agent line starts another group
	ours  bool // it names this crawler
	all   bool // it names everyone
}

func (p *parser) line(number uint32, text string) {
	text, _, _ = strings.Cut(text, "#")
	name, value := record(text)
	switch strings.ToLower(name) {
	case "user-agent", "useragent", "user agent":
		p.agents(value)
	case "allow":
		p.rule(number, text, true, value)
	// google/robotstxt accepts these spellings of disallow too.
	case "disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw":
		p.rule(number, text, false, value)
	case "crawl-delay":
		p.crawlDelay(value)
	}
}

// record splits a line into name and value. Like google/robotstxt and crawler-commons, it accepts a
// line of two words without a colon.
func record(text string) (name, value string) {
	if name, value, ok := strings.Cut(text, ":"); ok {
		return trim(name), trim(value)
	}
	words := 0
	for word := range strings.FieldsSeq(text) {
		switch words++; words {
		case 1:
			name = word
		case 2:
			value = word
		default:
			return "", ""
		}
	}
	if words == 2 {
		return name, value
	}
	return "", ""
}

// agents starts a group or adds to it. A line should name one agent. Like crawler-commons, we
// accept several.
func (p *parser) agents(value string) {
	for name := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		token := ProductToken(name)
		if token == "" {
			continue
		}
		if p.group.ruled {
			p.group = group{}
		}
		p.group.open = true
		switch token {
		case p.token:
			p.group.ours = true
			if !p.named { // the rules for everyone do not apply to this crawler
				p.named, p.delay, p.builder = true, 0, builder{}
			}
		case everyone:
			p.group.all, p.general = true, true
		}
	}
}

// counts reports whether the lines that follow are for this crawler.
func (p *parser) counts() bool {
	if p.named {
		return p.group.ours
	}
	return p.group.all
}

func (p *parser) rule(number uint32, text string, allow bool, value string) {
	p.group.ruled = p.group.open
	// An empty pattern matches nothing: RFC 9309 §2.2, empty-pattern. But it is a rule, and ends
	// the user-agent lines.
	if value != "" && p.counts() {
		p.builder.add(number, trim(text), allow, value)
	}
}

// crawlDelay sets the delay of the current group's agents. It does not end the group's
// user-agent lines: other records must not interfere with groups, RFC 9309 §2.2.4.
func (p *parser) crawlDelay(value string) {
	if length, ok := seconds(value); ok && p.counts() {
		p.delay = max(p.delay, length)
	}
}

func (p *parser) rules() *Rules {
	r := p.builder.rules()
	switch r.CrawlDelay = p.delay; {
	case p.named:
		r.Group = p.token
	case p.general:
		r.Group = everyone
	}
	return r
}

// ProductToken returns the part of a name that is compared: its leading letters, _ and -, as
// google/robotstxt and RFC 9309 §2.2.1 define it. A name that starts with another character, such
// as "360bot" or "*", is compared up to its version or comment.
func ProductToken(name string) string {
	n := strings.IndexFunc(name, func(r rune) bool { return !isLetter(r) && r != '_' && r != '-' })
	if n == 0 {
		n = strings.IndexAny(name, "/ \t(;")
	}
	if n >= 0 {
		name = name[:n]
	}
	return strings.ToLower(name)
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

// seconds parses digits with a fraction. A value that is too large becomes the longest delay.
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

// trim removes more kinds of space than RFC 9309 allows, because files contain them.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r == 0 || unicode.IsSpace(r) })
}

const (
	// MaxSitemaps is how many Sitemap lines of a file count.
	MaxSitemaps = 1000
	// maxSitemap is the maximum length of their URLs, in bytes.
	maxSitemap = 8 << 10
)

// Sitemaps returns the values of the Sitemap lines of a file, each once. They belong to no group,
// and may be anything: https://www.sitemaps.org/protocol.html#submit_robots.
func Sitemaps(body []byte) []string {
	if len(body) > MaxBytes {
		body = wholeLines(body[:MaxBytes+1])
	}
	rest := string(trimMark(body))
	var found []string
	for rest != "" && len(found) < MaxSitemaps {
		var line string
		line, rest = nextLine(rest)
		line, _, _ = strings.Cut(line, "#")
		name, value := record(line)
		if strings.EqualFold(name, "sitemap") && value != "" && len(value) <= maxSitemap && !slices.Contains(found, value) {
			found = append(found, strings.Clone(value))
		}
	}
	return found
}
