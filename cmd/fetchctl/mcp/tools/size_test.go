package tools

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// articlePage returns a page as sites make them: an article of about 6,000 characters, with the menus of its
// site around it.
func articlePage() string {
	menu := func(name string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `<li><a class="menu-link" href="/%s/topic-%d?from=menu">%s: topic number %d</a></li>`, name, i, name, i)
		}
		return "<ul>" + b.String() + "</ul>"
	}
	var text strings.Builder
	for i := range 12 {
		if i%4 == 0 {
			fmt.Fprintf(&text, "<h2>Part %d</h2>", i/4+1)
		}
		fmt.Fprintf(&text, `<p>Paragraph %d has a <a href="/glossary#term-%d">link</a>. %s</p>`, i, i, strings.Repeat("It says what a reader came for, in a few words. ", 9))
	}
	return `<!doctype html><html lang="en"><head><title>How a river is measured | Example News</title><script>track()</script></head><body>` +
		`<header><a href="/">Example News</a><nav>` + menu("sections", 40) + `</nav></header>` +
		`<main><article><h1>How a river is measured</h1>` + text.String() + `</article><aside><h2>Related</h2>` + menu("related", 12) + `</aside></main>` +
		`<footer><nav>` + menu("about", 30) + `</nav><p>All rights reserved.</p></footer></body></html>`
}

// TestAnswerSize: an answer is the text that was asked for, and a few lines. -v prints a table.
func TestAnswerSize(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"/two":     "ok",
		"/article": articlePage(),
		"/long":    "<title>A long page</title>" + strings.Repeat("<p>A long page has many lines, and each one says something.</p>", 2000),
	}
	o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasPrefix(page, "<") {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		}
		w.Header().Set("Etag", `"5f3c-61a7"`)
		w.Header().Set("Cache-Control", "max-age=600")
		_, _ = w.Write([]byte(page))
	})
	few, all := start(t, Config{}, nil), start(t, Config{Structured: true}, nil)
	for _, row := range []struct {
		name      string
		arguments map[string]any
	}{
		{"a page of two characters", map[string]any{"url": o.URL + "/two"}},
		{"an article of 6,000 characters with menus", map[string]any{"url": o.URL + "/article", "max_length": 50_000}},
		{"the first 5,000 characters of 120,000", map[string]any{"url": o.URL + "/long"}},
		{"the next 5,000", map[string]any{"url": o.URL + "/long", "start_index": 5000}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := few.call(t, "fetch", row.arguments)
			logSizes(t, row.name, got.CallToolResult, all.call(t, "fetch", row.arguments).CallToolResult)
			if n := len(got.texts[0]) + len(got.texts[1]) + len(got.texts[3]); len(got.texts) != 4 || n > 400 || got.StructuredContent != nil {
				t.Errorf("the answer has %d texts, and %d bytes next to the window: %q; want 4 and at most 400", len(got.texts), n, got.texts)
			}
		})
	}
	listed, err := few.ListTools(t.Context(), nil)
	must(t, err)
	withSchemas, err := all.ListTools(t.Context(), nil)
	must(t, err)
	if n := logSizes(t, "the list of tools", listed, withSchemas); n > 4000 {
		t.Errorf("the list of tools has %d bytes, want at most 4,000", n)
	}
}

// logSizes logs a row with the bytes and tokens of two results, and returns the bytes of the first.
func logSizes(t *testing.T, name string, few, all any) int {
	t.Helper()
	a, err := json.Marshal(few)
	must(t, err)
	b, err := json.Marshal(all)
	must(t, err)
	t.Logf("| %s | %d (%d) | %d (%d) |", name, len(a), len(a)/4, len(b), len(b)/4)
	return len(a)
}
