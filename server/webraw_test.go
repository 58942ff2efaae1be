package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// noWait is a Fetchd-Request whose retries do not wait.
const noWait = `{"retry_policy":{"base_delay":"0s"}}`

// rawCall calls /v1/raw for a path of the origin. change may alter the call.
func (r *rig) rawCall(ctx context.Context, method, path string, change ...func(*http.Request)) *http.Response {
	r.Helper()
	return r.post(ctx, "/v1/raw?url="+url.QueryEscape(r.Origin.URL("http", path)), "", append([]func(*http.Request){func(req *http.Request) {
		req.Method = method
		req.Header.Del("Content-Type")
		req.Header.Set("Fetchd-Request", noWait)
		req.Header.Set("Accept-Encoding", "identity") // the client decodes no body
	}}, change...)...)
}

// sets returns a change that sets a header of a call.
func sets(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// wantFields checks headers or trailers. An empty value means that there must be none.
func wantFields(t *testing.T, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if have := strings.Join(got.Values(name), "|"); have != value {
			t.Errorf("%s %q, want %q", name, have, value)
		}
	}
}

// TestRaw checks the status, the headers, the trailers and the body of each kind of outcome.
func TestRaw(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sum := func(n int64) string {
		digest := sha256.Sum256(r.Origin.Body(n))
		return hex.EncodeToString(digest[:])
	}
	const small, large = 1000, 700_000
	for _, row := range []struct {
		name, method, path, request string
		status                      int
		body                        []byte // nil: not compared
		header, trailer             map[string]string
	}{
		{"a small body", "GET", "/s/small/503/200:size=1000,type=text%2Fhtml", noWait, 200, r.Origin.Body(small),
			map[string]string{"Content-Type": "text/html", "Content-Length": "1000", "Fetchd-Outcome": "success", "Fetchd-Attempt-Count": "2", "Fetchd-Decision-Rule": "H0", "Fetchd-Status-Code": "200",
				"Fetchd-Final-Url": r.Origin.URL("http", "/s/small/503/200:size=1000,type=text%2Fhtml"), "Fetchd-Sha256": sum(small), "Content-Encoding": "", "Content-Disposition": `attachment; filename="body.bin"`}, nil},
		{"a large body", "GET", "/s/large/503/200:size=700000", noWait, 200, r.Origin.Body(large),
			map[string]string{"Content-Length": "", "Fetchd-Outcome": "", "Fetchd-Attempt-Count": "", "Fetchd-Status-Code": "200", "Fetchd-Final-Url": r.Origin.URL("http", "/s/large/503/200:size=700000")},
			map[string]string{"Fetchd-Outcome": "success", "Fetchd-Attempt-Count": "2", "Fetchd-Decision-Rule": "H0", "Fetchd-Sha256": sum(large)}},
		{"a small body, streamed", "GET", "/s/streamed/200:size=1000", `{"body_policy":{"stream":{}}}`, 200, r.Origin.Body(small),
			map[string]string{"Content-Length": "", "Fetchd-Outcome": ""}, map[string]string{"Fetchd-Outcome": "success", "Fetchd-Attempt-Count": "1", "Fetchd-Sha256": sum(small)}},
		{"a large body without a digest", "GET", "/s/plain/200:size=700000", `{"body_policy":{"omit_digest":true}}`, 200, r.Origin.Body(large), map[string]string{"Trailer": ""}, map[string]string{"Fetchd-Outcome": "success", "Fetchd-Sha256": ""}},
		{"a body that is resumed", "GET", `/s/resumed/200:size=700000,range,etag="a",cut=600000/200:size=700000,range,etag="a"`, noWait, 200, r.Origin.Body(large),
			map[string]string{"Fetchd-Status-Code": "200"}, map[string]string{"Fetchd-Outcome": "success", "Fetchd-Attempt-Count": "2", "Fetchd-Sha256": sum(large)}},
		{"an unasked part", "GET", "/s/part/206:size=5,header=Content-Range=bytes%200-4%2F5000", noWait, 206, r.Origin.Body(5),
			map[string]string{"Content-Range": "bytes 0-4/5000", "Content-Length": "5", "Fetchd-Outcome": "success", "Fetchd-Status-Code": "206", "Fetchd-Decision-Rule": "H0"}, nil},
		{"an unasked part, streamed", "GET", "/s/partlarge/206:size=700000,header=Content-Range=bytes%200-699999%2F%2A", noWait, 206, r.Origin.Body(large),
			map[string]string{"Content-Range": "bytes 0-699999/*", "Fetchd-Status-Code": "206"}, map[string]string{"Fetchd-Outcome": "success"}},
		{"a part that was asked for", "GET", "/s/asked/200:size=1000,range", `{"headers":[{"name":"Range","value":"bytes=0-9"}]}`, 206, r.Origin.Body(10), map[string]string{"Content-Range": "bytes 0-9/1000", "Fetchd-Status-Code": "206"}, nil},
		{"from a resume point", "GET", `/s/point/200:size=1000,range,etag="a"`, `{"body_policy":{"auto":{"resume_point":{"offset_bytes":"990","validator":"\"a\""}}}}`, 206, r.Origin.Body(large)[990:1000],
			map[string]string{"Content-Range": "bytes 990-999/1000", "Fetchd-Status-Code": "206"}, map[string]string{"Fetchd-Outcome": "success"}},
		{"a part without Content-Range", "GET", "/s/vague/206:size=5", noWait, 206, r.Origin.Body(5), map[string]string{"Content-Range": "", "Fetchd-Status-Code": "206"}, nil},
		{"a part with two Content-Range", "GET", "/s/twice/206:size=5,header=Content-Range=bytes%200-4%2F5,header2=Content-Range=bytes%200-4%2F5", noWait, 206, r.Origin.Body(5), map[string]string{"Content-Range": ""}, nil},
		{"a part that is shorter than it says", "GET", "/s/lies/206:size=5,no-length,header=Content-Range=bytes%200-9%2F10", noWait, 206, r.Origin.Body(5), map[string]string{"Content-Range": "", "Fetchd-Status-Code": "206"}, nil},
		{"a part that was coded", "GET", "/s/codedpart/206:size=5,coding=gzip,header=Content-Range=bytes%200-24%2F50", noWait, 206, r.Origin.Body(5), map[string]string{"Content-Range": "", "Content-Encoding": ""}, nil},
		{"a 206 with everything", "GET", "/s/all/206:size=5,header=Content-Range=bytes%200-4%2F5", noWait, 200, r.Origin.Body(5), map[string]string{"Content-Range": "", "Fetchd-Status-Code": "206"}, nil},
		{"a 200 with Content-Range", "GET", "/s/stray/200:size=5,header=Content-Range=bytes%200-4%2F5000", noWait, 200, r.Origin.Body(5), map[string]string{"Content-Range": "", "Fetchd-Status-Code": "200"}, nil},
		{"HEAD of a part", "HEAD", "/s/headpart/206:size=5,header=Content-Range=bytes%200-4%2F5000", noWait, 200, []byte{}, map[string]string{"Content-Range": "", "Fetchd-Status-Code": "206"}, nil},
		{"no body", "GET", "/s/empty/204:type=none", noWait, 200, []byte{}, map[string]string{"Content-Type": "application/octet-stream", "Content-Length": "0", "Fetchd-Status-Code": "204", "Fetchd-Outcome": "success"}, nil},
		{"a body that was coded", "GET", "/s/coded/200:size=1000,coding=gzip", noWait, 200, r.Origin.Body(small), map[string]string{"Content-Encoding": "", "Content-Length": "1000"}, nil},
		{"a body that is coded", "GET", "/s/kept/200:size=1000,coding=gzip", `{"body_policy":{"keep_encoding":true},"headers":[{"name":"Accept-Encoding","value":"gzip"}]}`, 200, nil, map[string]string{"Content-Encoding": "gzip"}, nil},
		{"a body that is coded, streamed", "GET", "/s/keptlarge/200:size=700000,coding=gzip", `{"headers":[{"name":"Accept-Encoding","value":"gzip"}]}`, 200, nil, map[string]string{"Content-Encoding": "gzip", "Content-Length": ""},
			map[string]string{"Fetchd-Outcome": "success"}},
		{"a type that is too long", "GET", "/s/long/200:size=10,type=text%2F" + strings.Repeat("a", 300), noWait, 200, r.Origin.Body(10), map[string]string{"Content-Type": "application/octet-stream"}, nil},
		{"a type that is too long, streamed", "GET", "/s/longer/200:size=700000,type=text%2F" + strings.Repeat("a", 300), noWait, 200, r.Origin.Body(large), map[string]string{"Content-Type": "application/octet-stream"}, map[string]string{"Fetchd-Outcome": "success"}},
		{"a type that is not ASCII", "GET", "/s/odd/200:size=10,type=text%2F%C3%A9", noWait, 200, r.Origin.Body(10), map[string]string{"Content-Type": "application/octet-stream"}, nil},
		{"no type", "GET", "/s/none/200:body=<script>,type=none", noWait, 200, []byte("<script>"), map[string]string{"Content-Type": "application/octet-stream"}, nil},
		{"a type that could run", "GET", "/s/html/200:body=<script>,type=text%2Fhtml,header=Refresh=0,set-cookie=a=b,header=Content-Security-Policy=x,header=Location=x", noWait, 200, []byte("<script>"),
			map[string]string{"Content-Type": "text/html", "Refresh": "", "Set-Cookie": "", "Location": ""}, nil},
		{"HEAD", "HEAD", "/s/head/200:size=1000", noWait, 200, []byte{}, map[string]string{"Content-Length": "1000", "Fetchd-Outcome": "success", "Fetchd-Status-Code": "200"}, nil},
		{"HEAD of a coded body", "HEAD", "/s/headcoded/200:size=1000,coding=gzip", noWait, 200, []byte{}, map[string]string{"Content-Length": "", "Content-Encoding": ""}, nil},
		{"HEAD of a failure", "HEAD", "/s/head404/404", noWait, 424, []byte{}, map[string]string{"Fetchd-Outcome": "failed", "Fetchd-Status-Code": "404"}, nil},
		{"a redirect that is followed", "GET", "/s/moved/302:to=%2Fs%2Ftarget%2F200:body=x", noWait, 200, []byte("x"), map[string]string{"Fetchd-Final-Url": r.Origin.URL("http", "/s/target/200:body=x"), "Fetchd-Location-Url": ""}, nil},
		{"a redirect that is not followed", "GET", "/s/stay/302:to=%2Fs%2Ftarget%2F200", `{"redirect_policy":{"follow":false}}`, 204, []byte{},
			map[string]string{"Fetchd-Outcome": "redirect", "Fetchd-Status-Code": "302", "Fetchd-Decision-Rule": "H9", "Fetchd-Location-Url": r.Origin.URL("http", "/s/target/200"), "Location": ""}, nil},
		{"a final URL that is too long for a header", "GET", "/s/far/302:to=%2Fs%2Fshort%2F200%3F" + strings.Repeat("a", 4100), noWait, 200, nil, map[string]string{"Fetchd-Final-Url": "", "Fetchd-Outcome": "success"}, nil},
		{"not modified", "GET", `/s/same/200:etag="a",cond`, `{"precondition":{"etags":["\"a\""]}}`, 204, []byte{}, map[string]string{"Fetchd-Outcome": "not_modified", "Fetchd-Status-Code": "304", "Fetchd-Decision-Rule": "H7"}, nil},
		{"attempts", "GET", "/s/tried/503/reset/200", `{"event_level":"EVENT_LEVEL_ATTEMPTS","retry_policy":{"base_delay":"0.010s"}}`, 200, nil, map[string]string{"Fetchd-Attempt-Count": "3",
			"Fetchd-Attempts": "503;class=http_server_error;rule=W1;delay=0.020, 0;class=connection_reset;rule=W1;delay=0.040, 200;rule=H0"}, nil},
		{"attempts, streamed", "GET", "/s/triedlarge/503/200:size=700000", `{"event_level":"EVENT_LEVEL_ATTEMPTS","retry_policy":{"base_delay":"0.010s"}}`, 200, r.Origin.Body(large), map[string]string{"Fetchd-Attempts": ""},
			map[string]string{"Fetchd-Attempts": "503;class=http_server_error;rule=W1;delay=0.020, 200;rule=H0"}},
		{"attempts of a failure", "GET", "/s/triedfailed/404", `{"event_level":"EVENT_LEVEL_ATTEMPTS"}`, 424, nil, map[string]string{"Fetchd-Attempts": "404;class=http_client_error;rule=H6"}, nil},
		{"attempts that are not asked for", "GET", "/s/untold/200", noWait, 200, nil, map[string]string{"Fetchd-Attempts": ""}, nil},
		{"a failure", "GET", "/s/failed/404", noWait, 424, nil, map[string]string{"Fetchd-Outcome": "failed", "Fetchd-Status-Code": "404", "Fetchd-Decision-Rule": "H6", "Retry-After": "", "Content-Type": "application/problem+json"}, nil},
		{"a failure without a response", "GET", "/s/reset/reset", noWait, 502, nil, map[string]string{"Fetchd-Outcome": "failed", "Fetchd-Status-Code": "", "Fetchd-Attempt-Count": "3"}, nil},
		{"a status of our own", "GET", "/s/teapot/401:header=WWW-Authenticate=Basic", noWait, 424, nil, map[string]string{"Fetchd-Status-Code": "401", "Www-Authenticate": ""}, nil},
		{"a failure to repeat later", "GET", "/s/later/503:retry-after=1000", noWait, 502, nil, map[string]string{"Fetchd-Decision-Rule": "W3", "Retry-After": "1000"}, nil},
		{"a body that breaks before a byte is sent", "GET", "/s/early/200:size=1000,cut=500", noWait, 502, nil, map[string]string{"Fetchd-Attempt-Count": "3", "Fetchd-Status-Code": "200"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			resp := r.rawCall(t.Context(), row.method, row.path, sets("Fetchd-Request", row.request))
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != row.status || row.body != nil && !bytes.Equal(body, row.body) {
				t.Errorf("%s, %d bytes %.200q (%v), want %d and %d bytes", resp.Status, len(body), body, err, row.status, len(row.body))
			}
			wantProtected(t, row.name, resp)
			wantFields(t, resp.Header, row.header)
			wantFields(t, resp.Trailer, row.trailer)
			if row.trailer == nil && len(resp.Trailer) > 0 {
				t.Errorf("trailers %v, want none", resp.Trailer)
			}
			for name, values := range resp.Trailer {
				if values == nil || values[0] == "" {
					t.Errorf("the trailer %s is declared, but it has no value", name)
				}
			}
			if id := resp.Header.Get("Fetchd-Id"); len(id) != 26 {
				t.Errorf("Fetchd-Id %q, want 26 characters", id)
			}
		})
	}
}

// TestRawPOST checks that a POST that was not sent may be sent again, as its status says.
func TestRawPOST(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	refused := url.QueryEscape(r.Origin.URL("refused", "/"))
	for _, row := range []struct {
		name, path string
		status     int
	}{
		{"not sent", "", 502},
		{"redirected", "/s/k/307:to=" + refused, 424},
		{"a reset", "/s/k2/reset", 424},
	} {
		resp := r.rawCall(t.Context(), "POST", row.path, func(req *http.Request) {
			if row.path == "" {
				req.URL.RawQuery = "url=" + refused
			}
		})
		if resp.StatusCode != row.status {
			t.Errorf("%s: status %d, want %d", row.name, resp.StatusCode, row.status)
		}
	}
}

// TestRawProblem checks the problem details of a failure.
func TestRawProblem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	resp := r.rawCall(t.Context(), "GET", "/s/k/503:retry-after-date=1000,date=none,body=later")
	var got struct {
		Type, Title, Detail string
		Status              int
		Outcome             json.RawMessage
	}
	must(t, json.NewDecoder(resp.Body).Decode(&got))
	out := new(pb.FetchOutcome)
	must(t, protojson.Unmarshal(got.Outcome, out))
	if got.Type != "urn:fetchd:error:http_server_error" || got.Title != "http server error" || got.Status != 502 || got.Detail != out.GetError().GetMessage()+": "+out.GetError().GetDetail() || !strings.Contains(got.Detail, "503 Service Unavailable") {
		t.Errorf("%+v", got)
	}
	if string(out.GetErrorBody()) != "later" || !out.GetError().GetRetryable() || out.GetResponse().GetStatusCode() != 503 {
		t.Errorf("outcome %v", out)
	}
	wait := out.GetError().GetRetryAfter().AsDuration() // a date without Date leaves a part of a second
	if want := fmt.Sprint(math.Ceil(wait.Seconds())); resp.Header.Get("Retry-After") != want || wait < 990*time.Second {
		t.Errorf("Retry-After %q for %s, want %s", resp.Header.Get("Retry-After"), wait, want)
	}
}

// TestRawPost checks what the origin receives of a POST.
func TestRawPost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, row := range []struct {
		name, request, contentType, body string
		method, wantType                 string
	}{
		{"a form", noWait, "application/x-www-form-urlencoded", "a=b", "POST", "application/x-www-form-urlencoded"},
		{"a type of the request", `{"headers":[{"name":"content-type","value":"text/csv"}]}`, "text/plain", "a,b", "POST", "text/csv"},
		{"another method", `{"method":"PUT"}`, "application/json", `{}`, "PUT", "application/json"},
		{"no body", `{"method":"DELETE"}`, "text/plain", "", "DELETE", ""},
		{"GET by POST", `{"method":"GET"}`, "", "", "GET", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			resp := r.rawCall(t.Context(), "POST", "/s/"+row.method+"/200:echo", sets("Fetchd-Request", row.request), func(req *http.Request) {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(row.body)), int64(len(row.body))
				req.Header.Set("Expect", "100-continue")
				req.Header.Set("Content-Encoding", "x-coding")
				if row.contentType != "" {
					req.Header.Set("Content-Type", row.contentType)
				}
			})
			text, err := io.ReadAll(resp.Body)
			var got map[string]any
			if err != nil || resp.StatusCode != 200 || json.Unmarshal(text, &got) != nil {
				t.Fatalf("%s %q (%v)", resp.Status, text, err)
			}
			shown, digest := fmt.Sprint(got), sha256.Sum256([]byte(row.body))
			if got["method"] != row.method || got["body_sha256"] != hex.EncodeToString(digest[:]) || row.wantType != "" && !strings.Contains(shown, row.wantType) || row.wantType == "" && strings.Contains(shown, "text/plain") ||
				strings.Contains(shown, "x-coding") != (row.body != "") {
				t.Errorf("the origin received %s, want %s with type %q", shown, row.method, row.wantType)
			}
		})
	}
}

// TestRawRefuses sends calls that start no fetch.
func TestRawRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	target := "?url=" + url.QueryEscape(r.Origin.URL("http", "/s/k/200"))
	request := func(text string) func(*http.Request) { return sets("Fetchd-Request", text) }
	body := func(n int) func(*http.Request) {
		return func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("a", n))), int64(n)
		}
	}
	for _, row := range []struct {
		name, method, query string
		change              []func(*http.Request)
		status              int
		code                codes.Code
		text                string
	}{
		{"neither header", "GET", target, []func(*http.Request){func(r *http.Request) { r.Header.Del("Fetchd-Request") }}, 403, codes.PermissionDenied, "Fetchd-Request: {}"},
		{"a HEAD without the header", "HEAD", target, []func(*http.Request){func(r *http.Request) { r.Header.Del("Fetchd-Request") }}, 403, codes.PermissionDenied, ""},
		{"a password of the browser", "GET", target, []func(*http.Request){func(r *http.Request) { r.Header.Del("Fetchd-Request"); r.SetBasicAuth("a", "b") }}, 403, codes.PermissionDenied, "Bearer"},
		{"a simple POST", "POST", target, []func(*http.Request){func(r *http.Request) { r.Header.Del("Fetchd-Request") }, sets("Content-Type", "text/plain"), body(3)}, 403, codes.PermissionDenied, "Fetchd-Request: {}"},
		{"a form", "POST", target, []func(*http.Request){func(r *http.Request) { r.Header.Del("Fetchd-Request") }, sets("Content-Type", "application/x-www-form-urlencoded"), body(3)}, 403, codes.PermissionDenied, "Fetchd-Request: {}"},
		{"a page of another origin", "GET", target, []func(*http.Request){sets("Origin", "https://evil.example")}, 403, codes.PermissionDenied, "another origin"},
		{"a page of another origin that hides", "GET", target, []func(*http.Request){sets("Origin", "null")}, 403, codes.PermissionDenied, "another origin"},
		{"a page of another origin, a new browser", "HEAD", target, []func(*http.Request){sets("Sec-Fetch-Site", "cross-site")}, 403, codes.PermissionDenied, ""},
		{"a page of another port", "GET", target, []func(*http.Request){sets("Sec-Fetch-Site", "same-site")}, 403, codes.PermissionDenied, "another origin"},
		{"a name that leads here", "GET", target, []func(*http.Request){func(r *http.Request) { r.Host = "evil.example" }}, 403, codes.PermissionDenied, "localhost"},
		{"no URL", "GET", "", nil, 400, codes.InvalidArgument, "url is given 0 times"},
		{"an empty URL", "GET", "?url=", nil, 400, codes.InvalidArgument, "url is missing"},
		{"a URL that is not encoded", "GET", "?url=http://a.example/?a=1&b=2", nil, 400, codes.InvalidArgument, `parameter "b": percent-encode the URL, as in: curl -G --data-urlencode`},
		{"two URLs", "GET", target + "&url=http://b.example/", nil, 400, codes.InvalidArgument, "url is given 2 times"},
		{"a bad escape", "GET", "?url=%zz", nil, 400, codes.InvalidArgument, "cannot be decoded"},
		{"a URL in the header", "GET", target, []func(*http.Request){request(`{"url":"http://b.example/"}`)}, 400, codes.InvalidArgument, "url is set in Fetchd-Request"},
		{"no JSON", "GET", target, []func(*http.Request){request(`a=b`)}, 400, codes.InvalidArgument, "the header Fetchd-Request is not a FetchRequest in JSON"},
		{"an unknown field", "GET", target, []func(*http.Request){request(`{"retry_polcy":{}}`)}, 400, codes.InvalidArgument, `did you mean "retry_policy"?`},
		{"two headers", "GET", target, []func(*http.Request){func(r *http.Request) { r.Header.Add("Fetchd-Request", "{}") }}, 400, codes.InvalidArgument, "given 2 times"},
		{"an invalid policy", "GET", target, []func(*http.Request){request(`{"retry_policy":{"max_attempts":99}}`)}, 400, codes.InvalidArgument, "retry_policy.max_attempts is 99"},
		{"another method of a GET", "GET", target, []func(*http.Request){request(`{"method":"POST"}`)}, 400, codes.InvalidArgument, "call with POST"},
		{"a range of the call", "GET", target, []func(*http.Request){sets("Range", "bytes=0-9")}, 400, codes.InvalidArgument, "lacks Range, and the Range of the call does not reach the origin: put it into Fetchd-Request"},
		{"a body in the header", "POST", target, []func(*http.Request){request(`{"body":"aGVsbG8="}`)}, 400, codes.InvalidArgument, "send it as the body of a POST"},
		{"a GET with a body", "GET", target, []func(*http.Request){body(3)}, 400, codes.InvalidArgument, "is sent with GET"},
		{"a body that is too long", "POST", target, []func(*http.Request){body(1<<20 + 1)}, 413, codes.InvalidArgument, "1048576"},
		{"a body that is too long, without a length", "POST", target, []func(*http.Request){body(1<<20 + 1), func(r *http.Request) { r.ContentLength = -1 }}, 413, codes.InvalidArgument, "1048576"},
		{"events", "GET", target, []func(*http.Request){request(`{"event_level":"EVENT_LEVEL_ALL"}`)}, 400, codes.InvalidArgument, "event_level"},
		{"another delivery", "GET", target, []func(*http.Request){request(`{"body_policy":{"digest":{}}}`)}, 400, codes.InvalidArgument, "body_policy.digest"},
		{"inline", "GET", target, []func(*http.Request){request(`{"body_policy":{"inline":{}}}`)}, 400, codes.InvalidArgument, "body_policy.inline"},
		{"a body that may start again", "GET", target, []func(*http.Request){request(`{"body_policy":{"stream":{"recovery":"BODY_RECOVERY_RESTART"}}}`)}, 400, codes.InvalidArgument, "body_policy.stream.recovery"},
		{"a body that may be a part", "GET", target, []func(*http.Request){request(`{"body_policy":{"oversize_action":"OVERSIZE_ACTION_TRUNCATE"}}`)}, 400, codes.InvalidArgument, "body_policy.oversize_action"},
		{"a HEAD by POST", "POST", target, []func(*http.Request){request(`{"method":"HEAD"}`)}, 400, codes.InvalidArgument, "call with HEAD"},
		{"another method", "PUT", target, nil, 405, codes.Unimplemented, "use POST with the header Fetchd-Request"},
		{"a preflight", "OPTIONS", target, []func(*http.Request){sets("Access-Control-Request-Headers", "fetchd-request"), sets("Access-Control-Request-Method", "GET")}, 405, codes.Unimplemented, "GET, HEAD, POST"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			resp := r.post(t.Context(), "/v1/raw"+row.query, "", append([]func(*http.Request){func(req *http.Request) {
				req.Method = row.method
				req.Header.Del("Content-Type")
				req.Header.Set("Fetchd-Request", "{}")
			}}, row.change...)...)
			wantProtected(t, row.name, resp)
			wantFields(t, resp.Header, map[string]string{"Access-Control-Allow-Origin": "", "Access-Control-Allow-Headers": ""})
			if row.method == http.MethodHead {
				if resp.StatusCode != row.status {
					t.Errorf("%s, want %d", resp.Status, row.status)
				}
				return
			}
			r.wantStatus(resp, row.status, row.code, row.text)
		})
	}
	if n := len(r.Origin.AllRequests()); n != 0 {
		t.Errorf("the origin saw %d requests, want none", n)
	}
}

// TestRawCallers checks who may call: with a token alone, and with a client certificate and the
// header.
func TestRawCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	only := func(authorization string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Del("Fetchd-Request"); r.Header.Set("Authorization", authorization) }
	}
	for _, row := range []struct {
		name   string
		change func(*http.Request)
		status int
	}{
		{"a token", only("Bearer right"), 200},
		{"a token and the header", sets("Authorization", "Bearer right"), 200},
		{"another token", only("Bearer wrong"), 401},
		{"the header alone", sets("Fetchd-Request", "{}"), 401},
	} {
		if resp := r.rawCall(t.Context(), "GET", "/s/k/200", row.change); resp.StatusCode != row.status {
			t.Errorf("%s: %s, want %d", row.name, resp.Status, row.status)
		}
	}
	certificate, roots := selfSigned(t)
	authorities := x509.NewCertPool()
	authorities.AddCert(certificate.Leaf)
	mutual := newRig(t, func(c *server.Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert}
	})
	mutual.HTTPClient.Transport = checked{t, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}}}
	t.Cleanup(mutual.HTTPClient.CloseIdleConnections)
	if resp := mutual.rawCall(t.Context(), "GET", "/s/k/200"); resp.StatusCode != 200 {
		t.Errorf("a client certificate and the header: %s, want 200", resp.Status)
	}
	resp := mutual.rawCall(t.Context(), "GET", "/s/k/200", func(r *http.Request) { r.Header.Del("Fetchd-Request") })
	mutual.wantStatus(resp, 403, codes.PermissionDenied, "Fetchd-Request")
}

// TestRawBreaks checks that a client notices a body that breaks, over HTTP/1.1 and HTTP/2, and that
// it then gets no trailers.
func TestRawBreaks(t *testing.T) {
	t.Parallel()
	certificate, roots := selfSigned(t)
	for _, row := range []struct {
		name  string
		major int
		rig   *rig
	}{
		{"HTTP/1.1", 1, newRig(t)},
		{"HTTP/2", 2, newRig(t, func(c *server.Config) {
			c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
		})},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := row.rig
			if row.major == 2 {
				r.HTTPClient.Transport = checked{t, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
				t.Cleanup(r.HTTPClient.CloseIdleConnections)
			}
			resp := r.rawCall(t.Context(), "GET", "/s/cut/200:size=900000,cut=800000")
			body, err := io.ReadAll(resp.Body)
			if err == nil || resp.StatusCode != 200 || resp.ProtoMajor != row.major || !bytes.HasPrefix(r.Origin.Body(900_000), body) {
				t.Errorf("%s %s, %d bytes, %v; want 200, a part of the body and an error", resp.Proto, resp.Status, len(body), err)
			}
			if got := resp.Trailer.Get("Fetchd-Outcome"); got != "" {
				t.Errorf("trailer Fetchd-Outcome %q, want none", got)
			}
			line := r.logs.await(t, "fetch finished", 1)[0]
			if line["outcome"] != "failed" || line["error_class"] != "body_interrupted" {
				t.Errorf("log %v", line)
			}
			if next := r.rawCall(t.Context(), "GET", "/s/next/200:size=700000"); next.StatusCode != 200 {
				t.Errorf("the next call: %s", next.Status)
			} else if body, err := io.ReadAll(next.Body); err != nil || len(body) != 700_000 || next.Trailer.Get("Fetchd-Outcome") != "success" {
				t.Errorf("the next call: %d bytes, %v, trailers %v", len(body), err, next.Trailer)
			}
		})
	}
}

// TestRawOverHTTP10 checks that HTTP/1.0, which has neither chunks nor trailers, gets a whole body, and that the
// connection is reset if a body breaks.
func TestRawOverHTTP10(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address, page := strings.TrimPrefix(r.URL, "http://"), r.Origin.URL("http", "/s/k/")
	for _, row := range []struct {
		name, script string
		length       int64 // announced
		size         int   // received; -1: a part
	}{
		{"a short body", "200:size=1000", 1000, 1000},
		{"a long body", "200:size=900000", -1, 900_000},
		{"a failure", "404", 0, 0},
		{"a body that breaks", "200:size=900000,cut=800000", -1, -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", address)
			must(t, err)
			defer func() { _ = conn.Close() }()
			_, _ = fmt.Fprintf(conn, "GET /v1/raw?url=%s HTTP/1.0\r\nHost: localhost\r\nFetchd-Request: {}\r\n\r\n", url.QueryEscape(page+row.script))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			switch {
			case row.script == "404":
				if err != nil || resp.StatusCode != 424 || !bytes.Contains(body, []byte(`"outcome"`)) {
					t.Errorf("%s, %d bytes, %v; want the problem", resp.Status, len(body), err)
				}
			case row.size < 0:
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%d bytes, %v; want a reset", len(body), err)
				}
			case err != nil || resp.ContentLength != row.length || len(body) != row.size:
				t.Errorf("length %d, %d bytes, %v; want %d and %d", resp.ContentLength, len(body), err, row.length, row.size)
			}
			wantFields(t, resp.Header, map[string]string{"Trailer": "", "Transfer-Encoding": ""})
		})
	}
}

// TestRawStall checks that a caller that stops reading ends after the stall limit, and that one that
// leaves ends at once.
func TestRawStall(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		began := time.Now()
		patience := sets("Fetchd-Request", `{"timeout_policy":{"total_timeout":"900s","attempt_timeout":"0s","idle_timeout":"600s"}}`)
		resp := r.rawCall(r.Context(), "GET", "/s/stalled/200:size=8000000", patience)
		seen := r.awaitRequest("stalled")
		<-seen.Done
		wantTook(r, "the exchange with the origin ended", began, 30*time.Second)
		if n, err := io.Copy(io.Discard, resp.Body); err == nil {
			r.Errorf("read %d bytes and no error", n)
		}
		line := r.logs.await(r.T, "finished call", 1)[0]
		if line["grpc.code"] != "Aborted" || line["http.path"] != "/v1/raw" {
			r.Errorf("log %v, want Aborted", line)
		}
		slow := r.rawCall(r.Context(), "GET", "/s/slow/200:size=700000,drip=350000@20s", patience)
		if n, err := io.Copy(io.Discard, slow.Body); err != nil || n != 700_000 {
			r.Errorf("a slow origin: %d bytes, %v", n, err)
		}
		ctx, cancel := context.WithCancel(r.Context())
		left := r.rawCall(ctx, "GET", "/s/left/200:size=8000000", patience)
		cancel()
		_ = left.Body.Close()
		<-r.awaitRequest("left").Done
	})
}

// TestRawLogs checks that the line of a call has neither the URL nor the request.
func TestRawLogs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, query := range []string{"?url=http://a.example/&" + marker + "=1", "?url=http://" + marker + "@a.example/", "?url=" + marker} {
		resp := r.post(t.Context(), "/v1/raw"+query, "", func(req *http.Request) { req.Method = "GET" }, sets("Fetchd-Request", "{}"))
		r.wantStatus(resp, 400, codes.InvalidArgument, "url")
	}
	resp := r.rawCall(t.Context(), "GET", "/s/k/200", sets("Fetchd-Request", `{"headers":{"a":"`+marker+`"},"event_level":"`+marker+`"}`))
	r.wantStatus(resp, 400, codes.InvalidArgument, "headers")
	lines := r.logs.await(t, "finished call", 4)
	if text := fmt.Sprint(r.logs.all(t)); strings.Contains(text, marker) || lines[0]["http.path"] != "/v1/raw" {
		t.Errorf("the log holds what the call held: %s", text)
	}
}
