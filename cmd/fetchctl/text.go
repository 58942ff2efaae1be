package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// escape makes text of an origin fit for one line of a terminal: control and
// format characters, invalid bytes and line ends are written as in a Go string.
func escape(s string) string {
	if isPlain(s) {
		return s
	}
	return string(appendEscaped(nil, s, func(rune) bool { return false }))
}

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// appendEscaped appends s with everything escaped that could steer a terminal,
// save what keep lets through.
func appendEscaped(dst []byte, s string, keep func(rune) bool) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, s[i])
		case keep(r) || unicode.IsGraphic(r): // neither Cc nor Cf: no controls, no direction overrides
			dst = append(dst, s[i:i+n]...)
		default:
			quoted := strconv.QuoteRune(r)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		i += n
	}
	return dst
}

// label is the name of an enum value without its prefix and in lower case, such
// as "http_server_error".
func label(e protoreflect.Enum) string {
	values := e.Descriptor().Values()
	value := values.ByNumber(e.Number())
	if value == nil {
		return fmt.Sprintf("unknown_%d", e.Number())
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}

// words is a label for a sentence, such as "not retryable".
func words(e protoreflect.Enum) string { return strings.ReplaceAll(label(e), "_", " ") }

// statusLine is a status with its standard reason; the origin's own is not told
// by the service.
func statusLine(code int32) string {
	if reason := http.StatusText(int(code)); reason != "" {
		return fmt.Sprintf("%d %s", code, reason)
	}
	return strconv.Itoa(int(code))
}

// size writes a number of bytes for people.
func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	units, value := "KMGTPE", float64(n)/(1<<10)
	for value >= 1023.95 && len(units) > 1 {
		units, value = units[1:], value/(1<<10)
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// took writes a time that was measured, to three digits.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// count writes a number with its noun: "1 attempt", "2 attempts".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
