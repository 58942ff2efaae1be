package console

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ask asks a handler.
func ask(h http.Handler, method, target string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
	return rec
}

func files(t *testing.T) []string {
	t.Helper()
	all, err := fs.Glob(page, "page/*")
	if err != nil || len(all) < 10 {
		t.Fatalf("%d files: %v", len(all), err)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := page.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAnswers: every file has its type, every answer the same protection.
func TestAnswers(t *testing.T) {
	t.Parallel()
	h := Handler(Config{GRPC: "127.0.0.1:8080", Token: true, Version: "v1"})
	type row struct {
		method, target string
		code           int
		kind           string
	}
	rows := []row{
		{"GET", "/console/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/console/", 200, "text/html; charset=utf-8"},
		{"GET", "/console/service.json", 200, "application/json"},
		{"GET", "/console/nothing.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/console/console.go", 404, "text/plain; charset=utf-8"},
		{"GET", "/console/page/app.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/console/%2e%2e/console.go", 404, "text/plain; charset=utf-8"},
		{"GET", "/console/..%2fconsole.go", 404, "text/plain; charset=utf-8"},
		{"POST", "/console/", 405, "text/plain; charset=utf-8"},
		{"GET", "/", 302, ""},
	}
	for _, name := range files(t) {
		rows = append(rows, row{"GET", "/console/" + path.Base(name), 200, types[path.Ext(name)]})
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
	if got := ask(h, "GET", "/").Header().Get("Location"); got != "console/" {
		t.Errorf("/ leads to %q", got)
	}
}

// TestPolicy: whoever adds an exception to it changes this list too.
func TestPolicy(t *testing.T) {
	t.Parallel()
	want := []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"}
	if got := strings.Split(policy, "; "); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("policy %q, want %q", got, want)
	}
}

// TestService tells the page what it was told, and nothing else.
func TestService(t *testing.T) {
	t.Parallel()
	told := Config{GRPC: "[::1]:8080", TLS: true, Token: true, Version: "v1</script>"}
	var got Config
	text := ask(Handler(told), "GET", "/console/service.json").Body.String()
	if err := json.Unmarshal([]byte(text), &got); err != nil || got != told || strings.Contains(text, "<") {
		t.Errorf("%s is %+v (%v), want %+v", text, got, err, told)
	}
}

// TestSource holds what the policy enforces where the page is written, so that a
// slip is found without a browser.
func TestSource(t *testing.T) {
	t.Parallel()
	// The placeholder of the URL, and the URLs that the examples put into the form.
	examples := []string{"https://example.com", "http://wikipedia.org", "https://httpbin.org", "https://no-such-host.invalid", "https://www.rfc-editor.org"}
	for _, row := range []struct {
		name, pattern, in string
	}{
		{"an address elsewhere", `(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}`, ".html.css.js"},
		{"markup made of text", `innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|setHTML`, ".js"},
		{"text that is run", `\beval\(|new Function|setTimeout\(\s*['"]|javascript:`, ".html.js"},
		{"a script or style in the page", `(?i)<script(?:\s[^>]*)?>[^<]|<style|\sstyle=|\son[a-z]+=`, ".html"},
		{"something that is kept", `localStorage|sessionStorage|indexedDB|document\.cookie`, ".js"},
	} {
		pattern := regexp.MustCompile(row.pattern)
		for _, name := range files(t) {
			if !strings.Contains(row.in, path.Ext(name)) {
				continue
			}
			for _, found := range pattern.FindAllString(read(t, name), -1) {
				if !slices.Contains(examples, found) {
					t.Errorf("%s: %s: %q", name, row.name, found)
				}
			}
		}
	}
}

// TestFields checks that every field of the form is in fetch.proto and has the right data-kind.
func TestFields(t *testing.T) {
	t.Parallel()
	contract, err := os.ReadFile("../../proto/fetchd/v1/fetch.proto")
	if err != nil {
		t.Fatal(err)
	}
	messages := make(map[string]map[string]string) // type of a field, by message and name
	for _, m := range regexp.MustCompile(`(?ms)^message (\w+) \{(.*?)^\}`).FindAllStringSubmatch(string(contract), -1) {
		messages[m[1]] = make(map[string]string)
		for _, f := range regexp.MustCompile(`(?m)^  ((?:optional |repeated )?[\w.<>, ]+) (\w+) = \d+;`).FindAllStringSubmatch(m[2], -1) {
			messages[m[1]][f[2]] = strings.TrimPrefix(f[1], "optional ")
		}
	}
	kinds := map[string]string{"text": "string", "int": "int32", "int64": "int64", "number": "double", "duration": "google.protobuf.Duration",
		"truth": "bool", "list": "repeated string", "ints": "repeated int32", "labels": "map<string, string>", "body": "bytes"}
	fields := regexp.MustCompile(`data-path="([\w.]+)" data-kind="(\w+)"`).FindAllStringSubmatch(read(t, "page/index.html"), -1)
	if len(fields) < 40 {
		t.Fatalf("%d fields", len(fields))
	}
	for _, f := range fields {
		message, name := "FetchRequest", f[1]
		if outer, inner, nested := strings.Cut(f[1], "."); nested {
			message, name = messages["FetchRequest"][outer], inner
		}
		got := messages[message][name]
		_, isMessage := messages[got]
		switch {
		case got == "" || isMessage:
			t.Errorf("fetch.proto has no field %s", f[1])
		case f[2] == "choice" && (got == "string" || strings.Contains(string(contract), "enum "+got+" {")):
		case kinds[f[2]] != got && (f[2] != "int64" || got != "uint64"):
			t.Errorf("%s is %s in fetch.proto, but data-kind %s in the form", f[1], got, f[2])
		}
	}
	for _, v := range regexp.MustCompile(`<option value="([A-Z]+_[A-Z_]+)"`).FindAllStringSubmatch(read(t, "page/index.html"), -1) {
		if !strings.Contains(string(contract), "  "+v[1]+" = ") {
			t.Errorf("fetch.proto has no value %s", v[1])
		}
	}
}
