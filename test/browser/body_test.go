//go:build linux

package browser

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// file waits for a saved file, and returns its name and its bytes.
func (p *page) file() (name string, text []byte) {
	p.Helper()
	select {
	case path := <-p.saved:
		text, err := os.ReadFile(path)
		if err != nil {
			p.Fatal(err)
		}
		return filepath.Base(path), text
	case <-time.After(patience):
		p.Fatal("no file was saved")
		return "", nil
	}
}

// TestJSON checks that JSON is shown with line breaks, and as it was received.
func TestJSON(t *testing.T) {
	p := open(t)
	const received = "{\"b\":[1,{\"c\":\"<i>\u202e\"}],\"a\":12345678901234567890,\"a\":1.0e0,\"d\":{}, \"e\":[ ]}"
	p.run(p.origin.URL("http", "/s/json/200:type=application%2Fjson,body="+strings.ReplaceAll(url.PathEscape(received), ",", "%2C")))
	p.want("pre.body", "{\n  \"b\": [\n    1,\n    {\n      \"c\": \"<i>[U+202E]\"\n    }\n  ],\n  \"a\": 12345678901234567890,\n  \"a\": 1.0e0,\n  \"d\": {},\n  \"e\": []\n}")
	p.wantIn("#outcome-body h3 .muted", "application/json, all 75 bytes, as formatted JSON")
	p.click("as-received")
	p.want("pre.body", strings.ReplaceAll(received, "\u202e", "[U+202E]"))
	p.wantIn("#outcome-body h3 .muted", "as text")
	p.click("as-received")
	p.wantIn("#outcome-body h3 .muted", "as formatted JSON")
	for _, row := range []struct{ name, text, want string }{
		{"an array", `'[1]'`, "[\n  1\n]"},
		{"marks within a string", `'["{[,:\\\\\\""]'`, `["{[,:\\\""]`},
		{"not an object or an array", `'"a"'`, "null"},
		{"JSON that is cut off", `'{"a":[1,'`, "null"},
		{"text", `'hello'`, "null"},
		{"two values", `'{}{}'`, "null"},
		{"too much after formatting", `'[' + '[],'.repeat(200000) + '1]'`, "null"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			got := eval[string](p, `import('/console/body.js').then((m) => String(m.formatted(`+row.text+`)))`)
			if row.name == "marks within a string" {
				got = strings.NewReplacer("\n", "", "  ", "").Replace(got)
			}
			if got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
	t.Run("deep nesting", func(t *testing.T) {
		p := p.in(t)
		if got := eval[int](p, `import('/console/body.js').then((m) => m.formatted('['.repeat(3000) + ']'.repeat(3000)).length)`); got > 6000*50 {
			t.Errorf("6000 brackets become %d characters", got)
		}
	})
}

// TestBodyTools copies and saves bodies, and checks the names of the files.
func TestBodyTools(t *testing.T) {
	p := open(t)
	stub := func(p *page, how string) {
		eval[bool](p, `(navigator.clipboard.writeText = async (text) => { `+how+` }, true)`)
	}
	for _, row := range []struct {
		name, path string
		file       string
		saved      []byte
		copied     string // the start of the text; empty means that there is no Copy
		note       string
	}{
		{"text", "/s/text/200:body=h%C3%A9llo", "200_body_héllo.txt", []byte("héllo"), "héllo", "Copied."},
		{"hidden characters", "/s/odd/200:body=a%E2%80%AEb", "200_body_a_b.txt", []byte("a\u202eb"), "a[U+202E]b", "Copied."},
		{"a failure", "/s/fail/404:body=gone,type=text%2Fhtml", "404_body_gone_type_text_html.html", []byte("gone"), "gone", "Copied."},
		{"binary", "/s/bytes/200:bomb=900000,type=image%2Fpng", "200_bomb_900000_type_image_png.png", make([]byte, 900_000), "", ""},
		{"a large text", "/s/large/200:size=100000,type=text%2Fplain", "200_size_100000_type_text_plain.txt", p.origin.Body(100_000), string(p.origin.Body(64 << 10)), "Copied the first 64.0 KiB. Save has more."},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			p.run(p.origin.URL("http", row.path))
			stub(p, `window.copied = text`)
			eval[bool](p, `(() => { const make = URL.createObjectURL; URL.createObjectURL = (b) => { window.saved = b.type; return make.call(URL, b) }; return true })()`)
			p.click("save-body")
			name, text := p.file()
			if name != row.file || !bytes.Equal(text, row.saved) {
				t.Errorf("the file %s of %d bytes, want %s of %d", name, len(text), row.file, len(row.saved))
			}
			if kind := eval[string](p, `window.saved`); kind != "application/octet-stream" {
				t.Errorf("the file has the type %q", kind)
			}
			if row.copied == "" {
				p.want("#copy-body")
				p.wantIn("#outcome-body h3 .muted", "image/png, the first 256 bytes of 878.9 KiB, binary, in hex")
				p.wantIn("pre.body", "000000  00 00")
				return
			}
			p.click("copy-body")
			p.until(`document.getElementById('body-note').textContent.startsWith('Copied')`)
			p.want("#body-note", row.note)
			if got := eval[string](p, `window.copied`); got != row.copied {
				t.Errorf("the copy is %q, want %q", got, row.copied)
			}
		})
	}
	t.Run("more than the page keeps", func(t *testing.T) {
		p := p.in(t)
		got := eval[string](p, `(async () => {
			const { draw } = await import('/console/outcome.js');
			const { Fetch } = await import('/console/model.js');
			const fetch = new Fetch({});
			const data = btoa('x'.repeat(3 << 20));
			for (let i = 0; i < 22; i++) fetch.take({ elapsed_offset: '1s', body_chunk: { attempt: 1, data } });
			fetch.take({ elapsed_offset: '1s', outcome: { kind: 'OUTCOME_KIND_SUCCESS' } });
			draw(fetch, document.getElementById('outcome-body'), () => {});
			return [fetch.body.chunks.reduce((n, c) => n + c.length, 0), document.getElementById('save-body').textContent, document.querySelector('#outcome-body h3 .muted').textContent].join('; ');
		})()`)
		if want := "67108864; Save the first 64.0 MiB; the first 64.0 KiB of 66.0 MiB, as text"; got != want {
			t.Errorf("kept, button and description are %s; want %s", got, want)
		}
	})
	t.Run("a browser that does not copy", func(t *testing.T) {
		p := p.in(t)
		p.run(p.origin.URL("http", "/s/sel/200:body=hello"))
		stub(p, `throw new Error('not allowed')`)
		p.click("copy-body")
		p.until(`document.getElementById('body-note').textContent.startsWith('Selected')`)
		if got := eval[string](p, `getSelection().toString()`); got != "hello" {
			t.Errorf("%q is selected, want the body", got)
		}
	})
	for _, row := range []struct{ name, url, kind, coding, want string }{
		{"the name has an ending", "https://a.example/b/report.pdf?x=y.z", "application/pdf", "", "report.pdf"},
		{"a name without an ending", "https://a.example/b/report", "application/pdf", "", "report.pdf"},
		{"the root", "https://a.example/", "text/html", "", "index.html"},
		{"a folder", "https://a.example/b/", "application/json", "", "index.json"},
		{"no type", "https://a.example/b", "", "", "b.bin"},
		{"a type with a suffix", "https://a.example/b", "application/problem+json", "", "b.json"},
		{"a coding that is kept", "https://a.example/b.html", "text/html", "gzip", "b.html.gz"},
		{"separators", "https://a.example/..%2f..%5cb%3a.txt", "text/plain", "", "b_.txt"},
		{"an encoded slash", "https://a.example/a%2fb.txt", "text/plain", "", "a_b.txt"},
		{"a dot file", "https://a.example/.profile", "text/plain", "", "profile.txt"},
		{"a reversed ending", "https://a.example/a%e2%80%aefdp.exe", "", "", "a_fdp.exe"},
		{"a device", "https://a.example/con.txt", "text/plain", "", "_con.txt"},
		{"not UTF-8", "https://a.example/%ff", "text/plain", "", "ff.txt"},
		{"a long name", "https://a.example/" + strings.Repeat("x", 300), "text/plain", "", strings.Repeat("x", 80) + ".txt"},
		{"no URL", "", "text/plain", "", "index.txt"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			got := eval[string](p, fmt.Sprintf(`import('/console/files.js').then((m) => m.fileName(%q, %q, %q))`, row.url, row.kind, row.coding))
			if got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}
