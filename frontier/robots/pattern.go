package robots

import (
	"strings"
)

// pattern is a rule's path, ready for matching. A * in it is a wildcard, and literalStar
// is the character.
type pattern struct {
	octets uint32 // as escaped
	strict string
	loose  string // has the escapes of reserved characters decoded as well
	end    bool   // nothing may follow
}

// literalStar is a star in the path. No other byte of a pattern or a target is outside
// US-ASCII, because those are escaped.
const literalStar = "\xff"

// compile reads a value of Allow or Disallow: RFC 9309 §2.2.2 and §2.2.3.
func compile(value string) pattern {
	collapsed := collapse(value)
	escaped := escapeOctets(collapsed)
	octets := len(escaped) + len(value) - len(collapsed)
	// A $ is decoded in neither form, so both end with it or neither does.
	escaped, end := strings.CutSuffix(escaped, "$")
	return pattern{
		octets: uint32(octets), end: end, //nolint:gosec // three times MaxBytes at most
		strict: literally(decode(escaped, strictly)), loose: literally(decode(escaped, loosely)),
	}
}

// collapse replaces each run of * by one, which matches the same. An escaped star ends a
// run because it is no wildcard.
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

// literally undoes the escapes of * and $, which are kept until the wildcards
// have been found: RFC 9309 §2.2.3.
func literally(s string) string {
	if !strings.Contains(s, "%") {
		return s // the replacer would copy it
	}
	return literal.Replace(s)
}

var literal = strings.NewReplacer("%2A", literalStar, "%24", "$")

// target is the path and query of a URL, ready to be compared.
type target struct {
	strict, loose string // as in pattern
}

func newTarget(pathAndQuery string) target {
	escaped := strings.ReplaceAll(escapeOctets(pathAndQuery), "*", "%2A")
	return target{strict: literally(decode(escaped, strictly)), loose: literally(decode(escaped, loosely))}
}

// match compares both forms. The strict one alone would keep
// "?u=https://a" and "?u=https%3A%2F%2Fa" apart, which RFC 9309 §2.2.2 has as
// one; the loose one alone would lose a pattern such as "*%2F", which does not
// tell whether it means a path or a query.
func (p pattern) match(t target) bool {
	if match(p.strict, p.end, t.strict) {
		return true
	}
	return (p.loose != p.strict || t.loose != t.strict) && match(p.loose, p.end, t.loose)
}

// match finds each piece at the first place after the one before. That is
// enough: a later place leaves less for the rest. So no piece is looked for
// twice, and the time grows with the length of s, whatever the pattern.
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

// escapes reports whether a URL carries an octet only as an escape: RFC 3986 §2.
func escapes(c byte) bool {
	switch c {
	case '"', '<', '>', '\\', '^', '`', '{', '|', '}':
		return true
	}
	return c <= ' ' || c >= 0x7f
}

const upperHex = "0123456789ABCDEF"

// escapeOctets escapes what is not US-ASCII and what no URL carries as it is, and
// writes escapes in upper case. google/robotstxt escapes only what is not US-ASCII,
// so its rule "/a{b" never matches a URL, which has "/a%7Bb". RFC 9309 §2.2.2 wants
// both sides escaped alike.
func escapeOctets(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r > '~' || r == '%' || escapes(byte(r)) }) < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch c, ok := unescape(s[i:]); {
		case ok:
			escape(&out, c)
			i += 2
		case escapes(s[i]):
			escape(&out, s[i])
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// Which escapes decode undoes. What separates stays as it is in both: * and $
// always, / ? # in a path, & = + # in a query.
func strictly(c byte, _ bool) bool { return unreserved(c) }

func loosely(c byte, query bool) bool {
	if query {
		return unreserved(c) || strings.IndexByte(":/?@[]!'(),;", c) >= 0
	}
	return unreserved(c) || strings.IndexByte(":@[]!'(),;&=+", c) >= 0
}

// decode undoes the escapes that may says. The query begins at the first ?.
func decode(s string, may func(c byte, query bool) bool) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var out strings.Builder
	query := false
	for i := 0; i < len(s); i++ {
		query = query || s[i] == '?'
		if c, ok := unescape(s[i:]); !ok {
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

func escape(out *strings.Builder, c byte) {
	out.WriteByte('%')
	out.WriteByte(upperHex[c>>4])
	out.WriteByte(upperHex[c&15])
}

// unescape reads the escape that s begins with.
func unescape(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	high, low := strings.IndexByte(upperHex, upper(s[1])), strings.IndexByte(upperHex, upper(s[2]))
	if high < 0 || low < 0 {
		return 0, false
	}
	return byte(high<<4 | low), true
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'f' {
		return c - 'a' + 'A'
	}
	return c
}

// unreserved is RFC 3986 §2.3.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
