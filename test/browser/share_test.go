//go:build linux

package browser

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/must"
	"fetchd/test/need"
)

// save presses the button and reads the file.
func (p *page) save() (text string, entries []map[string]any) {
	p.Helper()
	p.click("save")
	select {
	case path := <-p.saved:
		raw, err := os.ReadFile(path)
		must.Succeed(p, err)
		if filepath.Ext(path) != ".har" {
			p.Errorf("the file is called %s", path)
		}
		var file struct {
			Log struct{ Entries []map[string]any }
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			p.Errorf("HAR: %v", err)
		}
		otherReader(p.T, string(raw))
		p.wantSense(file.Log.Entries)
		return string(raw), file.Log.Entries
	case <-time.After(patience):
		p.Fatal("no file was saved")
		return "", nil
	}
}

// fields are those that the specification has in an entry and its parts. Others begin with an underscore.
var fields = map[string]string{
	"":         "startedDateTime time request response cache timings serverIPAddress connection comment",
	"request":  "method url httpVersion cookies headers queryString headersSize bodySize comment",
	"response": "status statusText httpVersion cookies headers content redirectURL headersSize bodySize",
	"timings":  "blocked dns connect send wait receive ssl",
}

// wantSense checks what the schema of the specification does not: the names of fields, the sums of timings, the order.
func (p *page) wantSense(entries []map[string]any) {
	p.Helper()
	before := ""
	for i, e := range entries {
		sum, ms := 0.0, make(map[string]float64)
		for _, name := range strings.Fields(fields["timings"]) {
			ms[name], _ = at(e, "timings", name).(float64)
			if name != "ssl" { // it is inside connect
				sum += max(0, ms[name])
			}
		}
		if total, _ := e["time"].(float64); math.Abs(total-sum) > 0.01 || ms["ssl"] > ms["connect"]+0.01 || min(ms["send"], ms["wait"], ms["receive"]) < 0 {
			p.Errorf("entry %d: a time of %v with timings %v", i, total, ms)
		}
		for part, names := range fields {
			object, _ := at(e, part).(map[string]any)
			if part == "" {
				object = e
			}
			for name := range object {
				if !strings.HasPrefix(name, "_") && !slices.Contains(strings.Fields(names), name) {
					p.Errorf("entry %d: %s is not in the specification", i, name)
				}
			}
		}
		began, _ := e["startedDateTime"].(string)
		if url, _ := at(e, "request", "url").(string); strings.Contains(url, "#") || at(e, "response", "content", "mimeType") == "" || began < before {
			p.Errorf("entry %d: URL %s, began %s after %s, or it has no type", i, url, began, before)
		}
		before = began
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

// otherReader checks that a file follows the schema of the specification, and that the check can fail.
// FETCHD_NODE_MODULES is the folder node_modules of package-lock.json.
func otherReader(t *testing.T, text string) {
	t.Helper()
	modules := os.Getenv("FETCHD_NODE_MODULES")
	if modules == "" {
		need.Missing(t, "run .ci/run console", "FETCHD_NODE_MODULES is not set")
	}
	const script = `
		const validate = require('har-validator');
		const data = JSON.parse(require('fs').readFileSync(0, 'utf8'));
		validate.har(data).then(() => console.log('valid'), e => { console.log(JSON.stringify(e.errors)); process.exit(1) });`
	for file, good := range map[string]bool{text: true, strings.Replace(text, `"version": "1.2"`, `"_version": "1.2"`, 1): false} {
		cmd := exec.CommandContext(t.Context(), need.Program(t, "node", "nodejs"), "-e", script)
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		cmd.Stdin = strings.NewReader(file)
		if out, err := cmd.CombinedOutput(); (err == nil) != good {
			t.Errorf("har-validator: %v, want a good file: %t\n%s", err, good, out)
		}
	}
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

// TestCopyAs runs the commands in a shell with stubs for the programs.
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
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\nprintf '%s\\0' \"$@\"\n"), 0o700))
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
}

// copied returns the text of a button of Copy as.
func (p *page) copied(id string) string {
	p.Helper()
	eval[bool](p, `(document.getElementById('copy-note').textContent = '', true)`)
	p.click(id)
	p.until(`document.getElementById('copy-note').textContent !== ''`)
	return eval[string](p, `document.getElementById('copy-text').value`)
}

// python returns a command that runs Python with the package in client/python.
func python(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import grpc").CombinedOutput(); err != nil {
		need.Missing(t, "install the Debian package python3-grpcio", "%v: %s", err, out)
	}
	source, err := filepath.Abs("../../client/python/src")
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1", "no_proxy=127.0.0.1")
	return cmd
}

// printRequest runs a program, and prints the request that its client would send.
const printRequest = `import sys, fetchd
from fetchd import _convert
from google.protobuf import json_format

class Client(fetchd.Client):
    def request(self, method, url, **options):
        print(json_format.MessageToJson(_convert.request(method, url, options)))
        sys.exit()

fetchd.Client = Client
exec(sys.stdin.read(), {})
`

// TestCopyAsPython checks that the program is short, and that its request is that of the page.
func TestCopyAsPython(t *testing.T) {
	p := open(t)
	const nearlyAll = `"url": "http://a.example/it's?q=%27", "method": "PUT", "headers": [{"name": "X-A", "value": "b"}], "body": "w6k=",
		"redirect_policy": {"follow": true, "max_redirects": 3, "scope": "REDIRECT_SCOPE_SAME_HOST", "forbid_downgrade": true, "forward_credentials": true},
		"retry_policy": {"profile": "RETRY_PROFILE_DOWNLOAD", "max_attempts": 5, "base_delay": "0.250s", "max_delay": "10s", "multiplier": 1.5, "max_jitter": "1s", "jitter_seed": "18446744073709551615",
			"max_retry_after": "90s", "additional_status_codes": [418, 423], "excluded_status_codes": [501], "allow_non_idempotent": true, "idempotency_key": "k", "retry_tls_handshake": false},
		"timeout_policy": {"total_timeout": "60s", "attempt_timeout": "1s", "connect_timeout": "2s", "header_timeout": "3s", "idle_timeout": "0.000000001s"},
		"precondition": {"etags": ["\"a\""], "last_modified_time": "2026-01-02T03:04:05Z"}, "integrity": {"sha256": "ab", "size_bytes": "7"}, "labels": {"a": "b", "base_delay": "5s", "x-y": "\u202e"},
		"auth_provider": "p", "egress_route": "r", "content_policy": {"accepted_media_types": ["text/*"], "require_body": true, "require_valid_charset": true}, "cookie_mode": "COOKIE_MODE_WITHIN_FETCH",
		"record_policy": {"store": "s", "earlier": {"record_id": "urn:uuid:1", "url": "http://a.example/", "record_time": "2026-01-02T03:04:05.123Z", "payload_digest": "sha1:A"}}`
	const policy = `"max_size_bytes": "9007199254740993", "oversize_action": "OVERSIZE_ACTION_TRUNCATE", "keep_encoding": true, "max_error_body_bytes": 9, "omit_digest": true`
	for _, row := range []struct{ name, request, text, fails string }{
		{"a URL", `{"url": "http://a.example/"}`, "import fetchd\n\nwith fetchd.Client(\"" + p.grpc + "\") as client:\n    response = client.get(\"http://a.example/\")\n    print(response)\n    print(response.text)\n", ""},
		{"all fields, and auto", `{` + nearlyAll + `, "body_policy": {` + policy + `, "auto": {"max_hold_back_bytes": "8", "recovery": "BODY_RECOVERY_RESTART", "resume_point": {"offset_bytes": "9", "validator": "\"v\""}}}}`, "", ""},
		{"all fields, and a store", `{` + nearlyAll + `, "body_policy": {` + policy + `, "store": {"store": "s", "key": "k"}}}`, "", ""},
		{"a digest", `{"url": "http://a.example/", "body_policy": {"digest": {}}}`, "", ""},
		{"bytes", `{"url": "http://a.example/", "method": "PURGE", "body": "/wA=", "headers": [{"name": "A", "raw_value": "/w=="}, {"name": "a", "value": "b"}]}`, "", ""},
		{"odd text", `{"url": "http://a.example/", "headers": [{"name": "X", "value": "\"\\\\\u202e\\n é 🙂\ud834\udd73"}], "body": "` + base64.StdEncoding.EncodeToString([]byte(odd)) + `"}`, "", ""},
		{"a name that is code", `{"url": "http://a.example/", "a=print('code')": 1}`, "", "is not an argument"},
		{"a method that is code", `{"url": "http://a.example/", "method": "get(print('code'))"}`, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := p.in(t)
			p.set("json", row.request)
			program := p.copied("as-python")
			if row.text != "" && program != row.text {
				t.Errorf("the program is\n%s\nwant\n%s", program, row.text)
			}
			cmd := python(t, "-c", printRequest)
			cmd.Stdin = strings.NewReader(program)
			out, err := cmd.CombinedOutput()
			if row.fails != "" {
				if err == nil || !strings.Contains(string(out), row.fails) || strings.HasPrefix(string(out), "code") {
					t.Errorf("%v, output %s, want an error with %s", err, out, row.fails)
				}
				return
			}
			got, want := new(pb.FetchRequest), new(pb.FetchRequest)
			if e := errors.Join(err, protojson.Unmarshal(out, got), protojson.Unmarshal([]byte(row.request), want)); e != nil {
				t.Fatalf("%v: %s\n%s", e, out, program)
			}
			want.Method = strings.ToUpper(want.GetMethod()) // as the package does
			if !proto.Equal(got, want) {
				t.Errorf("the request is\n%v, want\n%v", got, want)
			}
			if strings.HasPrefix(row.name, "all") {
				for _, field := range unset(want.ProtoReflect()) {
					t.Errorf("the test does not set %s", field)
				}
			}
		})
	}
	t.Run("a stream is read as a whole", func(t *testing.T) {
		p := p.in(t)
		p.set("json", `{"url": "http://a.example/", "body_policy": {"stream": {"recovery": "BODY_RECOVERY_NONE"}}}`)
		if program := p.copied("as-python"); !strings.Contains(program, `body_policy={"auto": {"recovery": "none"}}`) {
			t.Errorf("the program is\n%s", program)
		}
	})
}

// unset returns the fields of a request that are not set, except those of deliveries.
func unset(m protoreflect.Message) []string {
	var names []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		of := f.ContainingOneof()
		switch {
		case of != nil && !of.IsSynthetic() && !m.Has(f), f.Name() == "event_level", m.Descriptor().Name() == "Header":
		case m.Descriptor().ParentFile().Package() != "fetchd.v1":
		case !m.Has(f):
			names = append(names, string(f.FullName()))
		case f.Message() != nil && !f.IsList() && !f.IsMap():
			names = append(names, unset(m.Get(f).Message())...)
		}
	}
	return names
}

// TestCopyAsRuns runs the real programs, if they are installed. The origin receives the same requests
// from each.
func TestCopyAsRuns(t *testing.T) {
	p := open(t)
	p.header("X-Odd", "it's $HOME")
	p.set("method", "PUT")
	p.set("body", odd)
	for _, row := range []struct {
		id, program, try, remedy string
		times                    int
		want                     string
	}{
		{"as-curl", "curl", "curl --version", "install the Debian package curl", 2, `"attempt_finished"`},
		{"as-grpcurl", "grpcurl", "grpcurl --version", "run PATH=$(.ci/tools grpcurl):$PATH", 2, `"attemptFinished"`},
		{"as-python", "python", "true", "", 1, ", attempt 2, 5 bytes>\nhello"},
		{"as-node", "node", "test -d \"$FETCHD_NODE_PACKAGE/node_modules/fetchd\"", "run .ci/run console", 1, "200 hello"},
	} {
		t.Run(row.program, func(t *testing.T) {
			p := p.in(t)
			if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", row.try).CombinedOutput(); err != nil {
				need.Missing(t, row.remedy, "%v: %s", err, out)
			}
			p.set("url", p.origin.URL("http", "/s/"+row.program+"/503/200:body=hello"))
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-s")
			switch row.program {
			case "python":
				cmd = python(t, "-")
			case "node":
				cmd = exec.CommandContext(t.Context(), "node", "--input-type=module", "-")
				cmd.Dir = os.Getenv("FETCHD_NODE_PACKAGE")
			}
			cmd.Stdin = strings.NewReader(p.copied(row.id))
			if cmd.Env == nil {
				cmd.Env = append(os.Environ(), "no_proxy=127.0.0.1")
			}
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), row.want) != row.times {
				t.Errorf("%v, answer %s, want %q %d times", err, out, row.want, row.times)
			}
			seen, sum := p.origin.Requests(row.program), sha256.Sum256([]byte(odd))
			if len(seen) != 2 || seen[1].Method != "PUT" || seen[1].Header.Get("X-Odd") != "it's $HOME" || seen[1].BodySHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("the origin saw %v", seen)
			}
		})
	}
}
