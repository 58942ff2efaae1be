package fetch_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// contentRange returns the parameters of a 206 with these values of Content-Range.
func contentRange(values ...string) string {
	text := ""
	for i, value := range values {
		text += ",header" + strings.Repeat("2", i) + "=Content-Range=" + strings.NewReplacer(" ", "%20", "/", "%2F").Replace(value)
	}
	return text
}

// TestPartialContent checks that the body of a 206 that does not contain everything is said to be a
// part, and is never stored (B5, B8).
func TestPartialContent(t *testing.T) {
	t.Parallel()
	const parts = ",type=multipart%2Fbyteranges%3B%20boundary=x"
	for _, row := range []struct {
		name, answer string
		part         bool
	}{
		{"200", "200:size=5", false},
		{"200 with Content-Range", "200:size=5" + contentRange("bytes 0-4/5000"), false},
		{"203 with Content-Range", "203:size=5" + contentRange("bytes 0-4/5000"), false},
		{"the beginning", "206:size=5" + contentRange("bytes 0-4/5000"), true},
		{"the middle", "206:size=5" + contentRange("bytes 7-11/5000"), true},
		{"the end", "206:size=5" + contentRange("bytes 4995-4999/5000"), true},
		{"everything", "206:size=5" + contentRange("bytes 0-4/5"), false},
		{"everything, coded", "206:size=5000,coding=gzip" + contentRange("bytes 0-4/5"), true},
		{"everything, in upper case", "206:size=5" + contentRange("BYTES 0-4/5"), false},
		{"everything, without a length", "206:size=5,no-length" + contentRange("bytes 0-4/5"), false},
		{"less than it says, without a length", "206:size=5,no-length" + contentRange("bytes 0-4999/5000"), true},
		{"less than it says, with a length", "206:size=5" + contentRange("bytes 0-4999/5000"), true},
		{"more than it says", "206:size=50" + contentRange("bytes 0-4/5"), true},
		{"an unknown total", "206:size=5" + contentRange("bytes 0-4/*"), true},
		{"unsatisfiable", "206:size=5" + contentRange("bytes */5000"), true},
		{"unsatisfiable, of the length", "206:size=5" + contentRange("bytes */5"), true},
		{"no Content-Range", "206:size=5", true},
		{"an empty Content-Range", "206:size=5" + contentRange(""), true},
		{"a broken Content-Range", "206:size=5" + contentRange("bytes 0-4/5x"), true},
		{"another unit", "206:size=5" + contentRange("lines 0-4/5"), true},
		{"a range that ends before it begins", "206:size=5" + contentRange("bytes 4-0/5"), true},
		{"a range behind the end", "206:size=5" + contentRange("bytes 0-5/5"), true},
		{"an overflow", "206:size=5" + contentRange("bytes 0-18446744073709551615/18446744073709551616"), true},
		{"two Content-Range", "206:size=5" + contentRange("bytes 0-4/5", "bytes 0-4/5000"), true},
		{"two equal Content-Range", "206:size=5" + contentRange("bytes 0-4/5", "bytes 0-4/5"), true},
		{"byteranges", "206:size=5" + parts, true},
		{"byteranges with Content-Range", "206:size=5" + parts + contentRange("bytes 0-4/5"), true},
		{"empty", "206:size=0", true},
	} {
		for _, listener := range []string{"http", "https"} {
			t.Run(row.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				for name, change := range map[string]func(*fetch.Request){
					"stream": func(*fetch.Request) {},
					"inline": func(r *fetch.Request) { r.Delivery = fetch.Inline },
					"auto":   func(r *fetch.Request) { r.Delivery = fetch.Auto },
					"digest": func(r *fetch.Request) { r.Delivery = fetch.Digest },
					"asked":  func(r *fetch.Request) { r.Header = http.Header{"Range": {"bytes=0-4"}} },
				} {
					r := w.request(listener, "/s/k/"+row.answer)
					change(r)
					out := w.client.Fetch(t.Context(), r, nil)
					if out.Kind != classify.Success || out.Body.PartialContent != row.part {
						t.Errorf("%s: %s, partial content %t, want success, %t: %+v", name, out.Kind, out.Body.PartialContent, row.part, out.Failure)
					}
				}
				r, to := w.request(listener, "/s/k/"+row.answer), new(shelf)
				r.Delivery, r.Destination = fetch.Store, to
				out := w.client.Fetch(t.Context(), r, nil)
				got, want := failureText(out), "ok"
				if row.part {
					want = "integrity partial_content not_retryable"
				}
				if got != want || slices.Contains(to.states(), "committed") == row.part || (out.Stored != nil) == row.part {
					t.Errorf("store: %s, uploads %q, stored %v; want %s", got, to.states(), out.Stored, want)
				}
			})
		}
	}
}

// TestPartialContentWithoutBody checks what is said of a body that is not read, and of a HEAD, which
// has none.
func TestPartialContentWithoutBody(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	for _, row := range []struct {
		name   string
		change func(*fetch.Request)
		part   bool
	}{
		{"not read", func(r *fetch.Request) { r.Delivery = fetch.None }, true},
		{"HEAD", func(r *fetch.Request) { r.Method = http.MethodHead }, false},
		{"POST", func(r *fetch.Request) { r.Method = http.MethodPost }, true},
	} {
		r := w.request("http", "/s/k/206:size=5"+contentRange("bytes 0-4/5000"))
		row.change(r)
		if out := w.client.Fetch(t.Context(), r, nil); out.Kind != classify.Success || out.Body.PartialContent != row.part {
			t.Errorf("%s: %s, partial content %t, want success, %t", row.name, out.Kind, out.Body.PartialContent, row.part)
		}
	}
}

// TestPartialContentKeepsPrecedence checks that other failures of the same response come first (§3).
func TestPartialContentKeepsPrecedence(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	for _, row := range []struct {
		name   string
		change func(*fetch.Request)
		want   string
	}{
		{"another media type", func(r *fetch.Request) { r.Content.MediaTypes = []string{"image/png"} }, "content_type unwanted_media_type not_retryable"},
		{"too long", func(r *fetch.Request) { r.MaxBodyBytes = 4 }, "body_too_large content_length not_retryable"},
		{"another size", func(r *fetch.Request) { r.Integrity.Size = 4 }, "integrity partial_content not_retryable"},
	} {
		r := w.request("http", "/s/k/206:size=5"+contentRange("bytes 0-4/5000"))
		r.Delivery, r.Destination = fetch.Store, new(shelf)
		row.change(r)
		if got := failureText(w.client.Fetch(t.Context(), r, nil)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// TestPartialContentContinues checks that a body that was continued by a 206 is whole, and that an
// unasked part is not continued.
func TestPartialContentContinues(t *testing.T) {
	t.Parallel()
	const tag, size = ",etag=%22v1%22,range", "200:size=1000000"
	for _, row := range []struct {
		name, script string
		change       func(*fetch.Request)
		want         string
		attempts     int
		part         bool
	}{
		{"continued", size + tag + ",cut=700000/" + size + tag, nil, "ok", 2, false},
		{"a resume point", size + tag, func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: 10, Validator: `"v1"`} }, "ok", 1, false},
		{"two Content-Range", size + tag + ",cut=700000/206:size=300000,offset=700000,etag=%22v1%22" + contentRange("bytes 700000-999999/1000000", "bytes 0-4/5"), nil,
			"body_interrupted cut body_committed", 2, false},
		{"nothing was missing", size + tag + ",chunked,chunk-fault=no-last/" + size + tag, nil, "ok", 2, false},
		{"nothing was missing, in two Content-Range", size + tag + ",chunked,chunk-fault=no-last/" + size + tag + contentRange("bytes */1000000"), nil, "http_client_error  not_retryable", 2, false},
		{"an unasked part that breaks", "206:size=700000,cut=600000,etag=%22v1%22" + contentRange("bytes 0-699999/1000000"), nil, "body_interrupted cut body_committed", 1, true},
		{"the same after a failure", "503/206:size=5" + contentRange("bytes 0-4/5000"), nil, "ok", 2, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", "/s/k/"+row.script)
			r.HoldBackBytes = 1000
			if row.change != nil {
				row.change(r)
			}
			out := w.client.Fetch(t.Context(), r, func(fetch.Event) error { return nil })
			if got := failureText(out); got != row.want || out.Attempts != row.attempts || out.Body.PartialContent != row.part {
				t.Errorf("%s, %d attempts, partial content %t; want %s, %d, %t", got, out.Attempts, out.Body.PartialContent, row.want, row.attempts, row.part)
			}
		})
	}
}

// TestStatusLineVersions checks that the connection decides which protocol is spoken, not the status
// line (N10, B5).
func TestStatusLineVersions(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	for _, row := range []struct {
		version string
		ok      bool
		chunks  bool // are chunks in that version
	}{
		{"1.0", true, false},
		{"1.2", true, true},
		{"1.9", true, true},
		{"0.9", false, false},
		{"2", false, false},
		{"2.0", false, false},
		{"3.0", false, false},
		{"9.9", false, false},
	} {
		for _, framing := range []struct {
			params string
			known  bool
		}{
			{",size=2000", true}, {",size=2000,no-length", false}, {",size=2000,chunked,close", row.chunks},
		} {
			r := w.request("http", "/s/k/200:version="+row.version+framing.params)
			res := w.fetch(r)
			switch {
			case !row.ok && (res.Failure == nil || res.Failure.Class != classify.Protocol || row.version != "2" && res.Failure.Reason != "http_version" || res.Attempts != 1 || res.Response != nil):
				t.Errorf("HTTP/%s%s: %s, %d attempts, %+v; want PROTOCOL, http_version", row.version, framing.params, res.Kind, res.Attempts, res.Failure)
			case row.ok && (res.Kind != classify.Success || res.Body.LengthKnown != framing.known):
				t.Errorf("HTTP/%s%s: %s, length known %t; want success, %t", row.version, framing.params, res.Kind, res.Body.LengthKnown, framing.known)
			case row.ok && framing.known && !bytes.Equal(res.body, w.origin.Body(2000)):
				t.Errorf("HTTP/%s%s: %d bytes, want 2000", row.version, framing.params, len(res.body))
			}
		}
	}
	if open := w.client.Connections().Open; open > 3 {
		t.Errorf("%d connections are open, want none that broke the protocol", open)
	}
}
