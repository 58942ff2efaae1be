package web

import (
	"net/http"
	"strings"
	"testing"
)

// TestSetURL checks that a URL in a header is one line of ASCII, and whole or not there.
func TestSetURL(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, url, want string }{
		{"a URL", "http://a.example/?q=%20#x", "http://a.example/?q=%20#x"},
		{"none", "", ""},
		{"line ends", "http://a.example/\r\nSet-Cookie: a=b", "http://a.example/%0D%0ASet-Cookie:%20a=b"},
		{"not ASCII", "http://a.example/\u00e9\x7f", "http://a.example/%C3%A9%7F"},
		{"not UTF-8", "http://a.example/\xff", "http://a.example/%FF"},
		{"the longest", strings.Repeat("a", maxURLHeader), strings.Repeat("a", maxURLHeader)},
		{"too long", strings.Repeat("a", maxURLHeader+1), ""},
		{"too long when escaped", strings.Repeat(" ", maxURLHeader/2), ""},
	} {
		h := make(http.Header)
		if setURL(h, "Name", row.url); h.Get("Name") != row.want {
			t.Errorf("%s: %.100q, want %.100q", row.name, h.Get("Name"), row.want)
		}
	}
}
