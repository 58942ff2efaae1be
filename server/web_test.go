package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/server"
)

// post sends a request; change may alter it. The answer's body ends with the test.
func (r *rig) post(ctx context.Context, path, body string, change ...func(*http.Request)) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+path, strings.NewReader(body))
	must(r, err)
	req.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(req)
	}
	resp, err := r.HTTPClient.Do(req)
	must(r, err)
	r.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (r *rig) json(in proto.Message) string {
	r.Helper()
	text, err := protojson.Marshal(in)
	must(r, err)
	return string(text)
}

// lines reads an answer to its end.
func (r *rig) lines(resp *http.Response) *answer {
	r.Helper()
	a := &answer{began: time.Now()}
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) || len(line) > 0 {
				a.err = fmt.Errorf("%w after %q", err, line)
			}
			return a
		}
		m := new(pb.FetchResponse)
		if err := protojson.Unmarshal(line, m); err != nil {
			r.Fatalf("line %.200q: %v", line, err)
		}
		a.takeAll(r.T, m)
	}
}

// fetchWeb is fetch over the HTTP API.
func (r *rig) fetchWeb(ctx context.Context, in *pb.FetchRequest) *answer {
	r.Helper()
	a := r.lines(r.post(ctx, "/v1/fetch", r.json(in)))
	a.check(r.T, in)
	return a
}

// wantStatus reads a google.rpc.Status.
func (r *rig) wantStatus(resp *http.Response, httpStatus int, code codes.Code, text string) *spb.Status {
	r.Helper()
	raw, err := io.ReadAll(resp.Body)
	must(r, err)
	st := new(spb.Status)
	if err := protojson.Unmarshal(raw, st); err != nil {
		r.Fatalf("%s: %.200q: %v", resp.Status, raw, err)
	}
	if resp.StatusCode != httpStatus || st.GetCode() != int32(code) || !strings.Contains(st.GetMessage(), text) {
		r.Errorf("%d, code %d, %q; want %d, %d, with %q", resp.StatusCode, st.GetCode(), st.GetMessage(), httpStatus, code, text)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		r.Errorf("Content-Type %q", got)
	}
	return st
}

// TestWebFetchStreams reads the end of the first attempt while the second one waits.
func TestWebFetchStreams(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		in := r.request("/s/k/503/200")
		in.RetryPolicy.BaseDelay, in.RetryPolicy.MaxDelay = seconds(20), seconds(20)
		began := time.Now()
		resp := r.post(r.Context(), "/v1/fetch", r.json(in))
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), "attempt_finished") {
		}
		wantTook(r, "the end of the first attempt was sent", began, 0)
		heartbeats := 0
		for lines.Scan() {
			if strings.Contains(lines.Text(), "heartbeat") {
				heartbeats++
			}
		}
		if took := time.Since(began); took != 20*time.Second || heartbeats == 0 {
			r.Errorf("ended after %s with %d heartbeats, want 20 s and some", took, heartbeats)
		}
	})
}

// TestWebRefuses sends requests that start no fetch.
func TestWebRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	good := r.json(r.request("/s/k/200"))
	for _, row := range []struct {
		name, path, body string
		change           func(*http.Request)
		status           int
		code             codes.Code
		text             string
	}{
		{"no token", "/v1/fetch", good, header("Authorization", ""), 401, codes.Unauthenticated, "Bearer TOKEN"},
		{"another scheme", "/v1/fetch", good, header("Authorization", "Basic right"), 401, codes.Unauthenticated, "Bearer TOKEN"},
		{"two tokens", "/v1/fetch", good, func(r *http.Request) { r.Header.Add("Authorization", "Bearer right") }, 401, codes.Unauthenticated, ""},
		{"no JSON", "/v1/fetch", "url=a", nil, 400, codes.InvalidArgument, "not a FetchRequest in JSON"},
		{"nothing", "/v1/fetch", "", nil, 400, codes.InvalidArgument, "not a FetchRequest in JSON"},
		{"an unknown field", "/v1/fetch", `{"uri":"http://a.example/"}`, nil, 400, codes.InvalidArgument, `did you mean "url"?`},
		{"headers as an object", "/v1/fetch:unary", `{"url":"http://a.example/","headers":{"Accept":"a"}}`, nil, 400, codes.InvalidArgument, `[{"name": "Accept", "value": "text/html"}]`},
		{"no URL", "/v1/fetch:unary", `{}`, nil, 400, codes.InvalidArgument, "url"},
		{"a delivery that unary has not", "/v1/fetch:unary", `{"url":"http://a.example/","bodyPolicy":{"stream":{}}}`, nil, 400, codes.InvalidArgument, "body_policy.stream"},
		{"a form", "/v1/fetch", good, header("Content-Type", "text/plain"), 400, codes.InvalidArgument, "application/json"},
		{"too long", "/v1/fetch", `{"url":"` + repeat(3<<20) + `"}`, nil, 413, codes.InvalidArgument, "3145728"},
		{"too long, without a length", "/v1/fetch:unary", `{"url":"` + repeat(3<<20) + `"}`, func(r *http.Request) { r.ContentLength = -1 }, 413, codes.InvalidArgument, "3145728"},
		{"a body that is too long", "/v1/fetch", r.json(r.put("k", 1<<20+1)), nil, 413, codes.InvalidArgument, "body has 1048577 bytes"},
		{"a body of 2 MiB", "/v1/fetch:unary", r.json(r.put("k", 2<<20)), nil, 413, codes.InvalidArgument, "body has 2097152 bytes"},
		{"a URL that is too long", "/v1/fetch", `{"url":"` + repeat(1<<20) + `"}`, nil, 400, codes.InvalidArgument, "url"},
		{"too many fields", "/v1/fetch", `{"headers":[` + strings.Repeat("{},", 40_000) + `{}]}`, nil, 400, codes.InvalidArgument, "32768"},
		{"a page of another origin", "/v1/fetch", good, header("Sec-Fetch-Site", "cross-site"), 403, codes.PermissionDenied, "another origin"},
		{"a page of another origin, an old browser", "/v1/fetch", good, header("Origin", "https://evil.example"), 403, codes.PermissionDenied, "another origin"},
		{"a name that leads here", "/v1/fetch", good, func(r *http.Request) { r.Host = "evil.example" }, 403, codes.PermissionDenied, "let your proxy send the Host localhost"},
		{"too many hops", "/v1/fetch", good, header("Fetchd-Hops", "3"), 400, codes.FailedPrecondition, "itself"},
		{"another path", "/v1/nothing", good, nil, 404, codes.NotFound, "/v1/fetch"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			resp := r.post(t.Context(), row.path, row.body, func(r *http.Request) {
				r.Header.Set("Authorization", "Bearer right")
				if row.change != nil {
					row.change(r)
				}
			})
			r.wantStatus(resp, row.status, row.code, row.text)
		})
	}
	if n := len(r.Origin.AllRequests()); n != 0 {
		t.Errorf("the origin saw %d requests, want none", n)
	}
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1:5", "[::1]:5", "[::1]"} {
		resp := r.post(t.Context(), "/v1/fetch:unary", good, header("Authorization", "bearer right"), func(r *http.Request) { r.Host = host })
		if resp.StatusCode != 200 {
			t.Errorf("host %s: %s, want 200", host, resp.Status)
		}
	}
	resp := r.post(t.Context(), "/v1/fetch:unary", `{"url":"http://a b/","method":"get"}`, header("Authorization", "Bearer right"))
	if st := r.wantStatus(resp, 400, codes.InvalidArgument, "method"); len(st.GetDetails()) != 1 {
		t.Errorf("status %v, want a BadRequest in it", st)
	}
}

// TestWebOperators requests health, readiness and the descriptor, before and during a shutdown.
func TestWebOperators(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		get := func(path string) (int, string) {
			resp, err := r.HTTPClient.Get(r.URL + path)
			must(r, err)
			defer func() { _ = resp.Body.Close() }()
			raw, err := io.ReadAll(resp.Body)
			must(r, err)
			return resp.StatusCode, string(raw)
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, text := get(path); code != 200 || text != "ok\n" {
				r.Errorf("%s: %d %q, want 200 ok", path, code, text)
			}
		}
		_, image := get("/v1/descriptor")
		set := new(descriptorpb.FileDescriptorSet)
		if err := proto.Unmarshal([]byte(image), set); err != nil || !slices.ContainsFunc(set.GetFile(), func(d *descriptorpb.FileDescriptorProto) bool { return d.GetPackage() == "fetchd.v1" }) {
			r.Errorf("/v1/descriptor is no image of the contract: %v", err)
		}
		c := r.begin(r.request("/s/runs/200:delay=5s"))
		down := r.startShutDown()
		synctest.Wait()
		if code, _ := get("/readyz"); code != 503 {
			r.Errorf("/readyz of a draining server: %d, want 503", code)
		}
		if code, _ := get("/healthz"); code != 200 {
			r.Errorf("/healthz of a draining server: %d, want 200: it lives", code)
		}
		r.wantStatus(r.post(r.Context(), "/v1/fetch", r.json(r.request("/s/new/200"))), 503, codes.Unavailable, "another replica")
		if a := <-c.ended; a.err != nil {
			r.Errorf("the running fetch: %v", a.err)
		}
		down()
	})
}

// TestWebConsole checks that the console is served only under the service's hosts, and only if it
// is configured.
func TestWebConsole(t *testing.T) {
	t.Parallel()
	shown := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, "page "+r.URL.Path) })
	on := newRig(t, func(c *server.Config) { c.Console, c.Hosts = shown, []string{"fetchd.example"} })
	off := newRig(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(on.URL, "http://"), ":")
	for _, row := range []struct {
		name         string
		rig          *rig
		method, path string
		host         string
		code         int
		body         string
	}{
		{"the page", on, "GET", "/console/", "", 200, "page /console/"},
		{"a file", on, "GET", "/console/app.js", "localhost:" + port, 200, "page /console/app.js"},
		{"the root", on, "GET", "/", "[::1]:" + port, 200, "page /"},
		{"by a name of the service", on, "GET", "/console/", "fetchd.example", 200, "page /console/"},
		{"by a name that leads here", on, "GET", "/console/", "evil.example:" + port, 403, "--console-host"},
		{"the root by such a name", on, "GET", "/", "evil.example", 403, "evil.example"},
		{"a name that only ends alike", on, "GET", "/console/", "a.fetchd.example", 403, "--console-host"},
		{"another method", on, "POST", "/console/", "", 405, "use GET, HEAD"},
		{"another path", on, "GET", "/other", "", 404, "POST /v1/fetch"},
		{"off", off, "GET", "/console/", "", 404, "POST /v1/fetch"},
		{"off, the root", off, "GET", "/", "", 404, "POST /v1/fetch"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), row.method, row.rig.URL+row.path, nil)
		must(t, err)
		req.Host = row.host
		resp, err := row.rig.HTTPClient.Do(req)
		must(t, err)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read
		if err != nil || resp.StatusCode != row.code || !strings.Contains(string(text), row.body) {
			t.Errorf("%s: %d %q (%v), want %d with %q", row.name, resp.StatusCode, text, err, row.code, row.body)
		}
	}
	call := on.post(t.Context(), "/v1/fetch", on.json(on.request("/s/k/200")), func(r *http.Request) {
		r.Host = "fetchd.example"
		r.Header.Set("Origin", "http://fetchd.example")
	})
	if a := on.lines(call); a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		t.Errorf("a call by a name of the service: %s, %v", call.Status, a.outcome)
	}
}

// TestWebMethods sends methods that a path does or does not allow, and checks the headers that keep
// an answer from running in a browser.
func TestWebMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const notFound = "POST /v1/fetch, POST /v1/fetch:unary, POST /v1/explain, GET|POST /v1/raw, GET /v1/descriptor"
	for _, row := range []struct {
		method, path string
		status       int
		allow, text  string
	}{
		{"GET", "/v1/fetch", 405, "POST", `"/v1/fetch" does not allow the method "GET": use POST`},
		{"HEAD", "/v1/fetch", 405, "POST", ""},
		{"OPTIONS", "/v1/fetch", 405, "POST", "use POST"},
		{"PUT", "/v1/fetch:unary", 405, "POST", "use POST"},
		{"PUT", "/v1/raw", 405, "GET, HEAD, POST", `use POST with the header Fetchd-Request: {"method":"PUT"}`},
		{"POST", "/v1/descriptor", 405, "GET, HEAD", "use GET, HEAD"},
		{"GET", "/v1/descriptor", 200, "", "fetchd.v1"},
		{"HEAD", "/v1/descriptor", 200, "", ""},
		{"POST", "/healthz", 405, "GET, HEAD", "use GET"},
		{"HEAD", "/healthz", 200, "", ""},
		{"GET", "/healthz", 200, "", "ok"},
		{"HEAD", "/readyz", 200, "", ""},
		{"GET", "/v1/nothing", 404, "", notFound},
		{"POST", "/v1/", 404, "", notFound},
		{"DELETE", "/v2", 404, "", notFound},
		{"POST", "/v1/fetch/", 404, "", notFound},
		{"POST", "/v1/fetch", 400, "", "not a FetchRequest in JSON"},
	} {
		resp := r.post(t.Context(), row.path, "", func(r *http.Request) { r.Method = row.method })
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != row.status || resp.Header.Get("Allow") != row.allow || !strings.Contains(strings.ReplaceAll(string(text), `\"`, `"`), row.text) {
			t.Errorf("%s %s: %d, Allow %q, %.200q (%v); want %d, %q, %q", row.method, row.path, resp.StatusCode, resp.Header.Get("Allow"), text, err, row.status, row.allow, row.text)
		}
		if row.method == http.MethodHead && len(text) > 0 {
			t.Errorf("HEAD %s has the body %q", row.path, text)
		}
		if strings.HasPrefix(row.path, "/v1/") {
			wantProtected(t, row.path, resp)
		}
	}
}

// wantProtected checks that an answer cannot run in a browser.
func wantProtected(t *testing.T, what string, resp *http.Response) {
	t.Helper()
	for name, want := range map[string]string{"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if got := resp.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s %q, want only %q", what, name, got, want)
		}
	}
	if got := resp.Header.Values("Content-Disposition"); len(got) != 1 || got[0] != "attachment" && !strings.HasPrefix(got[0], "attachment; filename=") {
		t.Errorf("%s: Content-Disposition %q, want an attachment", what, got)
	}
}

// TestWebRequestThatDoesNotCome checks that such a request ends after ten seconds.
func TestWebRequestThatDoesNotCome(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		body, never := io.Pipe()
		defer func() { _ = never.Close() }()
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.URL+"/v1/fetch", body)
		must(r, err)
		req.Header.Set("Content-Type", "application/json")
		began := time.Now()
		resp, err := r.HTTPClient.Do(req)
		if took := time.Since(began); took != 10*time.Second {
			r.Errorf("ended after %s with %v, want 10 s", took, err)
		}
		if err == nil {
			r.wantStatus(resp, 504, codes.DeadlineExceeded, "in time")
			_ = resp.Body.Close()
		}
	})
}

// TestWebBodyThatIsBroken checks that a malformed body is the caller's fault: it is not reported as late,
// which a caller would repeat.
func TestWebBodyThatIsBroken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	host := strings.TrimPrefix(r.URL, "http://")
	for _, row := range []struct{ name, framing string }{
		{"a negative chunk", "Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n"},
		{"a chunk with a long extension", "Transfer-Encoding: chunked\r\n\r\n2;" + repeat(8<<10) + "\r\n{}\r\n0\r\n\r\n"},
		{"a body that is cut off", "Content-Length: 9\r\n\r\n{}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := r.in(t)
			conn, err := net.Dial("tcp", host)
			must(t, err)
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, "POST /v1/fetch:unary HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/json\r\n"+row.framing); err != nil {
				t.Fatal(err)
			}
			if half, ok := conn.(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			defer func() { _ = resp.Body.Close() }()
			r.wantStatus(resp, 400, codes.InvalidArgument, "malformed")
		})
	}
}

// knows configures an authenticator with one valid token.
func knows(c *server.Config) {
	c.Authenticate = func(shown server.Credentials) (string, error) {
		if shown.Token != "right" {
			return "", errors.New("send an Authorization header: Bearer TOKEN")
		}
		return "caller", nil
	}
}

// TestUnauthenticatedCallsAreRefusedAtOnce checks that a caller without credentials is refused by the
// headers of the call, before its request uses memory.
func TestUnauthenticatedCallsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, knows)
	for _, method := range []string{pb.FetchService_FetchUnary_FullMethodName, pb.FetchService_Fetch_FullMethodName, pb.FetchService_FetchMany_FullMethodName, pb.FetchService_Explain_FullMethodName} {
		c := r.raw(r.dial(r.DialGRPC))
		c.open(1, method)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second)) // an admitted call waits twice as long for its request
		if _, _, _, err := c.read(1); err != nil {
			t.Fatalf("%s: %v before an answer", method, err)
		}
	}
	_, err := r.Client.Explain(t.Context(), new(pb.ExplainRequest))
	wantCode(t, "without a token", err, codes.Unauthenticated)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "bearer right")
	if _, err := r.Client.FetchUnary(ctx, r.request("/s/k/200")); err != nil {
		t.Errorf("with the token: %v", err)
	}
}

// TestWebBodyThatDoesNotCome checks that a body that no handler reads delays neither the end of its
// connection nor the shutdown.
func TestWebBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, head string }{
		{"of a GET", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"},
		{"of another type", "POST /v1/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n"},
		{"of a path that is not there", "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				conn := r.dial(r.DialHTTP)
				if _, err := io.WriteString(conn, row.head); err != nil {
					r.Fatal(err)
				}
				began := time.Now()
				r.shutDown()
				if took := time.Since(began); took > 12*time.Second {
					r.Errorf("Shutdown took %s, want the 10 s that a request has", took)
				}
			})
		})
	}
}

// TestWebSilence checks that over HTTP/2 a fetch may be silent for longer than the stall limit,
// which is for callers that do not read.
func TestWebSilence(t *testing.T) {
	t.Parallel()
	certificate, roots := selfSigned(t)
	r := newRig(t, func(c *server.Config) {
		c.Stall = 1500 * time.Millisecond
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	})
	r.HTTPClient.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	in := r.request("/s/k/200:size=20000,drip=10000@3s")
	in.EventLevel = pb.EventLevel_EVENT_LEVEL_OUTCOME
	zero := int64(0)
	in.BodyPolicy = streamed(&pb.StreamDelivery{MaxHoldBackBytes: &zero})
	resp := r.post(t.Context(), "/v1/fetch", r.json(in))
	if resp.ProtoMajor != 2 {
		t.Errorf("%s, want HTTP/2", resp.Proto)
	}
	if a := r.lines(resp); a.err != nil || a.outcome.GetKind() != pb.OutcomeKind_OUTCOME_KIND_SUCCESS {
		t.Errorf("%v, %v; want SUCCESS", a.err, a.outcome.GetError())
	}
}

// TestWebAnswerHoldsItsSlot checks that a fetch keeps its slot until its answer has been read.
func TestWebAnswerHoldsItsSlot(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/k/200:size=1000000")))
		synctest.Wait()
		resp := r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/b/200")))
		r.wantStatus(resp, 429, codes.ResourceExhausted, "this caller has as many fetches in flight as one may")
		<-time.After(31 * time.Second)
		if resp := r.post(r.Context(), "/v1/fetch:unary", r.json(r.request("/s/c/200"))); resp.StatusCode != 200 {
			r.Errorf("after the unread call ended: %s", resp.Status)
		}
	}, func(c *server.Config) { c.MaxFetchesPerCaller = 1 })
}

// TestWebLogsNoRequest checks that an error of JSON is not logged: it quotes the request, which may
// hold a secret header. The caller receives it.
func TestWebLogsNoRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, body := range []string{`{"headers":[{"name":"a","value":314159265358}]}`, `{"body":"` + marker + `!"}`, `{"retryPolicy":{"idempotencyKey":` + marker + `}}`, `{"event_level":"` + marker + `"}`, `{"` + marker + `":1}`} {
		r.wantStatus(r.post(t.Context(), "/v1/fetch", body), 400, codes.InvalidArgument, "")
	}
	r.logs.await(t, "finished call", 5)
	if text := fmt.Sprint(r.logs.all(t)); strings.Contains(text, "314159265358") || strings.Contains(text, marker) {
		t.Error("the log holds what the request held")
	}
}

// TestFetchManyQueuedBodies checks that no further task is read while there is no memory
// for one, and that each runs once earlier ones have ended.
func TestFetchManyQueuedBodies(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		m := r.many(r.Context())
		var sent atomic.Int32
		go func() {
			for n := range 40 {
				task := r.task(fmt.Sprint(n), fmt.Sprintf("/s/k%d/200:delay=1s", n))
				task.Request.Method, task.Request.Body = "PUT", make([]byte, 500_000)
				if m.Send(&pb.FetchManyRequest{Tasks: []*pb.Task{task}}) != nil {
					return
				}
				sent.Add(1)
			}
			_ = m.CloseSend()
		}()
		synctest.Wait()
		if n := sent.Load(); n > 30 { // including tasks that are still being sent
			r.Errorf("%d tasks of 500 kB were accepted with 7 MiB of memory", n)
		}
		m.until(40)
		for n := range 40 {
			m.wantClass(fmt.Sprint(n), ok)
		}
	}, func(c *server.Config) { c.MemoryBudget = 12 << 20 })
}

// TestFetchManyWithoutMemory checks that a task without memory, and without another task
// to wait for, ends as OUT_OF_MEMORY, and that the stream continues.
func TestFetchManyWithoutMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *server.Config) { c.MemoryBudget = 4 << 20 })
	m := r.many(t.Context())
	m.start(&pb.Task{Tag: "long", Request: r.put("long", 1<<20)})
	m.until(1)
	m.start(r.task("short", "/s/short/200"))
	m.finish("long", "short")
	m.wantClass("long", pb.ErrorClass_ERROR_CLASS_OUT_OF_MEMORY)
	m.wantClass("short", ok)
	r.wantRequests("long", 0)
}

// TestResumePointPastTheLimit checks that such a resume point is refused, whatever oversize_action
// is.
func TestResumePointPastTheLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	most := int64(50)
	in := r.request("/s/k/200:size=100,etag=%22v%22,range")
	in.BodyPolicy = streamed(&pb.StreamDelivery{ResumePoint: &pb.ResumePoint{OffsetBytes: 100, Validator: `"v"`}})
	in.BodyPolicy.MaxSizeBytes, in.BodyPolicy.OversizeAction = &most, pb.OversizeAction_OVERSIZE_ACTION_TRUNCATE
	wantViolations(t, r.fetch(t.Context(), in).err, []string{"body_policy.stream.resume_point.offset_bytes"})
}

// selfSigned returns a certificate for 127.0.0.1 and example.com, and a pool that trusts it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
}
