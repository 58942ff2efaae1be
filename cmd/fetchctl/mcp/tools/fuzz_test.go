package tools

import (
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"fetchd/internal/sniff"
)

// FuzzWindows reads a body in windows. Together they are its text, which is valid and within the
// limit.
func FuzzWindows(f *testing.F) {
	f.Add([]byte("a é € 😀"), "text/plain", 2, int64(100))
	f.Add([]byte("\xff\xfea\x00"), "text/plain; charset=utf-16", 1, int64(3))
	f.Add([]byte("\x1b$B4A\x1b(B"), "text/html; charset=iso-2022-jp", 3, int64(4))
	f.Add([]byte("\xef\xbb\xbf\xe9"), "application/json", 7, int64(2))
	f.Fuzz(func(t *testing.T, body []byte, contentType string, length int, limit int64) {
		if length < 1 || limit < 0 || limit > 1<<20 || len(body) > 1<<16 {
			return
		}
		text, whole, _ := sniff.Text(contentType, body, limit)
		if !utf8.ValidString(text) || int64(len(text)) > limit {
			t.Fatalf("Text(%q, %q, %d) = %q, %t", contentType, body, limit, text, whole)
		}
		p := newPage(text, "says", "", "about", []byte(`{"kind":"x"}`))
		var joined strings.Builder
		for start, turns := 0, 0; start < p.chars && turns < 1000; turns++ {
			result := p.result(start, length, kept)
			window, ok := result.Content[2].(*sdk.TextContent)
			if !ok || utf8.RuneCountInString(window.Text) > length || window.Text == "" {
				t.Fatalf("window %+v at %d", result.Content[2], start)
			}
			joined.WriteString(window.Text)
			start += utf8.RuneCountInString(window.Text)
		}
		if !strings.HasPrefix(text, joined.String()) || p.chars <= 1000*length && joined.String() != text {
			t.Errorf("the windows of %q are %q", text, joined.String())
		}
	})
}
