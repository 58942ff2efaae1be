package tools

import (
	"strings"
	"testing"
)

// TestArguments: an error names the argument, its value and the remedy. Nothing is fetched.
func TestArguments(t *testing.T) {
	t.Parallel()
	r := start(t, Config{Structured: true}, nil)
	for _, row := range []struct {
		name      string
		arguments map[string]any
		want      string
	}{
		{"no URL", nil, "url is missing: give an absolute http or https URL."},
		{"a relative URL", map[string]any{"url": "/a"}, `url is "/a": has no host: give an absolute http or https URL.`},
		{"another scheme", map[string]any{"url": "file:///etc/passwd"}, `url is "file:///etc/passwd": must begin with http:// or https://.`},
		{"userinfo", map[string]any{"url": "http://a:b@c.example/"}, "url has a user name or password: leave them out."},
		{"a URL of another type", map[string]any{"url": 7}, "url is 7: give a string."},
		{"a length of text", map[string]any{"url": "http://a.example/", "max_length": "5000"}, `max_length is "5000": give a whole number from 1 to 999999.`},
		{"no length", map[string]any{"url": "http://a.example/", "max_length": 0}, `max_length is 0: give a whole number from 1 to 999999.`},
		{"a long length", map[string]any{"url": "http://a.example/", "max_length": 1000000}, `max_length is 1000000: give`},
		{"half a character", map[string]any{"url": "http://a.example/", "max_length": 1.5}, `max_length is 1.5: give`},
		{"a negative index", map[string]any{"url": "http://a.example/", "start_index": -1}, `start_index is -1: give a whole number of 0 or more.`},
		{"an index without end", map[string]any{"url": "http://a.example/", "start_index": 1e300}, `start_index is 1e+300: give`},
		{"raw as text", map[string]any{"url": "http://a.example/", "raw": "yes"}, `raw is "yes": give true or false.`},
		{"no time", map[string]any{"url": "http://a.example/", "timeout": 0}, `timeout is 0: give a number of seconds above 0, at most 900.`},
		{"much time", map[string]any{"url": "http://a.example/", "timeout": 901}, `timeout is 901: give`},
		{"time as text", map[string]any{"url": "http://a.example/", "timeout": "5s"}, `timeout is "5s": give`},
		{"a header", map[string]any{"url": "http://a.example/", "headers": map[string]string{"A": "b"}}, `"headers" is not an argument: use url, max_length, start_index, raw, timeout.`},
		{"a method", map[string]any{"url": "http://a.example/", "method": "POST"}, `"method" is not an argument`},
		{"a store", map[string]any{"url": "http://a.example/", "store": "a"}, `"store" is not an argument`},
		{"a long value", map[string]any{"url": "http://a.example/", "raw": strings.Repeat("a", 500)}, strings.Repeat("a", 199) + "…: give true or false."},
		{"two faults", map[string]any{"url": 1, "raw": 2}, "url is 1: give a string.\nraw is 2: give true or false."},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := r.call(t, "fetch", row.arguments)
			if !got.IsError || got.StructuredContent != nil || !strings.Contains(got.texts[0], row.want) {
				t.Errorf("error %t: %q, want %q", got.IsError, got.texts, row.want)
			}
		})
	}
}
