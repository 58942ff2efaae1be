// Package traps recognises URLs that a site makes up without end. It knows only the text of a URL, in its normal form.
package traps

import (
	"fmt"
	"strings"
)

const (
	// MaxSegments is how many segments the path of a link may have.
	MaxSegments = 20
	// MaxRepeats is how often a group of segments may come in a row.
	MaxRepeats = 2
	// ManyURLs is how many URLs of a host may differ in numbers only before a worker warns of them.
	ManyURLs = 1000
)

// Rule is a rule that keeps a link out. Its text is the name of a counter of "frontier status".
type Rule string

// The rules for the text of a link.
const (
	Segments Rule = "segments"
	Repeated Rule = "repeated"
)

// Refuses returns the rule that keeps a link to url out, and says why. It returns an empty rule if none does.
func Refuses(url string) (rule Rule, why string) {
	var room [MaxSegments + 1]string
	segments, more := split(path(url), room[:0])
	if more {
		return Segments, fmt.Sprintf("its path has more than %d segments", MaxSegments)
	}
	for size := 1; size*(MaxRepeats+1) <= len(segments); size++ {
		equal := 0 // segments in a row that equal the one a group before
		for at := size; at < len(segments); at++ {
			if segments[at] != segments[at-size] {
				equal = 0
				continue
			}
			equal++
			if date := size == 1 && equal == MaxRepeats && isDay(segments[at]); equal >= size*MaxRepeats && !date {
				return Repeated, fmt.Sprintf("%q comes more than %d times in a row in its path", strings.Join(segments[at+1-size:at+1], "/"), MaxRepeats)
			}
		}
	}
	return "", ""
}

// isDay reports whether a segment that comes three times may be a date, such as 11/11/11. A fourth time is none.
func isDay(segment string) bool {
	return (len(segment) == 1 || len(segment) == 2) && strings.Trim(segment, "0123456789") == ""
}

// path returns the path of a URL, without its first slash.
func path(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "?")
	_, p, _ := strings.Cut(rest, "/")
	return p
}

// split appends the segments of a path to room, which it does not exceed. more means that there are more. An empty
// segment at the end does not count.
func split(path string, room []string) (segments []string, more bool) {
	for path != "" {
		if len(room) > MaxSegments-1 {
			return room, true
		}
		segment, rest, _ := strings.Cut(path, "/")
		room, path = append(room, segment), rest
	}
	return room, false
}

// maxPattern is the maximum length of a pattern, in bytes. Longer URLs that begin alike have one pattern.
const maxPattern = 255

// Pattern returns a URL with # for each number in it, without scheme and host. It is empty if there is no number.
func Pattern(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	at := strings.IndexByte(rest, '/')
	if at < 0 || !strings.ContainsAny(rest[at:], "0123456789") {
		return ""
	}
	out := make([]byte, 0, min(len(rest)-at, maxPattern))
	for i := at; i < len(rest) && len(out) < maxPattern; i++ {
		switch c := rest[i]; {
		case !isDigit(c):
			out = append(out, c)
		case !isDigit(rest[i-1]) || i == at:
			out = append(out, '#')
		}
	}
	return string(out)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
