package fault

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable returns s as one line of at most limit bytes. Control characters, direction overrides
// and bytes that are not UTF-8 are escaped as in a Go string.
func Printable(s string, limit int) string {
	const ellipsis = "…"
	if len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	out := make([]byte, 0, min(len(s), limit))
	end := 0 // where to truncate
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			out = append(out, s[i:i+n]...)
		default:
			quoted := strconv.QuoteRune(r)
			out = append(out, quoted[1:len(quoted)-1]...)
		}
		if len(out) > limit {
			return string(out[:end]) + ellipsis
		}
		if len(out) <= limit-len(ellipsis) {
			end = len(out)
		}
		i += n
	}
	return string(out)
}
