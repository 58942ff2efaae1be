package webpage

import (
	"embed"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// settings are what a page may read.
type settings struct {
	Token   bool   `json:"token"`
	Version string `json:"version"`
}

var site = fstest.MapFS{
	"page/index.html": {Data: []byte("<title>test</title>")},
	"page/app.js":     {Data: []byte("export {};")},
	"page/notes.txt":  {Data: []byte("not a part of the page")},
	"page/sub/a.js":   {Data: []byte("export {};")},
	"other/a.js":      {Data: []byte("export {};")},
}

// ask asks a handler.
func ask(h http.Handler, method, target string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
	return rec
}

// TestAnswers checks the type of every file, and that every answer has the same protection.
func TestAnswers(t *testing.T) {
	t.Parallel()
	h := Handler("test", site, settings{Token: true, Version: "v1"})
	type row struct {
		method, target string
		code           int
		kind           string
	}
	rows := []row{
		{"GET", "/test/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/test/", 200, "text/html; charset=utf-8"},
		{"GET", "/test/index.html", 200, "text/html; charset=utf-8"},
		{"GET", "/test/app.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/test/service.json", 200, "application/json"},
		{"GET", "/test/nothing.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/test/notes.txt", 404, "text/plain; charset=utf-8"},
		{"GET", "/test/sub/a.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/test/page/app.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/test/%2e%2e/other/a.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/test/..%2fother%2fa.js", 404, "text/plain; charset=utf-8"},
		{"POST", "/test/", 405, "text/plain; charset=utf-8"},
		{"GET", "/", 302, ""},
	}
	for _, name := range glob(t, "shared/*") {
		rows = append(rows, row{"GET", "/test/" + path.Base(name), 200, types[path.Ext(name)]})
	}
	for _, r := range rows {
		rec := ask(h, r.method, r.target)
		if rec.Code != r.code || rec.Header().Get("Content-Type") != r.kind {
			t.Errorf("%s %s: %d, %q; want %d, %q", r.method, r.target, rec.Code, rec.Header().Get("Content-Type"), r.code, r.kind)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := rec.Header().Get(name); got != want && (name != "Cache-Control" || rec.Code < 400) { // net/http takes it off errors
				t.Errorf("%s %s: %s is %q, want %q", r.method, r.target, name, got, want)
			}
		}
	}
	if got := ask(h, "GET", "/").Header().Get("Location"); got != "test/" {
		t.Errorf("/ leads to %q", got)
	}
}

// TestPolicy has the list to change with an exception from the policy.
func TestPolicy(t *testing.T) {
	t.Parallel()
	want := []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"}
	if got := strings.Split(policy, "; "); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("policy %q, want %q", got, want)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	want := settings{Token: true, Version: "v1</script>"}
	var got settings
	text := ask(Handler("test", embed.FS{}, want), "GET", "/test/service.json").Body.String()
	if err := json.Unmarshal([]byte(text), &got); err != nil || got != want || strings.Contains(text, "<") {
		t.Errorf("%s is %+v (%v), want %+v", text, got, err, want)
	}
}

// TestSource checks in the files of all pages what the policy enforces in a browser.
func TestSource(t *testing.T) {
	t.Parallel()
	files := slices.Concat(glob(t, "shared/*"), glob(t, "../../server/console/page/*"), glob(t, "../../frontier/api/page/page/*"))
	// The placeholders of URLs, the namespace of pictures, and the URLs that the examples of the
	// console put into its form.
	allowed := []string{"https://example.com", "http://wikipedia.org", "https://httpbin.org", "https://no-such-host.invalid", "https://www.rfc-editor.org", "http://www.w3.org"}
	for _, row := range []struct {
		name, pattern, in string
	}{
		{"an address elsewhere", `(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}`, ".html.css.js"},
		{"markup made of text", `innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|setHTML`, ".js"},
		{"text that is run", `\beval\(|new Function|setTimeout\(\s*['"]|javascript:`, ".html.js"},
		{"a script or style in the page", `(?i)<script(?:\s[^>]*)?>[^<]|<style|\sstyle=|\son[a-z]+=`, ".html"},
		{"something that is stored", `localStorage|sessionStorage|indexedDB|document\.cookie`, ".js"},
	} {
		pattern := regexp.MustCompile(row.pattern)
		for _, name := range files {
			if !strings.Contains(row.in, path.Ext(name)) {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range pattern.FindAllString(string(text), -1) {
				if !slices.Contains(allowed, found) {
					t.Errorf("%s: %s: %q", name, row.name, found)
				}
			}
		}
	}
}

// glob returns the files of a pattern. Each has the extension of a file that is served.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) < 3 {
		t.Fatalf("%s: %d files: %v", pattern, len(names), err)
	}
	for _, name := range names {
		if types[path.Ext(name)] == "" {
			t.Errorf("%s is not served", name)
		}
	}
	return names
}
