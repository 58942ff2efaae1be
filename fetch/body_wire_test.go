package fetch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
	"fetchd/internal/budget"
)

func sum(p []byte) string {
	h := sha256.Sum256(p)
	return hex.EncodeToString(h[:])
}

// TestDeliveries reads bodies with every delivery, framing and coding over HTTP/1.1 and HTTP/2, and
// compares the bytes.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	type delivery struct {
		name   string
		change func(*fetch.Request)
	}
	for _, d := range []delivery{
		{"stream", func(r *fetch.Request) {}},
		{"stream without hold-back", func(r *fetch.Request) { r.HoldBackBytes = 0 }},
		{"stream over a small hold-back", func(r *fetch.Request) { r.HoldBackBytes = 1000 }},
		{"inline", func(r *fetch.Request) { r.Delivery = fetch.Inline }},
		{"auto", func(r *fetch.Request) { r.Delivery = fetch.Auto }},
		{"auto over a small hold-back", func(r *fetch.Request) { r.Delivery, r.HoldBackBytes = fetch.Auto, 1000 }},
		{"digest", func(r *fetch.Request) { r.Delivery = fetch.Digest }},
		{"none", func(r *fetch.Request) { r.Delivery = fetch.None }},
	} {
		for _, listener := range []string{"http", "https", "https1"} {
			t.Run(d.name+" "+listener, func(t *testing.T) {
				t.Parallel()
				w := newWire(t)
				bodies := []string{"", ",coding=gzip"}
				if listener == "http" { // a decoder does not know how its bytes arrive
					bodies = append(bodies, ",chunked", ",no-length", ",coding=br", ",coding=zstd", ",coding=deflate", ",coding=rawdeflate", ",coding=gzip,chunked")
				}
				for _, params := range bodies {
					r := w.request(listener, "/s/k/200:size=100000"+params)
					d.change(r)
					res := w.fetch(r)
					if res.Kind != classify.Success {
						t.Fatalf("%s: %s: %+v", params, res.Kind, res.Failure)
					}
					checkDelivery(t, params, r, &res, w.origin.Body(100000))
				}
			})
		}
	}
}

func checkDelivery(t *testing.T, params string, r *fetch.Request, res *result, want []byte) {
	t.Helper()
	inline := r.Delivery == fetch.Inline || r.Delivery == fetch.Auto && r.HoldBackBytes > 1000
	streamed := r.Delivery.Streams() && !inline
	if streamed != bytes.Equal(res.body, want) || !streamed && len(res.body) > 0 {
		t.Errorf("%s: %d bytes streamed", params, len(res.body))
	}
	if inline != bytes.Equal(res.InlineBody, want) || !inline && len(res.InlineBody) > 0 {
		t.Errorf("%s: %d bytes inline", params, len(res.InlineBody))
	}
	if r.Delivery == fetch.None {
		if res.Body.Size != 0 || res.Body.SHA256 != "" {
			t.Errorf("%s: summary %+v of a body that was not read", params, res.Body)
		}
		return
	}
	if res.Body.Size != int64(len(want)) || res.Body.SHA256 != sum(want) || res.Body.Truncated {
		t.Errorf("%s: summary %+v", params, res.Body)
	}
	coded := strings.Contains(params, "coding")
	if coded == (res.Body.EncodedSize == res.Body.Size) {
		t.Errorf("%s: %d bytes on the wire, %d decoded", params, res.Body.EncodedSize, res.Body.Size)
	}
	http1 := res.Hops[len(res.Hops)-1].Exchange.Protocol == "HTTP/1.1"
	if noLength := strings.Contains(params, "no-length") && http1; res.Body.LengthKnown == noLength {
		t.Errorf("%s: length known is %t", params, res.Body.LengthKnown)
	}
}

// TestHoldBack checks that held bytes come from one good attempt, and that delivered bytes are
// never replaced (B1, B3).
func TestHoldBack(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		holdBack   int64
		class      classify.Class
		stop       classify.Verdict
		attempts   int
		delivered  int
	}{
		{"an interruption within it is a retry", "/s/k/200:size=100000,cut=50000/200:size=100000", 512 << 10, 0, 0, 2, 100000},
		{"an interruption after it ends the fetch", "/s/k/200:size=100000,cut=50000/200:size=100000", 1000, classify.BodyInterrupted, classify.BodyCommitted, 1, 50000},
		{"an interruption at the first byte is a retry", "/s/k/200:size=100000,cut=0/200:size=100000", 1000, 0, 0, 2, 100000},
		{"no hold-back", "/s/k/200:size=100000,cut=50000/200:size=100000", 0, classify.BodyInterrupted, classify.BodyCommitted, 1, 50000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", row.path)
			r.HoldBackBytes = row.holdBack
			res := w.fetch(r)
			var class classify.Class
			if res.Failure != nil {
				class = res.Failure.Class
				if !res.Failure.Retryable {
					t.Error("not retryable")
				}
			}
			if class != row.class || res.StopReason != row.stop || res.Attempts != row.attempts {
				t.Errorf("class %s, stop %s, %d attempts, want %s, %s, %d", class, res.StopReason, res.Attempts, row.class, row.stop, row.attempts)
			}
			if want := w.origin.Body(100000)[:row.delivered]; !bytes.Equal(res.body, want) {
				t.Errorf("%d bytes delivered, want %d", len(res.body), len(want))
			}
			if res.Failure != nil && res.Body.Size != int64(row.delivered) {
				t.Errorf("summary has %d bytes, %d were delivered", res.Body.Size, row.delivered)
			}
		})
	}
}

// TestHoldBackBudget checks that a used-up budget makes the hold-back smaller and changes nothing
// else. The granted size is reported and released.
func TestHoldBackBudget(t *testing.T) {
	t.Parallel()
	w, b := newWire(t), budget.New(1<<20)
	for range 3 {
		r := w.request("http", "/s/k/200:size=70000")
		r.Memory = b.Lease("caller")
		var granted int64
		out := w.client.Fetch(t.Context(), r, func(e fetch.Event) error {
			if s, ok := e.(fetch.ResponseStarted); ok {
				granted = s.HoldBack
			}
			return nil
		})
		r.Memory.Close()
		if want := int64(48 << 10); out.Kind != classify.Success || granted > want || granted < want-1000 { // less the head's share
			t.Errorf("%s with %d bytes granted, want success with a little less than %d", out.Kind, granted, want)
		}
	}
	if held := b.Usage(); held.Total() != 0 {
		t.Errorf("%v bytes are still charged", held)
	}
}

// TestBodyLimits checks size, content and integrity.
func TestBodyLimits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		change     func(*fetch.Request)
		class      classify.Class
		size       int64
		truncated  bool
	}{
		{"at the limit", "/s/k/200:size=1000", func(r *fetch.Request) { r.MaxBodyBytes = 1000 }, 0, 1000, false},
		{"one over the limit", "/s/k/200:size=1001", func(r *fetch.Request) { r.MaxBodyBytes = 1000 }, classify.BodyTooLarge, 0, false},
		{"one over, length unknown", "/s/k/200:size=1001,chunked", func(r *fetch.Request) { r.MaxBodyBytes = 1000 }, classify.BodyTooLarge, 0, false},
		{"one over, coded", "/s/k/200:size=1001,coding=gzip", func(r *fetch.Request) { r.MaxBodyBytes = 1000 }, classify.BodyTooLarge, 0, false},
		{"one over, labels that are no coding", "/s/k/200:size=1001,header=Content-Encoding=identity,header=Content-Encoding=UTF-8", func(r *fetch.Request) { r.MaxBodyBytes = 1000 }, classify.BodyTooLarge, 0, false},
		{"a label that is no coding", "/s/k/200:size=1000,header=Content-Encoding=aws-chunked", func(r *fetch.Request) { r.MaxBodyBytes = 1000 }, 0, 1000, false},
		{"an empty line and a coding", "/s/k/200:size=1000,header=Content-Encoding=,coding=gzip", nil, 0, 1000, false},
		{"a coding and identity", "/s/k/200:size=1000,coding=gzip,header=Content-Encoding=Identity", nil, 0, 1000, false},
		{"two codings", "/s/k/200:size=1000,coding=gzip,header=Content-Encoding=br", nil, classify.Undecodable, 0, false},
		{"a coding that is not supported", "/s/k/200:size=1000,header=Content-Encoding=compress", nil, classify.Undecodable, 0, false},
		{"truncated at the limit", "/s/k/200:size=1001", func(r *fetch.Request) { r.MaxBodyBytes, r.Truncate = 1000, true }, 0, 1000, true},
		{"nothing to truncate", "/s/k/200:size=1000,chunked", func(r *fetch.Request) { r.MaxBodyBytes, r.Truncate = 1000, true }, 0, 1000, false},
		{"truncated to nothing", "/s/k/200:size=10", func(r *fetch.Request) { r.MaxBodyBytes, r.Truncate = 0, true }, 0, 0, true},
		{"inline takes 1 MiB", "/s/k/200:size=1048576", func(r *fetch.Request) { r.Delivery = fetch.Inline }, 0, 1 << 20, false},
		{"inline takes at most 1 MiB", "/s/k/200:size=1048577", func(r *fetch.Request) { r.Delivery = fetch.Inline }, classify.BodyTooLarge, 0, false},
		{"a type that is wanted", "/s/k/200:size=10,type=text%2Fhtml;charset=utf-8", func(r *fetch.Request) { r.Content.MediaTypes = []string{"text/*"} }, 0, 10, false},
		{"a type that is not", "/s/k/200:size=10,type=image%2Fpng", func(r *fetch.Request) { r.Content.MediaTypes = []string{"text/*", "application/xhtml+xml"} }, classify.ContentType, 0, false},
		{"no type at all", "/s/k/200:size=10,type=none", func(r *fetch.Request) { r.Content.MediaTypes = []string{"*/*"} }, classify.ContentType, 0, false},
		{"a 204 has no media type to check", "/s/k/204:type=none", func(r *fetch.Request) { r.Content.MediaTypes = []string{"text/html"} }, 0, 0, false},
		{"an empty body that must not be", "/s/k/200:size=0", func(r *fetch.Request) { r.Content.RequireBody = true }, classify.EmptyBody, 0, false},
		{"an empty body that may be", "/s/k/200:size=0", nil, 0, 0, false},
		{"a 204 has no body to require", "/s/k/204", func(r *fetch.Request) { r.Content.RequireBody = true }, 0, 0, false},
		{"HEAD too", "/s/k/200:size=10", func(r *fetch.Request) { r.Method, r.Content.RequireBody = "HEAD", true }, 0, 0, false},
		{"bytes that are not UTF-8", "/s/k/200:charset-bytes=badutf8,type=text%2Fhtml;charset=utf-8", func(r *fetch.Request) { r.Content.RequireCharset = true }, classify.Undecodable, -1, false},
		{"without require_charset", "/s/k/200:charset-bytes=badutf8,type=text%2Fhtml;charset=utf-8", nil, 0, -1, false},
		{"a 204 with an expected size", "/s/k/204", func(r *fetch.Request) { r.Integrity.Size = 5 }, classify.Integrity, -1, false},
		{"a 204 without an expected size", "/s/k/204", func(r *fetch.Request) { r.Integrity = fetch.Integrity{Size: 0, SHA256: sum(nil)} }, 0, 0, false},
		{"the expected size", "/s/k/200:size=10", func(r *fetch.Request) { r.Integrity.Size = 10 }, 0, 10, false},
		{"another size", "/s/k/200:size=10", func(r *fetch.Request) { r.Integrity.Size = 11 }, classify.Integrity, -1, false},
		{"another digest", "/s/k/200:size=10", func(r *fetch.Request) { r.Integrity.SHA256 = sum([]byte("x")) }, classify.Integrity, -1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := w.request("http", row.path)
			if row.change != nil {
				row.change(r)
			}
			res := w.fetch(r)
			class := classOf(res.Failure)
			if class != row.class || res.Attempts != 1 {
				t.Fatalf("class %s (%+v) after %d attempts, want %s after 1", class, res.Failure, res.Attempts, row.class)
			}
			if class == 0 && row.size >= 0 && (res.Body.Size != row.size || res.Body.Truncated != row.truncated) {
				t.Errorf("%d bytes, truncated %t, want %d, %t", res.Body.Size, res.Body.Truncated, row.size, row.truncated)
			}
			if class != 0 && len(res.body)+len(res.InlineBody) > 0 {
				t.Errorf("%d bytes delivered of a body that failed within the hold-back", len(res.body)+len(res.InlineBody))
			}
		})
	}
}

// TestAcceptEncoding checks which codings are requested, and whether they are undone (B6).
func TestAcceptEncoding(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		profile classify.Profile
		change  func(*fetch.Request)
		asked   string
		decoded bool
	}{
		{"STANDARD", classify.Standard, nil, "gzip, br, zstd", true},
		{"DOWNLOAD requests no coding, but decodes a coded body", classify.Download, nil, "identity", true},
		{"keep_encoding", classify.Standard, func(r *fetch.Request) { r.KeepEncoding = true }, "identity", false},
		{"the caller's own", classify.Standard, func(r *fetch.Request) { r.Header = http.Header{"Accept-Encoding": {"gzip"}} }, "gzip", false},
		{"a part", classify.Standard, func(r *fetch.Request) { r.Header = http.Header{"Range": {"bytes=0-"}} }, "identity", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			r := fetch.NewRequest(row.profile)
			r.URL = w.request("http", "/s/k/200:size=5000,coding=gzip").URL
			if row.change != nil {
				row.change(r)
			}
			res := w.fetch(r)
			if got := w.origin.Requests("k")[0].Header.Get("Accept-Encoding"); got != row.asked {
				t.Errorf("asked for %q, want %q", got, row.asked)
			}
			if decoded := bytes.Equal(res.body, w.origin.Body(5000)); decoded != row.decoded {
				t.Errorf("decoded %t, want %t", decoded, row.decoded)
			}
		})
	}
}

// TestAuto checks which bodies are delivered in the outcome, and which in chunks (B4).
func TestAuto(t *testing.T) {
	t.Parallel()
	const tag = ",etag=%22v1%22,range"
	holdBack := func(n int64) func(*fetch.Request) {
		return func(r *fetch.Request) { r.HoldBackBytes = n }
	}
	restart := func(r *fetch.Request) { r.HoldBackBytes, r.Recovery = 1000, fetch.Restart }
	resume := func(offset int64) func(*fetch.Request) {
		return func(r *fetch.Request) { r.ResumePoint = fetch.ResumePoint{Offset: offset, Validator: `"v1"`} }
	}
	for _, row := range []struct {
		name, script string
		change       func(*fetch.Request)
		inline       int     // size of the body in the outcome
		begins       []int64 // offsets in ResponseStarted; none: nothing is streamed
		size         int     // end of the streamed body
		attempts     int
		class        classify.Class
	}{
		{"a small body", "200:size=100", nil, 100, nil, 0, 1, 0},
		{"an empty body", "200:size=0", nil, 0, nil, 0, 1, 0},
		{"an empty body and no hold-back", "200:size=0", holdBack(0), 0, nil, 0, 1, 0},
		{"a 204", "204", nil, 0, nil, 0, 1, 0},
		{"HEAD", "200:size=100", func(r *fetch.Request) { r.Method = "HEAD" }, 0, nil, 0, 1, 0},
		{"a POST", "200:size=100", func(r *fetch.Request) { r.Method, r.Body = "POST", []byte("x") }, 100, nil, 0, 1, 0},
		{"several chunks", "200:size=100000", nil, 100_000, nil, 0, 1, 0},
		{"exactly one chunk", "200:size=31744", nil, 31_744, nil, 0, 1, 0},
		{"of unknown length", "200:size=100000,chunked", nil, 100_000, nil, 0, 1, 0},
		{"decoded", "200:size=100000,coding=gzip", nil, 100_000, nil, 0, 1, 0},
		{"as long as the hold-back", "200:size=1000", holdBack(1000), 1000, nil, 0, 1, 0},
		{"one byte longer", "200:size=1001", holdBack(1000), 0, []int64{0}, 1001, 1, 0},
		{"one byte longer, of unknown length", "200:size=1001,chunked", holdBack(1000), 0, []int64{0}, 1001, 1, 0},
		{"no hold-back", "200:size=1", holdBack(0), 0, []int64{0}, 1, 1, 0},
		{"1 MiB", "200:size=1048576", holdBack(2 << 20), 1 << 20, nil, 0, 1, 0},
		{"more than 1 MiB within the hold-back", "200:size=1048577", holdBack(2 << 20), 0, []int64{0}, 1<<20 + 1, 1, 0},
		{"truncated", "200:size=1000", func(r *fetch.Request) { r.MaxBodyBytes, r.Truncate = 300, true }, 300, nil, 0, 1, 0},
		{"too long", "200:size=1000", func(r *fetch.Request) { r.MaxBodyBytes = 300 }, 0, nil, 0, 1, classify.BodyTooLarge},
		{"the expected digest", "200:size=1000", func(r *fetch.Request) { r.Integrity.Size = 1000 }, 1000, nil, 0, 1, 0},
		{"another size", "200:size=1000", func(r *fetch.Request) { r.Integrity.Size = 999 }, 0, nil, 0, 1, classify.Integrity},
		{"a failed status", "404:size=1000", nil, 0, nil, 0, 1, classify.HTTPClientError},
		{"no memory for a copy", "200:size=1000", func(r *fetch.Request) { r.InlineCopies = 1 << 20 }, 0, []int64{0}, 1000, 1, 0},

		{"a break before the end", "200:size=1000,cut=500/200:size=1000", nil, 1000, nil, 0, 2, 0},
		{"a break after the hold-back, resumed", "200:size=2000,cut=1500" + tag + "/200:size=2000" + tag, holdBack(1000), 0, []int64{0, 1500}, 2000, 2, 0},
		{"restarted with another body", "200:size=2000,cut=1500" + tag + "/200:size=100,etag=%22v2%22", restart, 0, []int64{0, 0}, 100, 2, 0},
		{"restarted with an empty body", "200:size=2000,cut=1500" + tag + "/200:size=0,etag=%22v2%22", restart, 0, []int64{0, 0}, 0, 2, 0},
		{"a break that cannot be resumed", "200:size=2000,cut=1500/200:size=2000", holdBack(1000), 0, []int64{0}, 1500, 1, classify.BodyInterrupted},
		{"a resume point", "200:size=1000" + tag, resume(600), 0, []int64{600}, 1000, 1, 0},
		{"a resume point at the end", "200:size=1000" + tag, resume(1000), 0, nil, 1000, 1, 0},
		{"a resume point, restarted", "200:size=900,etag=%22v2%22,range", func(r *fetch.Request) { resume(600)(r); r.Recovery = fetch.Restart }, 0, []int64{0}, 900, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w, b := newWire(t), budget.New(64<<20)
			r := w.request("http", "/s/k/"+row.script)
			r.Delivery, r.Events, r.Memory = fetch.Auto, fetch.OutcomeOnly, b.Lease("caller")
			if row.change != nil {
				row.change(r)
			}
			var got assembled
			got.body = slices.Clone(w.origin.Body(r.ResumePoint.Offset)) // what the caller has
			out := w.client.Fetch(t.Context(), r, got.sink)
			class := classOf(out.Failure)
			if class != row.class || out.Attempts != row.attempts {
				t.Errorf("class %s after %d attempts, want %s after %d", class, out.Attempts, row.class, row.attempts)
			}
			if !bytes.Equal(out.InlineBody, w.origin.Body(int64(row.inline))) {
				t.Errorf("%d bytes in the outcome, want %d", len(out.InlineBody), row.inline)
			}
			if !slices.Equal(got.begins, row.begins) {
				t.Errorf("responses at %d, want %d", got.begins, row.begins)
			}
			if n := len(got.begins); n > 0 && out.Kind == classify.Success { // an empty body may have replaced the one before
				got.body = got.body[:max(got.begins[n-1], int64(row.size))]
			}
			if !bytes.Equal(got.body, w.origin.Body(int64(row.size))) {
				t.Errorf("%d bytes in chunks, want %d", len(got.body), row.size)
			}
			if used := b.Usage(); used[budget.Body] != 2*int64(row.inline)+int64(len(out.ErrorBody)) || used[budget.HoldBack] != 0 {
				t.Errorf("%v are charged; want the body of the outcome and its copy, and no hold-back", used)
			}
			r.Memory.Close()
			if used := b.Usage().Total(); used != 0 {
				t.Errorf("%d bytes are charged after the fetch", used)
			}
		})
	}
}

// TestAutoWithLittleMemory checks that a body that exceeds what was granted of the hold-back is
// streamed.
func TestAutoWithLittleMemory(t *testing.T) {
	t.Parallel()
	w, b := newWire(t), budget.New(1<<20) // grants 48 KiB of it
	for size, inline := range map[int64]bool{40_000: true, 60_000: false} {
		r := w.request("http", fmt.Sprintf("/s/k%d/200:size=%d", size, size))
		r.Delivery, r.Memory = fetch.Auto, b.Lease("caller")
		res := w.fetch(r)
		want := w.origin.Body(size)
		if !bytes.Equal(res.InlineBody, want) == inline || !bytes.Equal(res.body, want) != inline {
			t.Errorf("%d bytes: %d in the outcome, %d in chunks", size, len(res.InlineBody), len(res.body))
		}
		r.Memory.Close()
	}
}

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
					want = "integrity partial_content not_retried"
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

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
