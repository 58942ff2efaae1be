package normal

import (
	"strings"
	"unicode/utf8"

	"fetchd/frontier/percent"
)

// tidyEscapes writes escapes in upper case, decodes those of unreserved characters, and escapes a %
// that starts no escape. It works in one pass, so that nothing is decoded twice: RFC 3986 §2.4.
func tidyEscapes(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + 8)
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out.WriteByte(s[i])
			continue
		}
		c, ok := percent.Unescape(s[i:])
		switch {
		case !ok:
			out.WriteString("%25")
			continue
		case percent.Unreserved(c):
			out.WriteByte(c)
		default:
			percent.Escape(&out, c)
		}
		i += 2
	}
	return out.String()
}

// escapeInvalidUTF8 escapes bytes that are not UTF-8, because the parser would replace them all by
// U+FFFD. In a host they remain an error.
func escapeInvalidUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			percent.Escape(&out, s[i])
		} else {
			out.WriteString(s[i : i+n])
		}
		i += n
	}
	return out.String()
}
