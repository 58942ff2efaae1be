package normal

import (
	"strings"
	"unicode/utf8"

	"fetchd/frontier/percent"
)

// escaped reports which ASCII characters are always escaped in a path and in a query: URL standard,
// path percent-encode set and special-query percent-encode set. Bytes outside ASCII are escaped too.
//
// net/url keeps an escaped path only if it would escape nothing in it, so ^ and | are escaped in
// paths, which the standard leaves as they are.
var (
	escapedInPath  = setOf("\"#<>?^`{|}")
	escapedInQuery = setOf("\"#<>'")
)

// setOf returns the set of the characters, controls, the space and bytes outside ASCII.
func setOf(characters string) (set [256]bool) {
	for c := range set {
		set[c] = c <= ' ' || c >= 0x7f || strings.IndexByte(characters, byte(c)) >= 0
	}
	return set
}

// appendByte appends the byte at s[i], or the escape that starts there, in normal form: escapes are in
// upper case, those of unreserved characters are decoded, and a % that starts no escape is escaped.
// Nothing is decoded twice: RFC 3986 §2.4. It returns the place of the next byte.
func appendByte(out []byte, s string, i int, set *[256]bool) ([]byte, int) {
	c := s[i]
	if c != '%' {
		if set[c] {
			return percent.Append(out, c), i + 1
		}
		return append(out, c), i + 1
	}
	c, ok := percent.Unescape(s[i:])
	switch {
	case !ok:
		return append(out, "%25"...), i + 1
	case percent.Unreserved(c):
		return append(out, c), i + 3
	}
	return percent.Append(out, c), i + 3
}

// appendQuery appends the normal form of a query. Its time is linear.
func appendQuery(out []byte, query string) []byte {
	for i := 0; i < len(query); {
		out, i = appendByte(out, query, i, &escapedInQuery)
	}
	return out
}

// appendPath appends the normal form of a path to the path in out[start:], which ends before a slash
// or is empty. The first slash of path may be missing. Segments of dots are removed as the URL
// standard says (path state). A backslash is a slash. Its time is linear.
func appendPath(out []byte, start int, path string) []byte {
	if path != "" && isSlash(path[0]) {
		path = path[1:]
	}
	for i := 0; ; i++ {
		begin := len(out)
		out = append(out, '/')
		for i < len(path) && !isSlash(path[i]) {
			out, i = appendByte(out, path, i, &escapedInPath)
		}
		last := i == len(path)
		switch string(out[begin+1:]) {
		case ".":
			out = out[:begin]
		case "..":
			out = parent(out[:begin], start)
		default:
			if last {
				return out
			}
			continue
		}
		if last {
			return append(out, '/')
		}
	}
}

// parent removes the last segment of the path in out[start:], if there is one.
func parent(out []byte, start int) []byte {
	for i := len(out) - 1; i >= start; i-- {
		if out[i] == '/' {
			return out[:i]
		}
	}
	return out
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

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
