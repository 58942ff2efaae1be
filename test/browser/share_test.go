//go:build linux

package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fetchd/cmd/fetchctl/har/hartest"
	"fetchd/test/need"
)

// save presses the button and reads the file.
func (p *page) save() (text string, entries []map[string]any) {
	p.Helper()
	p.click("save")
	select {
	case path := <-p.saved:
		raw, err := os.ReadFile(path)
		if err != nil {
			p.Fatal(err)
		}
		if filepath.Ext(path) != ".har" {
			p.Errorf("the file is called %s", path)
		}
		var file struct {
			Log struct{ Entries []map[string]any }
		}
		if err := errors.Join(hartest.Check(raw), json.Unmarshal(raw, &file)); err != nil {
			p.Errorf("HAR: %v", err)
		}
		return string(raw), file.Log.Entries
	case <-time.After(patience):
		p.Fatal("no file was saved")
		return "", nil
	}
}

// at returns the value at path in an entry.
func at(value any, path ...any) any {
	for _, key := range path {
		switch k := key.(type) {
		case string:
			o, _ := value.(map[string]any)
			value = o[k]
		case int:
			l, _ := value.([]any)
			if k >= len(l) {
				return nil
			}
			value = l[k]
		}
	}
	return value
}

// TestHAR checks that the file has every hop of every attempt, and no credentials.
func TestHAR(t *testing.T) {
	p := open(t)
	p.header("Authorization", "Bearer sesame")
	p.header("Accept", "text/plain")
	address := p.origin.URL("https", "/r/har/302/2/503/200:delay=20ms,body=h%C3%A9llo,set-cookie=id=1?a=b&c=")
	p.run(address + "#part")
	p.wantIn(".headline", "Success: 200 after 2 attempts")
	text, entries := p.save()
	if strings.Contains(text, "sesame") {
		t.Errorf("the file contains a credential: %s", text)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e["_attempt"], ".", e["_hop"], " ", at(e, "response", "status")))
	}
	if want := "1.1 302|1.2 302|1.3 503|2.1 302|2.2 302|2.3 200"; strings.Join(got, "|") != want {
		t.Fatalf("entries %q, want %s", got, want)
	}
	last := entries[5]
	for _, row := range []struct {
		name      string
		got, want any
	}{
		{"the URL of the first", at(entries[0], "request", "url"), address},
		{"its query", fmt.Sprint(at(entries[0], "request", "queryString")), "[map[name:a value:b] map[name:c value:]]"},
		{"its headers", fmt.Sprint(at(entries[0], "request", "headers")), "[map[comment:left out: a credential name:Authorization value:] map[name:Accept value:text/plain]]"},
		{"where it led, with the fragment that goes along", at(entries[0], "response", "redirectURL"), fmt.Sprint(at(entries[1], "request", "url"), "#part")},
		{"the body", at(last, "response", "content", "text"), "héllo"},
		{"its size", at(last, "response", "content", "size"), 6.0},
		{"its type", at(last, "response", "content", "mimeType"), "text/plain; charset=utf-8"},
		{"its cookie", fmt.Sprint(at(last, "response", "headers", 3)), "map[comment:left out: a credential name:Set-Cookie value:]"},
		{"the protocol", at(last, "response", "httpVersion"), "HTTP/2.0"},
		{"the peer", last["serverIPAddress"], "127.0.0.1"},
	} {
		if row.got != row.want {
			t.Errorf("%s: %v, want %v", row.name, row.got, row.want)
		}
	}
	if headers, _ := at(entries[0], "response", "headers").([]any); len(headers) == 0 {
		t.Error("the redirect has no headers")
	}
	if ssl, _ := at(entries[0], "timings", "ssl").(float64); ssl <= 0 {
		t.Errorf("the first hop has a TLS handshake of %v ms", ssl)
	}
	if wait, _ := at(last, "timings", "wait").(float64); wait < 20 {
		t.Errorf("the last hop waited %v ms, want the origin's 20 ms", wait)
	}
	if s, _ := entries[2]["comment"].(string); !strings.Contains(s, "; retry in 0.200s, backoff (rule W1)") {
		t.Errorf("the failed entry has %q", s)
	}
}

// TestHAROfFailures checks a fetch without a response, a body that is not text, and a cancelled
// fetch.
func TestHAROfFailures(t *testing.T) {
	p := open(t)
	p.run(p.origin.URL("http", "/s/reset/reset/200:charset-bytes=badutf8"))
	_, entries := p.save()
	if len(entries) != 2 || at(entries[0], "response", "status") != 0.0 || !strings.Contains(fmt.Sprint(entries[0]["_error"]), "connection_reset") {
		t.Errorf("entries %v", entries)
	}
	if at(entries[1], "response", "content", "encoding") != "base64" {
		t.Errorf("the body is %v", at(entries[1], "response", "content"))
	}
	p.set("url", p.origin.URL("http", "/s/up/503/silent"))
	p.click("run")
	p.until(`document.querySelectorAll('.bar.phase-live').length === 1 && document.querySelectorAll('.row.gap').length === 1`)
	p.click("cancel")
	p.ended()
	if _, entries = p.save(); len(entries) != 1 {
		t.Errorf("%d entries of finished hops, want 1", len(entries))
	}
}

// TestHAROfAContinuedBody checks that the page shows the response of the whole body, and each
// entry the response of its own attempt.
func TestHAROfAContinuedBody(t *testing.T) {
	p := open(t)
	const step = "200:size=900000,etag=%22v%22,range"
	p.run(p.origin.URL("http", "/s/continued/"+step+",cut=700000/"+step))
	p.wantIn(".headline", "Success: 200 after 2 attempts")
	p.wantIn(".facts", "200, of attempt 1")
	_, entries := p.save()
	var got []string
	for _, e := range entries {
		headers := fmt.Sprint(at(e, "response", "headers"))
		got = append(got, fmt.Sprint(at(e, "response", "status"), " ", at(e, "response", "content", "size"), " ", strings.Contains(headers, "Content-Range")))
	}
	if want := "200 900000 false|206 0 true"; strings.Join(got, "|") != want {
		t.Errorf("entries %q, want %s", got, want)
	}
}

// TestLink checks that a link has the request and no secret, and that the page does not run it.
func TestLink(t *testing.T) {
	p := open(t)
	address := p.origin.URL("http", "/s/link/200")
	for _, h := range [][2]string{{"Authorization", "Basic c2VzYW1l"}, {"Cookie", "id=sesame"}, {"X-Api-Key", "sesame"}, {"X-Other", "Bearer sesame"}, {"X-CSRF-Token", "sesame"}, {"Ocp-Apim-Subscription-Key", "sesame"}, {"Idempotency-Key", "sesame"}, {"Accept", "text/html"}} {
		p.header(h[0], h[1])
	}
	p.set("body", "sesame")
	p.set("idempotency", "sesame")
	p.set("attempts-max", "2")
	p.set("url", strings.Replace(address, "http://", "http://me:sesame@", 1)+"?q=1&access_token=sesame&X-Amz-Signature=sesame&subscription-key=sesame&passphrase=sesame")
	p.click("link")
	p.until(`!document.getElementById('link-box').hidden && document.getElementById('link-note').textContent !== ''`)
	for _, part := range []string{"Authorization", "Cookie", "X-Api-Key", "X-Other", "X-CSRF-Token", "Ocp-Apim-Subscription-Key", "Idempotency-Key", "the body", "idempotency key", "user and password", "access_token", "X-Amz-Signature", "subscription-key", "passphrase"} {
		p.wantIn("#link-note", part)
	}
	link := eval[string](p, `document.getElementById('link-text').value`)
	if got := eval[string](p, `location.href`); got != link {
		t.Errorf("the page is at %s, the link is %s", got, link)
	}
	_, fragment, _ := strings.Cut(link, "#")
	p.visit("#" + fragment)
	p.wantIn("#notice", "came from a link")
	want := fmt.Sprintf(`{"url":"%s?q=1&access_token=&X-Amz-Signature=&subscription-key=&passphrase=","headers":[{"name":"Accept","value":"text/html"}],"retry_policy":{"max_attempts":2}}`, address)
	if got := eval[string](p, `JSON.stringify(JSON.parse(document.getElementById('json').value))`); got != want {
		t.Errorf("the link opens %s, want %s", got, want)
	}
	if n := len(p.origin.AllRequests()); n != 0 {
		t.Errorf("%d requests were sent without a click", n)
	}
	p.click("run")
	p.ended()
	p.wantIn(".headline", "Success")
	t.Run("a body that is no secret", func(t *testing.T) {
		p := p.in(t)
		p.set("body", "plain")
		eval[bool](p, `(document.getElementById('body-secret').checked = false, true)`)
		p.click("link")
		p.wantIn("#link-note", "") // what it says is above
		p.until(`atob(location.hash.slice(3).replace(/-/g, '+').replace(/_/g, '/')).includes('"body":"cGxhaW4="')`)
	})
}

// odd is a value with characters that are special in shells and languages.
const odd = "it's \"quoted\" `id` $HOME \\n \\ !! %s {a,b} \u202e é 🙂 '\\''"

// TestCopyAs runs the commands in a shell with stubs for the programs, and the Python program
// in Python.
func TestCopyAs(t *testing.T) {
	p := open(t)
	p.header("X-Odd", odd)
	p.set("url", "http://a.example/it's?q=%27&r=[1-3]")
	want := eval[string](p, `JSON.stringify({ ...JSON.parse(document.getElementById('json').value), event_level: 'EVENT_LEVEL_ALL' })`)
	same := func(got string) bool {
		var a, b any
		if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
			return false
		}
		return fmt.Sprint(a) == fmt.Sprint(b)
	}
	text := func(id string) string {
		p.click(id)
		p.until(`document.getElementById('copy-note').textContent.toLowerCase().startsWith('` + strings.TrimPrefix(id, "as-") + `')`)
		return eval[string](p, `document.getElementById('copy-text').value`)
	}
	folder := t.TempDir()
	for _, name := range []string{"curl", "grpcurl"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\nprintf '%s\\0' \"$@\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	arguments := func(command string) []string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
		cmd.Env = []string{"PATH=" + folder, "HOME=/"}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	got := arguments(text("as-curl"))
	if len(got) != 9 || !same(got[7]) || got[8] != p.base+"/v1/fetch" || got[5] != "Content-Type: application/json" {
		t.Errorf("curl gets %q, want %s", got, want)
	}
	got = arguments(text("as-grpcurl"))
	if len(got) != 5 || got[0] != "-plaintext" || !same(got[2]) || got[3] != p.grpc || got[4] != "fetchd.v1.FetchService/Fetch" {
		t.Errorf("grpcurl gets %q, want %s", got, want)
	}
	python := need.Program(t, "python3", "python3")
	cmd := exec.CommandContext(t.Context(), python, "-c", `import ast, sys
for node in ast.walk(ast.parse(sys.stdin.read())):
    if isinstance(node, ast.Assign) and node.targets[0].id == "REQUEST":
        sys.stdout.buffer.write(ast.literal_eval(node.value).encode())`)
	cmd.Stdin = strings.NewReader(text("as-python"))
	out, err := cmd.Output()
	if err != nil || !same(string(out)) {
		t.Errorf("Python reads %s (%v), want %s", out, err, want)
	}
}

// TestCopyAsRuns runs the real programs, if they are installed. They receive the same events,
// and the origin the same header.
func TestCopyAsRuns(t *testing.T) {
	p := open(t)
	p.header("X-Odd", "it's $HOME")
	for _, row := range []struct{ id, program, try, remedy, events string }{
		{"as-curl", "curl", "curl --version", "install the Debian package curl", `"attempt_finished"`},
		{"as-grpcurl", "grpcurl", "grpcurl --version", "run PATH=$(.ci/tools grpcurl):$PATH", `"attemptFinished"`},
		{"as-python", "/usr/bin/python3", `/usr/bin/python3 -c "import grpc"`, "install the Debian package python3-grpcio", `"attempt_finished"`},
	} {
		t.Run(row.program, func(t *testing.T) {
			p := p.in(t)
			if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", row.try).CombinedOutput(); err != nil {
				need.Missing(t, row.remedy, "%v: %s", err, out)
			}
			key := strings.ReplaceAll(row.program, "/", "")
			p.set("url", p.origin.URL("http", "/s/"+key+"/503/200"))
			p.click(row.id)
			p.until(`document.getElementById('copy-text').value.includes('/s/` + key + `/')`)
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-s")
			text := eval[string](p, `document.getElementById('copy-text').value`)
			if row.id == "as-python" {
				cmd = exec.CommandContext(t.Context(), row.program, "-")
			}
			cmd.Stdin = strings.NewReader(text)
			cmd.Env = append(os.Environ(), "no_proxy=127.0.0.1")
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), row.events) != 2 {
				t.Errorf("%v, answer %s", err, out)
			}
			seen := p.origin.Requests(key)
			if len(seen) != 2 || seen[1].Header.Get("X-Odd") != "it's $HOME" {
				t.Errorf("the origin saw %v", seen)
			}
		})
	}
}
