package archive

import (
	"bytes"
	"slices"
	"strings"
)

// redact replaces the values of fields in a head, and what continues them on further lines. It
// returns the head and the names that occurred, or the same head and no names.
func redact(head []byte, names []string) ([]byte, []string) {
	var out []byte
	var found []string
	kept := 0 // what of head is in out
	drop := false
	for at := 0; at < len(head); {
		next := len(head)
		if i := bytes.IndexByte(head[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		line := head[at:next]
		switch text := bytes.TrimRight(line, "\r\n"); {
		case drop && len(text) > 0 && (text[0] == ' ' || text[0] == '\t'):
			out = append(out, head[kept:at]...)
			kept = next
		default:
			name := fieldIn(text, names)
			if drop = name != ""; !drop {
				break
			}
			if !slices.Contains(found, name) {
				found = append(found, name)
			}
			colon := bytes.IndexByte(line, ':')
			out = append(append(out, head[kept:at+colon]...), ": redacted"...)
			out = append(out, line[len(text):]...)
			kept = next
		}
		at = next
	}
	if len(found) == 0 {
		return head, nil
	}
	return append(out, head[kept:]...), found
}

// fieldIn returns the one of names that a line of a head has.
func fieldIn(line []byte, names []string) string {
	name, _, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return ""
	}
	name = bytes.Trim(name, " \t\r")
	for _, n := range names {
		if len(n) == len(name) && strings.EqualFold(n, string(name)) {
			return n
		}
	}
	return ""
}
