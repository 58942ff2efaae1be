package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

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
