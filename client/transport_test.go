package client_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/client"
	"fetchd/conformance/origin"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/test/wait"
)

// web returns an http.Client that goes through the service and retries at once.
func (r *rig) web(change ...func(*pb.FetchRequest)) *http.Client {
	in := &pb.FetchRequest{RetryPolicy: &pb.RetryPolicy{BaseDelay: durationpb.New(0)}}
	for _, f := range change {
		if f != nil {
			f(in)
		}
	}
	return &http.Client{Transport: &client.Transport{Client: r.client, Request: in}}
}

// call makes a request whose body reports whether it was closed.
func (r *rig) call(web *http.Client, method, target, body string, header http.Header) (*http.Response, error) {
	r.Helper()
	var sent io.Reader
	closed := new(trackedBody)
	if body != "" {
		closed.Reader = strings.NewReader(body)
		sent = closed
	}
	req, err := http.NewRequestWithContext(r.Context(), method, target, sent)
	must(r, err)
	for name, values := range header {
		req.Header[name] = values
	}
	before := req.Header.Clone()
	resp, err := web.Do(req)
	if err == nil {
		r.Cleanup(func() { _ = resp.Body.Close() })
	}
	if body != "" && !closed.closed.Load() {
		r.Errorf("%s %s: the request body was not closed", method, target)
	}
	if fmt.Sprint(req.Header) != fmt.Sprint(before) || req.URL.String() != target || req.Body != sent && sent != nil {
		r.Errorf("%s %s: the request was changed: %v", method, target, req)
	}
	return resp, err
}

type trackedBody struct {
	io.Reader
	closed atomic.Bool
}

func (b *trackedBody) Close() error {
	b.closed.Store(true)
	return nil
}

func TestTransport(t *testing.T) {
	r := newRig(t)
	seeded := func(n int64) string { return string(r.origin.Body(n)) }
	follow := func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{Follow: new(false)} }
	keep := func(in *pb.FetchRequest) { in.BodyPolicy = &pb.BodyPolicy{KeepEncoding: true} }
	tests := []struct {
		name, method, path string
		body               string
		change             func(*pb.FetchRequest)
		header             http.Header

		status       int
		want         string
		length       int64
		uncompressed bool
		coding       string // Content-Encoding of the response
		finalAt      string // path of the final URL; empty: as path
		requests     int    // at the origin; 0: 1
	}{
		{name: "a page", path: "/s/t1/200:body=hello", status: 200, want: "hello", length: 5},
		{name: "of unknown length", path: "/s/t2/200:body=hello,chunked", status: 200, want: "hello", length: -1},
		{name: "larger than a chunk", path: "/s/t3/200:size=3000000", status: 200, want: seeded(3_000_000), length: 3_000_000},
		{name: "larger than the default of the service", path: "/s/t24/200:size=17000000", status: 200, want: seeded(17_000_000), length: 17_000_000},
		{name: "a retry that the service makes", path: "/s/t4/503/200:body=hello", status: 200, want: "hello", length: 5, requests: 2},
		{name: "404 is a response", path: "/s/t5/404:body=gone", status: 404, want: "gone", length: 4},
		{name: "503 after all attempts is a response", path: "/s/t6/503:body=down", status: 503, want: "down", length: 4, requests: 3},
		{name: "a POST is not retried", method: "POST", path: "/s/t7/503:body=down/200", body: "data", status: 503, want: "down", length: 4},
		{name: "a POST with a key is retried where the template allows it", method: "POST", path: "/s/t8/503/201:body=made", body: "data", status: 201, want: "made", length: 4, requests: 2,
			change: func(in *pb.FetchRequest) { in.RetryPolicy.AllowNonIdempotent = true }, header: http.Header{"Idempotency-Key": {"k1"}}},
		{name: "without a key that does not matter", method: "POST", path: "/s/t9/503:body=down/201", body: "data", status: 503, want: "down", length: 4,
			change: func(in *pb.FetchRequest) { in.RetryPolicy.AllowNonIdempotent = true }},
		{name: "the start of a long error page", path: "/s/t10/404:size=70000", status: 404, want: seeded(64 << 10), length: -1},
		{name: "a shorter start of it", path: "/s/t23/404:size=70000", status: 404, want: seeded(10), length: -1, change: func(in *pb.FetchRequest) {
			in.BodyPolicy = &pb.BodyPolicy{MaxErrorBodyBytes: new(int32(10))}
		}},
		{name: "an error page that is compressed", path: "/s/t11/404:size=1000,coding=gzip", status: 404, want: seeded(1000), length: -1, uncompressed: true},
		{name: "a page that is compressed", path: "/s/t12/200:size=1000,coding=br", status: 200, want: seeded(1000), length: -1, uncompressed: true},
		{name: "a coding that the caller asked for", path: "/s/t13/200:body=coded,header=Content-Encoding=x-own", status: 200, want: "coded", length: 5, coding: "x-own",
			header: http.Header{"Accept-Encoding": {"x-own"}}},
		{name: "a coding that is kept", path: "/s/t14/200:body=coded,header=Content-Encoding=gzip", status: 200, want: "coded", length: 5, coding: "gzip", change: keep},
		{name: "the text of a page", path: "/s/t25/200:type=text%2Fhtml;charset=iso-8859-1,body=%3Cp%3Ehello", status: 200, want: "hello\n", length: 6, uncompressed: true, change: func(in *pb.FetchRequest) {
			in.TextPolicy = new(pb.TextPolicy)
		}},
		{name: "HEAD", method: "HEAD", path: "/s/t15/200:size=1000", status: 200, length: 1000},
		{name: "HEAD of what is missing", method: "HEAD", path: "/s/t16/404:size=1000", status: 404, length: 1000},
		{name: "no content", path: "/s/t17/204", status: 204, length: 0},
		{name: "not modified", path: "/s/t18/200:etag=%22a%22,cond", header: http.Header{"If-None-Match": {`"a"`}}, status: 304, length: 0},
		{name: "redirects that the service follows", path: "/r/t19/302/2/200:body=there", status: 200, want: "there", length: 5, finalAt: "/s/t19/200:body=there", requests: 3},
		{name: "redirects that http.Client follows", path: "/r/t20/302/2/200:body=there", change: follow, status: 200, want: "there", length: 5, finalAt: "/s/t20/200:body=there", requests: 3},
		{name: "headers that are not sent on", path: "/s/t21/200:body=hello", status: 200, want: "hello", length: 5, header: http.Header{
			"Connection": {"keep-alive"}, "Keep-Alive": {"timeout=5"}, "Expect": {"100-continue"}, "Content-Length": {"7"}, "Host": {"other.example"}, "Transfer-Encoding": {"chunked"}}},
		{name: "a part", path: "/s/t22/200:size=100,range", header: http.Header{"Range": {"bytes=10-19"}}, status: 206, want: seeded(20)[10:], length: 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			requests, finalAt := cmp.Or(tt.requests, 1), cmp.Or(tt.finalAt, tt.path)
			target := r.origin.URL("http", tt.path)
			resp, err := r.call(r.web(tt.change), tt.method, target, tt.body, tt.header)
			must(t, err)
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != tt.want {
				t.Errorf("body of %d bytes, %v; want %d bytes", len(got), err, len(tt.want))
			}
			if resp.StatusCode != tt.status || !strings.HasPrefix(resp.Status, fmt.Sprint(tt.status, " ")) || resp.Proto != "HTTP/1.1" || resp.ProtoMajor != 1 || resp.ProtoMinor != 1 {
				t.Errorf("%q over %s %d.%d, want %d over HTTP/1.1", resp.Status, resp.Proto, resp.ProtoMajor, resp.ProtoMinor, tt.status)
			}
			if resp.ContentLength != tt.length || resp.Uncompressed != tt.uncompressed || resp.Header.Get("Content-Encoding") != tt.coding {
				t.Errorf("length %d, uncompressed %v, coding %q; want %d, %v, %q", resp.ContentLength, resp.Uncompressed, resp.Header.Get("Content-Encoding"), tt.length, tt.uncompressed, tt.coding)
			}
			if final := resp.Request.URL.String(); final != r.origin.URL("http", finalAt) {
				t.Errorf("final URL %s, want %s", final, finalAt)
			}
			key := strings.Split(tt.path, "/")[2]
			if seen := len(r.origin.Requests(key)); seen != requests {
				t.Errorf("the origin saw %d requests, want %d", seen, requests)
			}
			if fetch := client.FromHTTP(resp); fetch == nil || fetch.Outcome() == nil || fetch.AttemptCount < 1 {
				t.Errorf("FromHTTP(resp) = %+v, want attempts and the outcome", fetch)
			}
		})
	}
	if client.FromHTTP(new(http.Response)) != nil {
		t.Error("FromHTTP of another response is not nil")
	}
}

// TestTransportSends: the origin receives the method, the headers and the body of the request, and
// the headers of the template that the request does not have.
func TestTransportSends(t *testing.T) {
	r := newRig(t)
	web := r.web(func(in *pb.FetchRequest) {
		in.Headers = []*pb.Header{{Name: "X-Own", Value: "template"}, {Name: "user-agent", Value: "crawler/1"}}
	})
	target, err := url.Parse(r.origin.URL("http", "/s/sent/200"))
	must(t, err)
	target.User = url.UserPassword("jane", "secret")
	if _, err := r.call(web, "PUT", target.String(), "some data", http.Header{
		"X-Own": {"1", "caf\xe9"}, "Idempotency-Key": {"key-1"}, "Content-Type": {"text/plain"}}); err != nil {
		t.Fatal(err)
	}
	seen := r.origin.Requests("sent")
	if len(seen) != 1 || seen[0].Method != "PUT" || seen[0].BodyBytes != 9 {
		t.Fatalf("the origin saw %+v, want one PUT with 9 bytes", seen)
	}
	for name, want := range map[string]string{"X-Own": "[1 caf\xe9]", "User-Agent": "[crawler/1]", "Idempotency-Key": "[key-1]",
		"Content-Type": "[text/plain]", "Authorization": "[Basic amFuZTpzZWNyZXQ=]"} {
		if got := fmt.Sprint(seen[0].Header.Values(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestTransportRefuses(t *testing.T) {
	r := newRig(t)
	invalid := func(err error) bool { return status.Code(err) == codes.InvalidArgument }
	says := func(part string) func(error) bool {
		return func(err error) bool { return strings.Contains(fmt.Sprint(err), part) }
	}
	class := func(want pb.ErrorClass) func(error) bool {
		return func(err error) bool {
			failed, ok := errors.AsType[*client.Error](err)
			return ok && failed.Class() == want
		}
	}
	change := func(f func(*pb.FetchRequest)) *http.Client { return r.web(f) }
	large := strings.Repeat("x", 1<<20+1)
	tests := []struct {
		name, method, path, body string
		web                      *http.Client
		header                   http.Header
		host                     string
		want                     func(error) bool
		requests                 int
	}{
		{name: "a body over the limit", method: "POST", body: large, want: func(err error) bool {
			limit, ok := errors.AsType[*http.MaxBytesError](err)
			return ok && limit.Limit == 1<<20 && says("exceeds 1048576 bytes")(err)
		}},
		{name: "a GET with a body", method: "GET", body: "data", want: invalid},
		{name: "an upgrade", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, want: func(err error) bool { return invalid(err) && says("Connection")(err) }},
		{name: "a header of proxies", header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}, want: invalid},
		{name: "two keys", header: http.Header{"Idempotency-Key": {"a", "b"}}, want: says("2 values of Idempotency-Key")},
		{name: "another host", host: "other.example", want: says(`Host "other.example"`)},
		{name: "a template with a url", web: change(func(in *pb.FetchRequest) { in.Url = "http://other.example/" }), want: says("leave them out")},
		{name: "a template with a delivery", web: change(policy(&pb.BodyPolicy{Delivery: &pb.BodyPolicy_None{}})), want: says("delivery")},
		{name: "a template that takes bytes back", web: change(holdBack(pb.BodyRecovery_BODY_RECOVERY_RESTART)), want: says("RESTART")},
		{name: "a reset", path: "/reset", want: class(pb.ErrorClass_ERROR_CLASS_CONNECTION_RESET), requests: 3},
		{name: "a reset after a 503", path: "/503/reset", want: class(pb.ErrorClass_ERROR_CLASS_CONNECTION_RESET), requests: 3},
		{name: "too many redirects", path: "/302:to=.", web: change(func(in *pb.FetchRequest) {
			in.RedirectPolicy = &pb.RedirectPolicy{MaxRedirects: new(int32(0))}
		}), want: class(pb.ErrorClass_ERROR_CLASS_TOO_MANY_REDIRECTS), requests: 1},
		{name: "a body over the limit of the template", path: "/200:size=100", web: change(func(in *pb.FetchRequest) {
			in.BodyPolicy = &pb.BodyPolicy{MaxSizeBytes: new(int64(10))}
		}), want: class(pb.ErrorClass_ERROR_CLASS_BODY_TOO_LARGE), requests: 1},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			if tt.web == nil {
				tt.web = r.web()
			}
			if tt.path == "" {
				tt.path = "/200"
			}
			key := fmt.Sprint("refused", i)
			body := &trackedBody{Reader: strings.NewReader(tt.body)}
			req, err := http.NewRequestWithContext(t.Context(), tt.method, r.origin.URL("http", "/s/"+key+tt.path), nil)
			must(t, err)
			req.Header = tt.header
			if tt.body != "" {
				req.Body = body
			}
			if tt.host != "" {
				req.Host = tt.host
			}
			resp, err := tt.web.Do(req)
			if resp != nil {
				_ = resp.Body.Close()
			}
			if err == nil || !tt.want(err) {
				t.Errorf("error %v", err)
			}
			if tt.body != "" && !body.closed.Load() {
				t.Error("the request body was not closed")
			}
			if seen := len(r.origin.Requests(key)); seen != tt.requests {
				t.Errorf("the origin saw %d requests, want %d", seen, tt.requests)
			}
		})
	}
}

// TestTransportTimeout: the deadline of the caller is that of the fetch, also while a request body
// cannot be read, and while the response body does not come.
func TestTransportTimeout(t *testing.T) {
	r := newRig(t)
	never, neverDone := io.Pipe()
	defer neverDone.Close()
	cancelled, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("no longer wanted")
	tests := []struct {
		name    string
		ctx     context.Context
		timeout time.Duration
		method  string
		body    io.ReadCloser
		path    string
		inBody  bool
		matches error
		timed   bool
	}{
		{name: "no response", timeout: time.Second, path: "/s/late1/silent", matches: context.DeadlineExceeded, timed: true},
		{name: "no end of the body", timeout: time.Second, path: "/s/late2/200:size=1000,stall=500", inBody: true, matches: context.DeadlineExceeded, timed: true},
		{name: "no request body", timeout: 50 * time.Millisecond, method: "POST", body: never, path: "/s/late3/200", matches: context.DeadlineExceeded, timed: true},
		{name: "cancelled", ctx: cancelled, path: "/s/late4/silent", matches: why},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := r.in(t)
			if tt.ctx == nil {
				tt.ctx = t.Context()
			} else {
				go func() {
					_ = wait.Until(t.Context(), time.Millisecond, func() bool { return len(r.origin.Requests("late4")) > 0 })
					cancel(why)
				}()
			}
			web := r.web(holdBack(pb.BodyRecovery_BODY_RECOVERY_NONE))
			web.Timeout = tt.timeout
			req, err := http.NewRequestWithContext(tt.ctx, tt.method, r.origin.URL("http", tt.path), nil)
			must(t, err)
			if tt.body != nil {
				req.Body = tt.body
			}
			resp, err := web.Do(req)
			if tt.inBody {
				must(t, err)
				defer resp.Body.Close()
				_, err = io.Copy(io.Discard, resp.Body)
			}
			if !errors.Is(err, tt.matches) {
				t.Errorf("error %v, want %v", err, tt.matches)
			}
			if limit, ok := errors.AsType[interface {
				error
				Timeout() bool
			}](err); !ok || limit.Timeout() != tt.timed {
				t.Errorf("Timeout of %v is not %v", err, tt.timed)
			}
		})
	}
}

// TestTransportCookies: a Jar sees every redirect if http.Client follows them. If the service
// follows them, the cookies of another host are not taken for those of the first.
func TestTransportCookies(t *testing.T) {
	r := newRig(t)
	for _, followed := range []bool{true, false} {
		t.Run(fmt.Sprintf("the service follows %v", followed), func(t *testing.T) {
			r := r.in(t)
			web := r.web(func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{Follow: &followed} })
			jar, err := cookiejar.New(nil)
			must(t, err)
			web.Jar = jar
			key := fmt.Sprint("jar", followed)
			elsewhere := strings.Replace(r.origin.URL("http", "/s/"+key+"b/200:set-cookie=b=2%3BPath=%2F"), "127.0.0.1", "localhost", 1)
			first := r.origin.URL("http", "/s/"+key+"a/302:set-cookie=a=1%3BPath=%2F,to="+url.QueryEscape(elsewhere))
			resp, err := web.Get(first)
			must(t, err)
			_ = resp.Body.Close()
			if resp.Request.URL.Hostname() != "localhost" {
				t.Fatalf("final URL %v, want one on localhost", resp.Request.URL)
			}
			want := "[a=1]"
			if followed {
				want = "[]"
			}
			if got := fmt.Sprint(jar.Cookies(&url.URL{Scheme: "http", Host: "127.0.0.1"})); got != want {
				t.Errorf("cookies for the first host: %s, want %s", got, want)
			}
		})
	}
}

func TestTransportCheckRedirect(t *testing.T) {
	r := newRig(t)
	for _, followed := range []bool{true, false} {
		web := r.web(func(in *pb.FetchRequest) { in.RedirectPolicy = &pb.RedirectPolicy{Follow: &followed} })
		asked := 0
		web.CheckRedirect = func(*http.Request, []*http.Request) error {
			asked++
			return http.ErrUseLastResponse
		}
		resp, err := web.Get(r.origin.URL("http", fmt.Sprintf("/s/check%v/302:to=%%2Fs%%2Fend%%2F200,body=moved", followed)))
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		got := fmt.Sprintf("%d %s %v, asked %d times", resp.StatusCode, body, err, asked)
		want := "302 moved <nil>, asked 1 times"
		if followed {
			want = "200 200 OK\n <nil>, asked 0 times"
		}
		if got != want {
			t.Errorf("the service follows %v: %s, want %s", followed, got, want)
		}
	}
}

// TestTransportBody: a body that breaks returns the failure, and Close cancels the fetch.
func TestTransportBody(t *testing.T) {
	r := newRig(t)
	web := r.web(holdBack(pb.BodyRecovery_BODY_RECOVERY_NONE))
	resp, err := web.Get(r.origin.URL("http", "/s/broken/200:size=1000,cut=300"))
	must(t, err)
	got, err := io.ReadAll(resp.Body)
	failed, ok := errors.AsType[*client.Error](err)
	if !ok || failed.Class() != pb.ErrorClass_ERROR_CLASS_BODY_INTERRUPTED || !bytes.Equal(got, r.origin.Body(300)) {
		t.Errorf("%d bytes and %v, want 300 bytes and BODY_INTERRUPTED", len(got), err)
	}
	_ = resp.Body.Close()

	resp, err = web.Get(r.origin.URL("http", "/s/left/200:size=1000,stall=300"))
	must(t, err)
	_ = resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Error("a read after Close succeeds")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := wait.Until(ctx, time.Millisecond, func() bool {
		return slices.ContainsFunc(r.origin.Requests("left"), func(q origin.Request) bool { return q.End != "" })
	}); err != nil {
		t.Error("the origin did not notice that the fetch was cancelled")
	}
}

// TestTransportTemplate: a round trip does not change the template, and works without one.
func TestTransportTemplate(t *testing.T) {
	r := newRig(t)
	template := &pb.FetchRequest{Headers: []*pb.Header{{Name: "X-Own", Value: "1"}}}
	before := proto.Clone(template)
	for i, in := range []*pb.FetchRequest{template, nil} {
		web := &http.Client{Transport: &client.Transport{Client: r.client, Request: in}}
		if _, err := r.call(web, "", r.origin.URL("http", fmt.Sprintf("/s/template%d/200", i)), "", http.Header{"X-Own": {"2"}}); err != nil {
			t.Error(err)
		}
	}
	if !proto.Equal(before, template) {
		t.Errorf("the template is now %v", template)
	}
}
