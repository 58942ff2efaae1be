package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"fetchd/test/clitest"
	"fetchd/test/rig"
	"fetchd/warc"
)

// startEcho starts a server that answers with the request: its method, target, the headers that flags of
// curl set, and its body. The boundary of a multipart body becomes BOUNDARY.
func startEcho() (addr string, stop func()) {
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := r.Method + " " + r.URL.RequestURI() + "\n"
		for _, name := range []string{"Accept", "Authorization", "Content-Type", "Cookie", "Range", "Referer", "X-Test"} {
			if value := r.Header.Get(name); value != "" && value != "*/*" {
				text += name + ": " + value + "\n"
			}
		}
		text += string(body)
		if _, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && params["boundary"] != "" {
			text = strings.ReplaceAll(strings.ReplaceAll(text, params["boundary"], "BOUNDARY"), "\r", "")
		}
		_, _ = io.WriteString(w, text)
	}))
	return echo.URL, echo.Close
}

// sameAsCurl runs "fetchctl get -s" and, if it is installed, "curl -s" with the same words, and compares what they
// print: same ARGS.
func sameAsCurl(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: same ARGS")
	}
	want, compare := "", false
	if _, err := exec.LookPath("curl"); err == nil {
		ts.Check(ts.Exec("curl", append([]string{"-s"}, args...)...))
		want, compare = ts.ReadFile("stdout"), true
	}
	ts.Check(ts.Exec("fetchctl", append([]string{"get", "-s"}, args...)...))
	if got := ts.ReadFile("stdout"); compare && got != want {
		ts.Fatalf("fetchctl get printed\n%s\ncurl printed\n%s", got, want)
	}
}

// startProxy starts a proxy that forwards every request to target, and returns its address.
func startProxy(target string) (addr string, stop func()) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", target)
		if err != nil {
			http.Error(w, "unreachable", http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		if r.Method == http.MethodConnect {
			_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		} else {
			_ = r.Write(there)
		}
		go func() {
			_, _ = io.Copy(there, here)
			_ = there.Close()
		}()
		_, _ = io.Copy(here, there)
	}))
	return proxy.Listener.Addr().String(), proxy.Close
}

// TestDownloadProxies downloads through the proxy of the environment and past it, in one run. One file has
// the records of both.
func TestDownloadProxies(t *testing.T) {
	t.Parallel()
	o, dir := rig.Origin(t), t.TempDir()
	addr, stop := startProxy(o.Addr("http"))
	t.Cleanup(stop)
	env := map[string]string{"http_proxy": "http://user:hush@" + addr}
	got := fetchctl.With(t.Context(), "", env, "download", "-d", dir, "--warc", dir+"/both.warc", "http://proxied.test/s/proxied/200:size=10", o.URL("http", "/s/direct/200:size=20"))
	if got.Code != 0 || strings.Contains(got.Err, "hush") {
		t.Errorf("exit status %d, %q", got.Code, got.Err)
	}
	if proxied, direct := o.Requests("proxied"), o.Requests("direct"); len(proxied) != 1 || len(direct) != 1 {
		t.Errorf("%d requests by the proxy and %d without it, want one each", len(proxied), len(direct))
	}
	if n := countRecords(t, dir+"/both.warc"); n != 4 {
		t.Errorf("%d records, want 4", n)
	}
}

// TestProxyOfRedirects follows redirects from a host without a proxy to one that only the proxy can look up.
func TestProxyOfRedirects(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	addr, stop := startProxy(o.Addr("http"))
	t.Cleanup(stop)
	env := map[string]string{"http_proxy": "http://user:hush@" + addr, "no_proxy": "direct.test"}
	got := fetchctl.With(t.Context(), "", env, "get", "-s", "-r", "0", o.URL("http", "/s/direct/302:to="+url.QueryEscape("http://proxied.test/s/proxied/200:body=hello")))
	if got.Code != 0 || got.Out != "hello" || strings.Contains(got.Err, "hush") {
		t.Errorf("exit status %d, %q, %q, want the body that the proxy reaches", got.Code, got.Out, got.Err)
	}
	got = fetchctl.With(t.Context(), "", env, "get", "-r", "0", "http://proxied.test/s/back/302:to="+url.QueryEscape("http://direct.test/"))
	if got.Code != 10 || !strings.Contains(got.Err, "direct.test: ") || strings.Contains(got.Err, "proxyconnect") {
		t.Errorf("exit status %d, %q, want that direct.test is looked up without the proxy", got.Code, got.Err)
	}
}

// countRecords returns how many requests and responses a file has. It must not contain the password of a proxy.
func countRecords(t *testing.T, name string) (n int) {
	t.Helper()
	data, err := os.ReadFile(name)
	clitest.Must(t, err)
	for _, secret := range []string{"hush", "Proxy-Authorization", base64.StdEncoding.EncodeToString([]byte("user:hush"))} {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s contains %q", name, secret)
		}
	}
	for r := warc.NewReader(bytes.NewReader(data), warc.ReaderOptions{Verify: true}); ; {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		clitest.Must(t, err)
		if record.Type != warc.Warcinfo {
			n++
		}
	}
}
