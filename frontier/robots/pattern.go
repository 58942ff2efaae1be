package robots

import (
	"strings"

	"fetchd/frontier/percent"
)

// pattern is the path of a rule, prepared for matching. A * is a wildcard, and literalStar is the
// character.
type pattern struct {
	octets uint32 // length as escaped
	strict string
	loose  string // with escapes of reserved characters decoded too
	end    bool   // the pattern must match to the end
}

// literalStar is a star in the path. All other bytes of patterns and targets are US-ASCII, because
// the rest is escaped.
const literalStar = "\xff"

// compile parses the value of Allow or Disallow: RFC 9309 §2.2.2 and §2.2.3.
func compile(value string) pattern {
	collapsed := collapse(value)
	escaped := escapeOctets(collapsed)
	octets := len(escaped) + len(value) - len(collapsed)
	// A $ is decoded in neither form, so both forms end with it or neither does.
	escaped, end := strings.CutSuffix(escaped, "$")
	return pattern{
		octets: uint32(octets), end: end, //nolint:gosec // three times MaxBytes at most
		strict: literally(decode(escaped, strictly)), loose: literally(decode(escaped, loosely)),
	}
}

// collapse replaces each run of * by one *, which matches the same. An escaped star ends a run,
// because it is not a wildcard.
func collapse(value string) string {
	if !strings.Contains(value, "**") {
		return value
	}
	var out strings.Builder
	for i := range len(value) {
		if value[i] != '*' || i == 0 || value[i-1] != '*' {
			out.WriteByte(value[i])
		}
	}
	return out.String()
}

// literally decodes the escapes of * and $. They stay escaped until the wildcards are found: RFC
// 9309 §2.2.3.
func literally(s string) string {
	if !strings.Contains(s, "%") {
		return s // the replacer would copy s
	}
	return literal.Replace(s)
}

var literal = strings.NewReplacer("%2A", literalStar, "%24", "$")

// target is the path and query of a URL, prepared for matching.
type target struct {
	strict, loose string // as in pattern
}

func newTarget(pathAndQuery string) target {
	escaped := strings.ReplaceAll(escapeOctets(pathAndQuery), "*", "%2A")
	return target{strict: literally(decode(escaped, strictly)), loose: literally(decode(escaped, loosely))}
}

// match compares both forms. The strict form distinguishes "?u=https://a" from
// "?u=https%3A%2F%2Fa", which RFC 9309 §2.2.2 treats as equal. The loose form would miss a pattern
// such as "*%2F", because it does not know whether that is in a path or a query.
func (p pattern) match(t target) bool {
	if match(p.strict, p.end, t.strict) {
		return true
	}
	return (p.loose != p.strict || t.loose != t.strict) && match(p.loose, p.end, t.loose)
}

// match finds each piece at the first place after the previous one. A later place would leave less
// for the rest, so there is no backtracking, and the time is linear in the length of s for every
// pattern.
func match(pattern string, end bool, s string) bool {
	piece, rest, more := strings.Cut(pattern, "*")
	s, ok := strings.CutPrefix(s, piece)
	if !ok {
		return false
	}
	if !more {
		return !end || s == ""
	}
	for {
		piece, rest, more = strings.Cut(rest, "*")
		if !more {
			break
		}
		i := strings.Index(s, piece)
		if i < 0 {
			return false
		}
		s = s[i+len(piece):]
	}
	if end {
		return strings.HasSuffix(s, piece)
	}
	return strings.Contains(s, piece)
}

// escapes reports whether a URL contains an octet only as an escape: RFC 3986 §2.
func escapes(c byte) bool {
	switch c {
	case '"', '<', '>', '\\', '^', '`', '{', '|', '}':
		return true
	}
	return c <= ' ' || c >= 0x7f
}

// escapeOctets escapes bytes outside US-ASCII and bytes that URLs do not contain, and writes
// escapes in upper case. google/robotstxt escapes only the former, so its rule "/a{b" never matches
// a URL, which contains "/a%7Bb". RFC 9309 §2.2.2 requires both sides to be escaped alike.
func escapeOctets(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r > '~' || r == '%' || escapes(byte(r)) }) < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch c, ok := percent.Unescape(s[i:]); {
		case ok:
			percent.Escape(&out, c)
			i += 2
		case escapes(s[i]):
			percent.Escape(&out, s[i])
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// strictly and loosely report which escapes to decode. Separators stay escaped in both: * and $
// everywhere, / ? # in a path, & = + # in a query.
func strictly(c byte, _ bool) bool { return percent.Unreserved(c) }

func loosely(c byte, query bool) bool {
	if query {
		return percent.Unreserved(c) || strings.IndexByte(":/?@[]!'(),;", c) >= 0
	}
	return percent.Unreserved(c) || strings.IndexByte(":@[]!'(),;&=+", c) >= 0
}

// decode decodes the escapes for which may returns true. The query starts at the first ?.
func decode(s string, may func(c byte, query bool) bool) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var out strings.Builder
	query := false
	for i := 0; i < len(s); i++ {
		query = query || s[i] == '?'
		if c, ok := percent.Unescape(s[i:]); !ok {
			out.WriteByte(s[i])
		} else if may(c, query) {
			out.WriteByte(c)
			i += 2
		} else {
			out.WriteString(s[i : i+3])
			i += 2
		}
	}
	return out.String()
}
