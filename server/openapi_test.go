package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"fetchd/fetch/auth/httpsig"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/version"
)

// get sends a GET.
func (r *rig) get(path string, change ...func(*http.Request)) *http.Response {
	r.Helper()
	return r.post(r.Context(), path, "", append(change, func(req *http.Request) { req.Method = http.MethodGet })...)
}

// text reads an answer to its end.
func (r *rig) text(resp *http.Response) string {
	r.Helper()
	text, err := io.ReadAll(resp.Body)
	must(r, err)
	return string(text)
}

// TestOpenAPIServed requests the description.
func TestOpenAPIServed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	resp := r.get("/openapi.json")
	var page struct{ Info struct{ Version string } }
	if err := json.Unmarshal([]byte(r.text(resp)), &page); err != nil || resp.StatusCode != 200 || page.Info.Version != version.String() {
		t.Errorf("%s, version %q (%v); want 200, %q", resp.Status, page.Info.Version, err, version.String())
	}
	tag := resp.Header.Get("Etag")
	again := r.get("/openapi.json", func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
	if text := r.text(again); again.StatusCode != 304 || text != "" {
		t.Errorf("with the ETag %s: %s and %d bytes, want 304 and none", tag, again.Status, len(text))
	}
	if other := r.get("/openapi.json", func(r *http.Request) { r.Header.Set("If-None-Match", `"other"`) }); other.StatusCode != 200 {
		t.Errorf("with another ETag: %s, want 200", other.Status)
	}
}

// TestOpenAPIPaths compares the paths of the description with those that the service names.
func TestOpenAPIPaths(t *testing.T) {
	t.Parallel()
	r := newObserved(t) // with /metrics
	d, err := described()
	must(t, err)
	var file, served []string
	paths, _ := d.at("paths")
	for path := range paths {
		item, _ := d.at("paths", path)
		for method := range item {
			if method != "parameters" && method != "head" { // a GET includes HEAD
				file = append(file, strings.ToUpper(method)+" "+path)
			}
		}
	}
	var st struct{ Message string }
	must(t, json.Unmarshal([]byte(r.text(r.get("/nothing"))), &st))
	_, list, _ := strings.Cut(st.Message, ": see ")
	for route := range strings.SplitSeq(list, ", ") {
		if strings.Contains(route, " if ") { // a path that this service does not have
			continue
		}
		methods, path, _ := strings.Cut(route, " ")
		for method := range strings.SplitSeq(methods, "|") {
			served = append(served, method+" "+path)
		}
	}
	slices.Sort(file)
	slices.Sort(served)
	if diff := cmp.Diff(served, file); diff != "" {
		t.Errorf("the description (+) has not the paths of the service (-):\n%s", diff)
	}
}

// TestOpenAPIExamples validates every example of the description, and sends those of requests.
func TestOpenAPIExamples(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d, err := described()
	must(t, err)
	sent := 0
	var visit func(value any, at []string)
	visit = func(value any, at []string) {
		o, ok := value.(map[string]any)
		if !ok {
			return
		}
		examples, _ := o["examples"].(map[string]any)
		for name, e := range examples {
			example, _ := e.(map[string]any)
			if err := d.validate(example["value"], append(slices.Clone(at), "schema")...); err != nil {
				t.Errorf("%s, example %s: %v", pointer(at...), name, err)
			}
			if !slices.Contains(at, "requestBody") {
				continue
			}
			text, err := json.Marshal(example["value"])
			must(t, err)
			text = bytes.ReplaceAll(text, []byte("https://origin.example"), []byte(r.Origin.URL("http", "/s/example")))
			if resp := r.post(t.Context(), at[1], string(text)); resp.StatusCode != 200 {
				t.Errorf("%s, example %s: %s, %s", at[1], name, resp.Status, r.text(resp))
			} else {
				r.text(resp)
			}
			sent++
		}
		for _, key := range slices.Sorted(maps.Keys(o)) {
			visit(o[key], append(slices.Clone(at), key))
		}
	}
	visit(d.page, nil)
	if sent < 6 {
		t.Errorf("%d examples of requests, want at least 6", sent)
	}
}

// TestOpenAPIRejects shows that the checks of the other tests can fail: it checks answers that are not
// as described.
func TestOpenAPIRejects(t *testing.T) {
	t.Parallel()
	d, err := described()
	must(t, err)
	const (
		event   = `{"sequence":"1","elapsed_offset":"0.1s","body_chunk":{"attempt":1,"offset_bytes":"0","data":"aGVsbG8="}}`
		line    = `{"events":[` + event + `]}`
		decided = `{"rule":"W2","retry":{"attempt":2,"delay":"2s","delay_source":"DELAY_SOURCE_RETRY_AFTER","start":"RETRY_START_FIRST_URL"}}`
		finish  = `{"events":[{"sequence":"1","attempt_finished":{"attempt":1,"retry_decision":` + decided + `,"hops":[]}}]}`
		refusal = `{"code":8,"message":"m","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retry_delay":"1s"}]}`
	)
	for _, row := range []struct {
		name         string
		status       int
		text         string
		old, new     string // what is wrong: old is replaced by new
		field, value string // a header
	}{
		{name: "a body chunk", status: 200, text: line},
		{name: "two lines", status: 200, text: line + "\n" + finish},
		{name: "a number that should be a string", status: 200, text: line, old: `"1"`, new: `1`},
		{name: "a string that should be a number", status: 200, text: line, old: `"attempt":1`, new: `"attempt":"1"`},
		{name: "a field that is not described", status: 200, text: line, old: `"data"`, new: `"more":1,"data"`},
		{name: "an event that is not described", status: 200, text: line, old: `"body_chunk"`, new: `"body_piece"`},
		{name: "no event", status: 200, text: `{"events":[{"sequence":"1","elapsed_offset":"0.1s"}]}`, old: `0.1s`, new: `0.2s`},
		{name: "two events", status: 200, text: `{"events":[` + event + `,` + event + `]}`},
		{name: "two events in one", status: 200, text: line, old: `"body_chunk"`, new: `"heartbeat":{},"body_chunk"`},
		{name: "a retry and a stop reason", status: 200, text: finish, old: `"retry":`, new: `"stop_reason":"STOP_REASON_NO_TIME","retry":`},
		{name: "lowerCamelCase", status: 200, text: line, old: `"offset_bytes"`, new: `"offsetBytes"`},
		{name: "a missing default value", status: 200, text: line, old: `"offset_bytes":"0",`},
		{name: "a duration without its unit", status: 200, text: line, old: `0.1s`, new: `0.1`},
		{name: "bytes that are not base64", status: 200, text: line, old: `aGVsbG8=`, new: `hello`},
		{name: "a second line that is wrong", status: 200, text: line + "\n" + finish, old: `,"hops":[]`},
		{name: "an enum value", status: 200, text: finish},
		{name: "an unknown enum value", status: 200, text: finish, old: `RETRY_AFTER"`, new: `MAYBE"`},
		{name: "an enum value in lower case", status: 200, text: finish, old: `DELAY_SOURCE_RETRY_AFTER`, new: `retry_after`},
		{name: "no JSON", status: 200, text: line, old: `{"events"`, new: `"events"`},
		{name: "an error as the last line", status: 200, text: `{"error":` + refusal + `}`},
		{name: "a refusal", status: 429, text: refusal, field: "Retry-After", value: "1"},
		{name: "a status that is not described", status: 418, text: refusal, old: `"m"`, new: `"n"`},
		{name: "a header that is not described", status: 429, text: refusal, field: "Fetchd-New", value: "1", old: `"m"`, new: `"n"`},
		{name: "a header with a wrong value", status: 429, text: refusal, field: "Retry-After", value: "soon", old: `"m"`, new: `"n"`},
		{name: "details of an unknown type", status: 429, text: refusal, old: `RetryInfo`, new: `Help`},
		{name: "an outcome in place of a status", status: 429, text: refusal, old: refusal, new: line},
	} {
		resp := &http.Response{StatusCode: row.status, Header: http.Header{"Content-Type": {"application/json"}},
			Request: &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/v1/fetch"}}}
		if row.status == 200 {
			resp.Header.Set("Content-Type", "application/x-ndjson")
		}
		if row.field != "" {
			resp.Header.Set(row.field, row.value)
		}
		text, wrong := strings.Replace(row.text, row.old, row.new, 1), row.old != ""
		if err := d.check(resp, []byte(text)); (err != nil) != wrong {
			t.Errorf("%s: %v for %s; want an error: %v", row.name, err, text, wrong)
		}
	}
	for path, method := range map[string]string{"/v1/fetch": "POST", "/v1/descriptor": "GET"} {
		resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/html"}}, Request: &http.Request{Method: method, URL: &url.URL{Path: path}}}
		if err := d.check(resp, []byte(line)); err == nil {
			t.Errorf("%s of type text/html is as described, want an error", path)
		}
	}
}

// TestOpenAPIRequests compares what the schemas of requests and the service accept.
func TestOpenAPIRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d, err := described()
	must(t, err)
	for _, row := range []struct {
		name, more string
		accepted   bool
	}{
		{"a URL", ``, true},
		{"a 64-bit number", `,"retry_policy":{"jitter_seed":7}`, true},
		{"a 64-bit number as a string", `,"retry_policy":{"jitter_seed":"18446744073709551615"}`, true},
		{"a 64-bit number that is no number", `,"retry_policy":{"jitter_seed":"x"}`, false},
		{"a negative number without a sign in its type", `,"retry_policy":{"jitter_seed":"-1"}`, false},
		{"a duration", `,"timeout_policy":{"total_timeout":"1.5s"}`, true},
		{"a duration as a number", `,"timeout_policy":{"total_timeout":5}`, false},
		{"a duration in minutes", `,"timeout_policy":{"total_timeout":"5m"}`, false},
		{"a time", `,"precondition":{"last_modified_time":"2026-03-04T05:06:07Z"}`, true},
		{"a time without a zone", `,"precondition":{"last_modified_time":"2026-03-04 05:06:07"}`, false},
		{"bytes", `,"method":"POST","body":"aGVsbG8="`, true},
		{"bytes that are not base64", `,"method":"POST","body":"h"`, false},
		{"headers", `,"headers":[{"name":"A","value":"b"}]`, true},
		{"headers as an object", `,"headers":{"A":"b"}`, false},
		{"a map", `,"labels":{"a":"b"}`, true},
		{"a map as a list", `,"labels":["a"]`, false},
		{"a map of numbers", `,"labels":{"a":1}`, false},
		{"an enum value", `,"cookie_mode":"COOKIE_MODE_NONE"`, true},
		{"an enum value in short", `,"cookie_mode":"none"`, false},
		{"a boolean as a string", `,"redirect_policy":{"follow":"true"}`, false},
		{"a oneof", `,"body_policy":{"inline":{}}`, true},
		{"two of a oneof", `,"body_policy":{"inline":{},"digest":{}}`, false},
		{"a field that there is not", `,"uri":"a"`, false},
		{"a field that there is not, further in", `,"body_policy":{"size":1}`, false},
	} {
		text := `{"url":"` + r.Origin.URL("http", "/s/k/200") + `"` + row.more + `}`
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		must(t, err)
		if err := d.validate(value, "components", "schemas", "FetchRequest"); (err == nil) != row.accepted {
			t.Errorf("%s: the schema says %v, want accepted: %v", row.name, err, row.accepted)
		}
		resp := r.post(t.Context(), "/v1/fetch:unary", text)
		if answer := r.text(resp); (resp.StatusCode == 200) != row.accepted {
			t.Errorf("%s: the service says %s, %s; want accepted: %v", row.name, resp.Status, answer, row.accepted)
		}
	}
}

// TestOpenAPIErrors causes the errors that a client can cause, on every path that has them. The rig
// checks the answers.
func TestOpenAPIErrors(t *testing.T) {
	t.Parallel()
	type request struct{ method, path, body string }
	const url = "http://a.example/"
	calls := []request{{"POST", "/v1/fetch", `{"url":"` + url + `"}`}, {"POST", "/v1/fetch:unary", `{"url":"` + url + `"}`},
		{"POST", "/v1/explain", `{}`}, {"GET", "/v1/raw?url=" + url, ""}, {"HEAD", "/v1/raw?url=" + url, ""}, {"POST", "/v1/raw?url=" + url, "body"}}
	want := func(r *rig, what string, c request, status int, change ...func(*http.Request)) {
		r.Helper()
		resp := r.post(r.Context(), c.path, c.body, append([]func(*http.Request){sets("Fetchd-Request", "{}"), func(r *http.Request) { r.Method = c.method }}, change...)...)
		if text := r.text(resp); resp.StatusCode != status {
			r.Errorf("%s, %s %s: %s, %s; want %d", what, c.method, c.path, resp.Status, text, status)
		}
	}
	open, closed := newRig(t), newRig(t, knows)
	for _, c := range calls {
		want(closed, "without a token", c, 401)
		want(open, "from a page of another origin", c, 403, sets("Origin", "https://evil.example"))
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", httpsig.DirectoryPath, "/openapi.json", "/v1/descriptor", "/v1/raw"} {
		want(open, "with a long header", request{"GET", path, ""}, 431, sets("A", repeat(20<<10)))
	}
	want(open, "which is off", request{"GET", "/metrics", ""}, 404)

	bubble(t, func(r *rig) {
		for _, c := range calls {
			if c.body == "" {
				continue
			}
			body, never := io.Pipe()
			want(r, "with a body that does not come", c, 504, func(r *http.Request) { r.Body, r.ContentLength = body, -1 })
			_ = never.Close() // the service has answered
		}
		running := r.begin(r.request("/s/runs/200:delay=5s"))
		down := r.startShutDown()
		synctest.Wait()
		for _, c := range calls {
			want(r, "during a shutdown", c, 503)
		}
		<-running.ended
		down()
	})
}

// description is openapi.json. It checks every answer that the tests of this package receive through
// [rig.HTTPClient].
type description struct {
	page     map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex // of compiler
}

var described = sync.OnceValues(func() (*description, error) {
	text, err := os.ReadFile("internal/web/openapi.json")
	if err != nil {
		return nil, err
	}
	page, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	closeObjects(page)
	d := &description{compiler: jsonschema.NewCompiler()}
	d.page, _ = page.(map[string]any)
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	d.compiler.AssertContent()
	if err := d.stale(); err != nil {
		return nil, err
	}
	return d, d.compiler.AddResource("openapi.json", page)
})

// stale returns an error if the description lacks a field of the contract: it was not written again after the contract
// has changed, and every answer with the field would fail.
func (d *description) stale() error {
	messages := pb.File_fetchd_v1_fetch_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		var text []byte
		for _, form := range []string{"", "Input", "Output"} {
			if schema, _ := d.at("components", "schemas", string(m.Name())+form); schema != nil {
				part, err := json.Marshal(schema)
				if err != nil {
					return err
				}
				text = append(text, part...)
			}
		}
		for j := range m.Fields().Len() {
			if name := m.Fields().Get(j).Name(); text != nil && !bytes.Contains(text, []byte(`"`+name+`"`)) {
				return fmt.Errorf("server/internal/web/openapi.json has no field %s of %s: run .ci/generated, without an argument", name, m.Name())
			}
		}
	}
	return nil
}

// staleOnce reports a stale description once, and not for each answer.
var staleOnce sync.Once

// closeObjects allows no field in answers that is not described. The file itself allows them, because
// later versions may add fields.
func closeObjects(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, ok := value["properties"].(map[string]any); ok && value["additionalProperties"] == nil {
			value["additionalProperties"] = false
		}
		for _, v := range value {
			closeObjects(v)
		}
	case []any:
		for _, v := range value {
			closeObjects(v)
		}
	}
}

// pointer returns a JSON pointer.
func pointer(keys ...string) string {
	at := "#"
	for _, key := range keys {
		at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	}
	return at
}

// at returns the object at a pointer, and its own pointer, which is another one if there was a
// reference. It returns nil if there is no object.
func (d *description) at(keys ...string) (map[string]any, []string) {
	var value any = d.page
	for _, key := range keys {
		o, _ := value.(map[string]any)
		value = o[key]
	}
	o, _ := value.(map[string]any)
	if to, ok := o["$ref"].(string); ok {
		return d.at(strings.Split(strings.TrimPrefix(to, "#/"), "/")...)
	}
	return o, keys
}

// validate checks a value with the schema at a pointer.
func (d *description) validate(value any, keys ...string) error {
	d.mu.Lock()
	schema, err := d.compiler.Compile("openapi.json" + pointer(keys...))
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// operation returns the pointer to a method of a path. It returns nil if it is not described.
func (d *description) operation(method, path string) []string {
	method = strings.ToLower(method)
	for _, m := range []string{method, map[string]string{"head": "get"}[method]} { // HEAD is allowed wherever GET is
		if o, at := d.at("paths", path, m); o != nil {
			return at
		}
	}
	return nil
}

// check returns an error if an answer is not as described.
func (d *description) check(resp *http.Response, body []byte) error {
	method, path, status := resp.Request.Method, resp.Request.URL.Path, strconv.Itoa(resp.StatusCode)
	answer, at := map[string]any(nil), d.operation(method, path)
	switch known, _ := d.at("paths", path); {
	case at != nil:
		answer, at = d.at(append(at, "responses", status)...)
	case known != nil && resp.StatusCode == http.StatusMethodNotAllowed, known == nil && resp.StatusCode == http.StatusNotFound:
		answer, at = d.at("components", "responses", "NotFound")
	}
	if answer == nil {
		return errors.New("this status is not described")
	}
	faults := []error{d.checkFields(resp.Header, at), d.checkFields(resp.Trailer, at)}
	if method == http.MethodHead || resp.StatusCode == http.StatusNotModified {
		return errors.Join(faults...)
	}
	return errors.Join(append(faults, d.checkBody(resp.Header.Get("Content-Type"), body, append(at, "content")))...)
}

// general are the header fields that no answer describes.
var general = []string{"Accept-Ranges", "Allow", "Cache-Control", "Content-Disposition", "Content-Length", "Content-Security-Policy", "Content-Type", "Date",
	"Trailer", "Vary", "X-Content-Type-Options"}

func (d *description) checkFields(fields http.Header, at []string) error {
	var faults []error
	described, _ := d.at(append(at, "headers")...)
	for name, values := range fields {
		known := slices.Contains(general, name)
		for field := range described {
			if !strings.EqualFold(field, name) {
				continue
			}
			known = true
			_, to := d.at(append(at, "headers", field)...)
			if err := d.validate(strings.Join(values, ", "), append(to, "schema")...); err != nil {
				faults = append(faults, fmt.Errorf("header %s: %w", name, err))
			}
		}
		if !known {
			faults = append(faults, fmt.Errorf("the header %s is not described", name))
		}
	}
	return errors.Join(faults...)
}

func (d *description) checkBody(contentType string, body []byte, content []string) error {
	kinds, _ := d.at(content...)
	kind, _, _ := mime.ParseMediaType(contentType)
	if kinds[kind] == nil && kinds["*/*"] != nil {
		return nil
	}
	switch schema := append(content, kind, "schema"); {
	case kinds == nil && len(body) == 0:
		return nil
	case kinds[kind] == nil:
		return fmt.Errorf("the media type %q is not described", contentType)
	case strings.HasSuffix(kind, "json"):
		var faults []error
		lines := [][]byte{body}
		if kind == "application/x-ndjson" {
			lines = bytes.SplitAfter(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
		}
		for _, line := range lines {
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
			if err == nil {
				err = d.validate(value, schema...)
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("%.300q: %w", line, err))
			}
		}
		return errors.Join(faults...)
	default:
		return d.validate(string(body), schema...)
	}
}

// checked is a transport that checks each answer that is read to its end.
type checked struct {
	testing.TB
	*http.Transport
}

// RoundTrip implements http.RoundTripper.
func (c checked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.Transport.RoundTrip(req)
	if err == nil && !isConsole(req) {
		resp.Body = &checkedBody{ReadCloser: resp.Body, of: c, resp: resp}
	}
	return resp, err
}

// isConsole reports whether a request is for the console, which is not described.
func isConsole(req *http.Request) bool {
	return req.URL.Path == "/" || strings.HasPrefix(req.URL.Path, "/console/")
}

type checkedBody struct {
	io.ReadCloser
	of   checked
	resp *http.Response
	text []byte
	done bool
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.text = append(b.text, p[:n]...)
	if errors.Is(err, io.EOF) && !b.done {
		b.done = true
		b.of.Helper()
		d, err := described()
		if err != nil {
			staleOnce.Do(func() { b.of.Error(err) })
			return n, io.EOF
		}
		if fault := d.check(b.resp, b.text); fault != nil {
			b.of.Errorf("openapi.json: %s %s, status %d: %v", b.resp.Request.Method, b.resp.Request.URL.Path, b.resp.StatusCode, fault)
		}
	}
	return n, err
}
