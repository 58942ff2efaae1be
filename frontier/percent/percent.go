// Package percent encodes and decodes single bytes of URLs: RFC 3986 §2.1.
package percent

import "strings"

const upperHex = "0123456789ABCDEF"

// Escape appends the escape of c, in upper case.
func Escape(out *strings.Builder, c byte) {
	out.WriteByte('%')
	out.WriteByte(upperHex[c>>4])
	out.WriteByte(upperHex[c&15])
}

// Append appends the escape of c, in upper case.
func Append(out []byte, c byte) []byte {
	return append(out, '%', upperHex[c>>4], upperHex[c&15])
}

// Unescape decodes the escape at the start of s. It returns false if s starts with none.
func Unescape(s string) (c byte, ok bool) {
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

// Unreserved reports whether c means the same with and without escape: RFC 3986 §2.3.
func Unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
