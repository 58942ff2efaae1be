//go:build linux

package browser

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log" //nolint:depguard // ReverseProxy.ErrorLog has this type
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fetchd/test/must"
	"fetchd/test/wait"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
)

// foreign is a host name that leads to this machine in the browser.
const foreign = "foreign.example"

// attacks is a script with a function attack(service, target). It returns a mark for each request that
// it sent, which is a part of the URL.
//
//go:embed testdata/foreign.js
var attacks string

// TestForeignPage opens pages of other origins that try to make the service fetch. They send every kind
// of request that a page can send, to every path that fetches.
func TestForeignPage(t *testing.T) {
	p := open(t)
	if _, err := chromedp.CallBrowser(p.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorDeny}); err != nil {
		t.Fatal(err)
	}
	pages := httptest.NewServer(http.HandlerFunc(servePage))
	t.Cleanup(pages.Close)
	_, pagePort, _ := net.SplitHostPort(pages.Listener.Addr().String())
	for _, row := range []struct{ name, page, service string }{
		{"another port", "http://127.0.0.1:PAGES/", "http://127.0.0.1:SERVICE"},
		{"another name", "http://" + foreign + ":PAGES/", "http://127.0.0.1:SERVICE"},
		{"another name, and the service is localhost", "http://" + foreign + ":PAGES/", "http://localhost:SERVICE"},
		// The name first led to a server that sent the page, and now leads to the service.
		{"a name that leads here", "http://" + foreign + ":SERVICE/healthz", "http://" + foreign + ":SERVICE"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			relay := newRelay(t, p.base)
			_, port, _ := net.SplitHostPort(relay.Listener.Addr().String())
			ports := strings.NewReplacer("PAGES", pagePort, "SERVICE", port)
			q := p.tab(t)
			q.do(chromedp.Navigate(ports.Replace(row.page)))
			eval[bool](q, attacks+"; true")
			sent := eval[[]string](q, fmt.Sprintf("attack(%q, %q)", ports.Replace(row.service), p.origin.URL("http", "/s/foreign/200")))
			if len(sent) < 150 {
				t.Errorf("the page made %d requests, want at least 150: %q", len(sent), sent)
			}
			relay.wantRejected(t, sent) // before the tab leaves the page, which ends what it has not sent yet
			const link = "markLink"     // of which the browser shows nothing
			_ = chromedp.Do(q.ctx, chromedp.Navigate(ports.Replace(row.service)+"/v1/raw?url="+url.QueryEscape(p.origin.URL("http", "/s/foreign/200?"+link))))
			relay.wantRejected(t, []string{link})
			for _, r := range p.origin.AllRequests() {
				t.Errorf("the page made the service fetch %s", r.Path)
			}
		})
	}

	// The same calls from a program and from the console succeed.
	target := p.origin.URL("http", "/s/control/200:body=hello")
	for _, c := range []struct{ method, path, field, value, body string }{
		{"GET", "/v1/raw?url=" + url.QueryEscape(target), "Fetchd-Request", "{}", ""},
		{"POST", "/v1/raw?url=" + url.QueryEscape(target), "Fetchd-Request", "{}", "body"},
		{"POST", "/v1/fetch", "Content-Type", "application/json", `{"url":"` + target + `"}`},
		{"POST", "/v1/fetch:unary", "Content-Type", "application/json", `{"url":"` + target + `"}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, p.base+c.path, strings.NewReader(c.body))
		must.Succeed(t, err)
		req.Header.Set(c.field, c.value)
		before := len(p.origin.Requests("control"))
		resp, err := pages.Client().Do(req)
		must.Succeed(t, err)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read
		if n := len(p.origin.Requests("control")) - before; err != nil || resp.StatusCode != 200 || n != 1 {
			t.Errorf("%s %s from a program: %s, %d requests at the origin (%v), %s; want 200 and 1", c.method, c.path, resp.Status, n, err, text)
		}
	}
	p.run(p.origin.URL("http", "/s/own/200:body=hello"))
	p.want("pre.body", "hello")
}

// servePage serves the foreign page. Its path /to redirects to the URL in its query.
func servePage(rw http.ResponseWriter, r *http.Request) {
	if to := r.URL.Query().Get("url"); r.URL.Path == "/to" {
		http.Redirect(rw, r, to, http.StatusTemporaryRedirect)
		return
	}
	rw.Header().Set("Content-Type", "text/html")
	_, _ = io.WriteString(rw, "<!doctype html><title>foreign</title><body>")
}

// tab opens another tab of the browser. Its faults are not recorded.
func (p *page) tab(t *testing.T) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	t.Cleanup(cancel)
	ctx, end := context.WithTimeout(ctx, 3*patience)
	t.Cleanup(end)
	return &page{T: t, ctx: ctx, findings: new(findings)}
}

// relay forwards requests to the service as they are, and records them.
type relay struct {
	*httptest.Server

	mu   sync.Mutex
	seen map[string]int // the status of each method and URL
}

func newRelay(t *testing.T, service string) *relay {
	t.Helper()
	to, err := url.Parse(service)
	must.Succeed(t, err)
	r := &relay{seen: make(map[string]int)}
	r.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host
		},
		ModifyResponse: func(resp *http.Response) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[resp.Request.Method+" "+resp.Request.URL.String()] = resp.StatusCode
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0),
	})
	t.Cleanup(r.Close)
	return r
}

// wantRejected waits until the service has answered a request for each mark. All answers must be 4xx.
func (r *relay) wantRejected(t *testing.T, marks []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := wait.Until(ctx, 20*time.Millisecond, func() bool { return len(r.missing(marks)) == 0 }); err != nil {
		t.Fatalf("the service received no request for %q", r.missing(marks))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for request, status := range r.seen {
		if strings.Contains(request, "mark") && (status < 400 || status >= 500) {
			t.Errorf("%s of a foreign page: status %d, want 4xx", request, status)
		}
	}
}

// missing returns the marks for which there was no request.
func (r *relay) missing(marks []string) (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, mark := range marks {
		found := false
		for request := range r.seen {
			found = found || strings.Contains(request, mark)
		}
		if !found {
			missing = append(missing, mark)
		}
	}
	return missing
}
