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
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"fetchd/internal/cli"
	"fetchd/test/rig"
	"fetchd/warc"
)

// TestCurlTable checks that the script runs every row of the table in the help whose flags get has, with each of its flags.
func TestCurlTable(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/script/curl.txtar")
	must(t, err)
	for _, row := range curlTable {
		if !row.has {
			continue
		}
		_, after, ok := strings.Cut(string(script), "\n# "+row.flags+"\n")
		if !ok {
			t.Errorf("the script does not run the row %q", row.flags)
			continue
		}
		paragraph, _, _ := strings.Cut(after, "\n# ")
		for _, flag := range strings.FieldsFunc(row.flags, func(r rune) bool { return r == ',' || r == ' ' }) {
			// Letters may share a dash, and have a value.
			pattern := "[ ']" + regexp.QuoteMeta(flag) + "[ '=\n]"
			if len(flag) == 2 {
				pattern = "[ ']-[a-zA-Z]*" + flag[1:] + "[^ ]*[ '\n]"
			}
			if !regexp.MustCompile(`(?m)^(same|exec|exits|\[linux\]).*` + pattern).MatchString(paragraph) {
				t.Errorf("the script does not run %s of the row %q", flag, row.flags)
			}
		}
	}
}

// TestAnswers checks that each flag of curl or wget that get does not have says what to use instead, and that get has
// none of them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	n := 0
	for flag, answer := range answers() {
		if flag == "--" {
			continue // see the script
		}
		n++
		got := fetchctl(t, "get", flag, "http://127.0.0.1:1/")
		if want := "fetchctl: " + flag + ": there is no such flag: " + answer + "\n"; flag != "-O-" && (got.code != cli.ExitUsage || got.err != want) {
			t.Errorf("%s: exit status %d, %q, want %q", flag, got.code, got.err, want)
		}
	}
	if n < 80 {
		t.Errorf("%d flags are answered, want 80 or more", n)
	}
	if got := fetchctl(t, "mcp", "--proxy-url", "http://127.0.0.1:1/"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--egress-proxy") {
		t.Errorf("mcp --proxy-url: exit status %d, %q", got.code, got.err)
	}
}

// TestCurlHelp checks that the table fits a terminal.
func TestCurlHelp(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(reflexHelp()) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

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
	got := runWith(t.Context(), "", env, "download", "-d", dir, "--warc", dir+"/both.warc", "http://proxied.test/s/proxied/200:size=10", o.URL("http", "/s/direct/200:size=20"))
	if got.code != 0 || strings.Contains(got.err, "hush") {
		t.Errorf("exit status %d, %q", got.code, got.err)
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
	got := runWith(t.Context(), "", env, "get", "-s", "-r", "0", o.URL("http", "/s/direct/302:to="+url.QueryEscape("http://proxied.test/s/proxied/200:body=hello")))
	if got.code != 0 || got.out != "hello" || strings.Contains(got.err, "hush") {
		t.Errorf("exit status %d, %q, %q, want the body that the proxy reaches", got.code, got.out, got.err)
	}
	got = runWith(t.Context(), "", env, "get", "-r", "0", "http://proxied.test/s/back/302:to="+url.QueryEscape("http://direct.test/"))
	if got.code != 10 || !strings.Contains(got.err, "direct.test: ") || strings.Contains(got.err, "proxyconnect") {
		t.Errorf("exit status %d, %q, want that direct.test is looked up without the proxy", got.code, got.err)
	}
}

// countRecords returns how many requests and responses a file has. It must not contain the password of a proxy.
func countRecords(t *testing.T, name string) (n int) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
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
		must(t, err)
		if record.Type != warc.Warcinfo {
			n++
		}
	}
}

// TestWholeErrors checks that errors of the service inside name resolvers and proxies.
func TestWholeErrors(t *testing.T) {
	t.Parallel()
	o := rig.Origin(t)
	refused := o.Addr("refused")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a proxy", []string{"-x", "http://user:hush@" + refused, "http://a.test/"}, "a.test: proxyconnect tcp: dial tcp " + refused + ": connect: connection refused"},
		{"an origin", []string{o.URL("refused", "/")}, refused + ": dial tcp: connect: connection refused"},
		{"a status", []string{o.URL("http", "/s/status/503")}, o.Addr("http") + ": status 503 Service Unavailable\n"},
	} {
		for _, output := range []string{"--no-follow", "--json"} {
			got := fetchctl(t, append([]string{"get", "-r", "1", output}, tt.args...)...)
			if n := strings.Count(got.err, strings.TrimSuffix(tt.want, "\n")); n != 2 && output == "--no-follow" || n < 2 || strings.Contains(got.err, "hush") {
				t.Errorf("%s, %s: %d times %q in\n%s", tt.name, output, n, tt.want, got.err)
			}
		}
	}
}
