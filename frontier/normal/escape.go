package normal

import (
	"strings"
	"unicode/utf8"
)

const upperHex = "0123456789ABCDEF"

// tidyEscapes writes escapes in upper case, decodes those of unreserved
// characters and escapes a % that begins no escape. It reads s once, so that
// nothing is decoded twice: RFC 3986 §2.4.
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
		c, ok := unescape(s[i:])
		switch {
		case !ok:
			out.WriteString("%25")
			continue
		case unreserved(c):
			out.WriteByte(c)
		default:
			escape(&out, c)
		}
		i += 2
	}
	return out.String()
}

// escapeInvalidUTF8 keeps bytes that the parser would make U+FFFD of, all
// alike. In a host they remain an error.
func escapeInvalidUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			escape(&out, s[i])
		} else {
			out.WriteString(s[i : i+n])
		}
		i += n
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
	if len(s) < 3 {
		return 0, false
	}
	high, low := unhex(s[1]), unhex(s[2])
	return high<<4 | low, high < 16 && low < 16
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// unreserved is RFC 3986 §2.3.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
