package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

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
	return d, d.compiler.AddResource("openapi.json", page)
})

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
		d, fault := described()
		if fault == nil {
			fault = d.check(b.resp, b.text)
		}
		if fault != nil {
			b.of.Errorf("openapi.json: %s %s, status %d: %v", b.resp.Request.Method, b.resp.Request.URL.Path, b.resp.StatusCode, fault)
		}
	}
	return n, err
}
