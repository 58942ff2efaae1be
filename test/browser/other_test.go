//go:build linux

package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestPageOfAnotherSite checks that a page of another site cannot make the service fetch, whatever
// it sends.
func TestPageOfAnotherSite(t *testing.T) {
	p := open(t)
	p.expect("") // the browser reports each refusal
	other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(rw, "<title>other</title>")
	}))
	t.Cleanup(other.Close)
	target := p.origin.URL("http", "/s/other/200:body=hello")
	raw := fmt.Sprintf("%q", p.base+"/v1/raw?url="+url.QueryEscape(target))
	const header = `'Fetchd-Request': '{}'`
	for _, from := range []string{strings.Replace(other.URL, "127.0.0.1", "localhost", 1), other.URL} { // another site; another origin of the same site
		p.do(chromedp.Navigate(from))
		for _, row := range []struct{ name, try string }{
			{"a GET", `await fetch(RAW, { mode: 'no-cors' })`},
			{"a GET with credentials", `await fetch(RAW, { mode: 'no-cors', credentials: 'include' })`},
			{"a GET with the header", `await fetch(RAW, { headers: { ` + header + ` } })`},
			{"a GET with the header, without CORS", `await fetch(RAW, { mode: 'no-cors', headers: { ` + header + ` } })`},
			{"a GET with a token", `await fetch(RAW, { headers: { Authorization: 'Bearer a' } })`},
			{"a HEAD", `await fetch(RAW, { method: 'HEAD', mode: 'no-cors' })`},
			{"a POST", `await fetch(RAW, { method: 'POST', mode: 'no-cors', body: 'a=b' })`},
			{"a POST of JSON", `await fetch(FETCH, { method: 'POST', mode: 'no-cors', body: JSON.stringify({ url: TARGET }) })`},
			{"a beacon", `navigator.sendBeacon(RAW, 'a=b')`},
			{"an image", `await loaded(Object.assign(new Image(), { src: RAW }))`},
			{"a script", `await loaded(Object.assign(document.createElement('script'), { src: RAW }))`},
			{"a style sheet", `await loaded(Object.assign(document.createElement('link'), { rel: 'stylesheet', href: RAW }))`},
			{"a frame", `await loaded(Object.assign(document.createElement('iframe'), { src: RAW }))`},
			{"events", `const e = new EventSource(RAW); await new Promise((done) => { e.onerror = done; e.onopen = done; }); e.close()`},
			{"a form", `await submitted('GET')`},
			{"a form by POST", `await submitted('POST')`},
		} {
			eval[bool](p, fmt.Sprintf(`(async () => {
				const RAW = %s, FETCH = %q, TARGET = %q;
				const loaded = (e) => new Promise((done) => { e.onload = e.onerror = done; setTimeout(done, 3000); document.body.append(e); });
				const submitted = async (method) => {
					const frame = Object.assign(document.createElement('iframe'), { name: 'frame-' + method });
					document.body.append(frame);
					const form = Object.assign(document.createElement('form'), { method, action: RAW, target: frame.name });
					form.append(Object.assign(document.createElement('input'), { name: 'url', value: TARGET }));
					document.body.append(form);
					const done = new Promise((done) => { frame.onload = done; setTimeout(done, 1000); });
					form.submit();
					await done;
				};
				try { %s } catch { /* refused */ }
				return true;
			})()`, raw, p.base+"/v1/fetch", target, row.try))
			if n := len(p.origin.Requests("other")); n != 0 {
				t.Fatalf("%s, from %s: the origin saw %d requests, want none", row.name, from, n)
			}
		}
		_ = chromedp.Do(p.ctx, chromedp.Navigate(strings.Trim(raw, `"`))) // as a link would; the browser shows no attachment
	}
	if n := len(p.origin.Requests("other")); n != 0 {
		t.Errorf("a link: the origin saw %d requests, want none", n)
	}
	p.visit("")
	got := eval[string](p, fmt.Sprintf(`fetch(%s, { headers: { %s } }).then((r) => r.text())`, raw, header))
	if n := len(p.origin.Requests("other")); got != "hello" || n != 1 {
		t.Errorf("the console reads %q, and the origin saw %d requests; want hello and 1", got, n)
	}
}
