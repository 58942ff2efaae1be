package fetch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
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
				for _, params := range []string{"", ",chunked", ",no-length", ",coding=gzip", ",coding=br", ",coding=zstd",
					",coding=deflate", ",coding=rawdeflate", ",coding=gzip,chunked"} {
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

// TestExpectedDigest checks that a body with the expected digest succeeds.
func TestExpectedDigest(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.request("http", "/s/k/200:size=5000,coding=gzip")
	r.Integrity = fetch.Integrity{SHA256: sum(w.origin.Body(5000)), Size: 5000}
	r.OmitDigest = true
	if res := w.fetch(r); res.Kind != classify.Success || res.Body.SHA256 != "" {
		t.Errorf("%s: %+v, digest %q", res.Kind, res.Failure, res.Body.SHA256)
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

// TestLastResponseIsKept checks that the last response and the start of its body are kept however
// the fetch ends (I5), and that the final URL is that of the response (D5).
func TestLastResponseIsKept(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r := w.request("http", "/s/k/503:body=first/404:size=100000")
	r.ErrorBodyBytes = 1000
	res := w.fetch(r)
	if res.Response.StatusCode != 404 || res.ResponseAttempt != 2 || !bytes.Equal(res.ErrorBody, w.origin.Body(100000)[:1000]) {
		t.Errorf("status %d of attempt %d with %d bytes", res.Response.StatusCode, res.ResponseAttempt, len(res.ErrorBody))
	}
	if len(res.body) > 0 {
		t.Errorf("%d bytes of a failed response came as chunks", len(res.body))
	}
	broken := w.run(t.Context(), w.request("http", "/s/k2/302:to=%2Fs%2Fk3%2F503:body=first/reset:at=before-head"))
	if broken.Failure.Class != classify.ConnectionReset || broken.Response.StatusCode != 503 ||
		broken.ResponseAttempt != 1 || string(broken.ErrorBody) != "first" || !strings.HasSuffix(broken.FinalURL, "/s/k3/503:body=first") {
		t.Errorf("%+v, response %+v of attempt %d, %q", broken.Failure, broken.Response, broken.ResponseAttempt, broken.ErrorBody)
	}
}
