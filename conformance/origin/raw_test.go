package origin_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"fetchd/conformance/origin"
	"fetchd/test/must"
)

// TestBytesOnTheWire checks faults that are visible only in the bytes on the connection.
func TestBytesOnTheWire(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct {
		step     string
		prefix   string
		contains string
		suffix   string
		err      error
	}{
		{step: "099:close", prefix: "HTTP/1.1 099 \r\n"},
		{step: "999:close", prefix: "HTTP/1.1 999 \r\n"},
		{step: "200:version=2.0,body=x,close", prefix: "HTTP/2.0 200 OK\r\n", suffix: "\r\n\r\nx"},
		{step: "200:version=1.0,early=103,close", prefix: "HTTP/1.1 103 Early Hints\r\n", contains: "HTTP/1.0 200 OK\r\n"},
		{step: "103", prefix: "HTTP/1.1 103 Early Hints\r\n", suffix: "\r\n\r\n"},
		{step: "200:early=103,early-count=2,close", contains: "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\nHTTP/1.1 103"},
		{step: "200:early=102,early-size=4,close", contains: "X-Filler: aaaa\r\n\r\nHTTP/1.1 200"},
		{step: "200:body=a%2Cb%2520,close", suffix: "\r\n\r\na,b%20"},
		{step: "302:to=%2Fs%2Fx%2F200%20y,close", contains: "\r\nLocation: /s/x/200 y\r\n"},
		{step: "302:to=,close", contains: "\r\nLocation: \r\n"},
		{step: "200:header=X-A=1=2,header2=x-b=,close", contains: "\r\nX-A: 1=2\r\nx-b: \r\n"},
		{step: "200:set-cookie=a=b%3B%20Path=%2F,close", contains: "\r\nSet-Cookie: a=b; Path=/\r\n"},
		{step: "200:retry-after=1,retry-after2=2,close", contains: "\r\nRetry-After: 1\r\nRetry-After: 2\r\n"},
		{step: "200:date=none,body=x,type=none,close", prefix: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"},
		{step: "200:head-size=100000,close", contains: strings.Repeat("a", 100000)},
		{step: "200:head-drip=1us,close", suffix: "\r\n\r\n200 OK\n"},
		{step: "200:body=abc,chunked,close", suffix: "\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{step: "200:body=abc,trailers,close", suffix: "\r\n\r\n3\r\nabc\r\n0\r\nX-Trailer: end\r\n\r\n"},
		{step: "200:body=abc,chunk-fault=no-last", suffix: "\r\n\r\n3\r\nabc\r\n"},
		{step: "200:body=abc,chunk-fault=bad-crlf", suffix: "\r\n\r\n3\r\nabcXX0\r\n\r\n"},
		{step: "200:body=abc,chunk-fault=bad-size", contains: "3\r\nabc\r\nzz\r\n"},
		{step: "200:body=abc,chunk-fault=huge", contains: "3\r\nabc\r\nfffffffffffffffff\r\n"},
		{step: "200:body=abcdef,drip=2@1us,cut=4", suffix: "\r\n\r\nabcd"},
		{step: "200:body=abcdef,length=3,close", contains: "Content-Length: 3\r\n", suffix: "abcdef"},
		{step: "304:body=abc,close", suffix: "\r\n\r\nabc"},
		{step: "204:close", suffix: "Connection: close\r\n\r\n"},
		{step: "garbage", prefix: "\xff\x00garbage"},
		{step: "bad-status-line", prefix: "HTTP/1.1 OKAY\r\n"},
		{step: "bad-header", contains: "\r\nthis is no field\r\n"},
		{step: "fin:at=in-head", suffix: "Content-Type: text/pl"},
		{step: "reset:at=in-head", suffix: "Content-Type: text/pl", err: syscall.ECONNRESET},
	} {
		t.Run(tc.step, func(t *testing.T) {
			t.Parallel()
			answer, err := ask(t, o, "/s/"+strings.NewReplacer("%", "", "/", "").Replace(tc.step)+"/"+tc.step)
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: error %v, want %v", tc.step, err, tc.err)
			}
			if !strings.HasPrefix(answer, tc.prefix) || !strings.Contains(answer, tc.contains) || !strings.HasSuffix(answer, tc.suffix) {
				t.Errorf("%s: got %q, want %q … %q … %q", tc.step, answer, tc.prefix, tc.contains, tc.suffix)
			}
		})
	}
}

// Steps that fall silent must hold on until the client leaves, and notice it.
func TestSilence(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct{ step, said string }{
		{"silent", ""},
		{"half-head", "HTTP/1.1 200 OK\r\nContent-Le"},
		{"switch", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: origin\r\n\r\n"},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: origin\r\n\r\n"},
		{"200:date=none,type=none,size=5,stall=2", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + string(o.Body(2))},
		{"200:delay=1h", ""},
		{"200:body=x,drip=1@1h,date=none,type=none", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"},
	} {
		t.Run(tc.step, func(t *testing.T) {
			t.Parallel()
			c := dial(t, o.Addr("http"))
			if _, err := io.WriteString(c, "GET /s/"+tc.step+"/"+tc.step+" HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			said := make([]byte, len(tc.said))
			if _, err := io.ReadFull(c, said); err != nil || string(said) != tc.said {
				t.Fatalf("%s said %q, %v; want %q", tc.step, said, err, tc.said)
			}
			_ = c.Close()
			waitDone(t, o, tc.step, origin.EndClientGone)
		})
	}
}

// waitDone waits for the end of the only exchange of key.
func waitDone(t *testing.T, o *origin.Origin, key string, want origin.End) {
	t.Helper()
	r, err := o.Await(t.Context(), key, 1)
	must.Succeed(t, err)
	select {
	case <-r.Done:
	case <-t.Context().Done():
		t.Fatalf("%s: not done", key)
	}
	if end := o.Requests(key)[0].End; end != want {
		t.Errorf("%s ended %q, want %q", key, end, want)
	}
}

func TestCloseIdle(t *testing.T) {
	t.Parallel()
	o := start(t)
	c := dial(t, o.Addr("http"))
	br := bufio.NewReader(c)
	request := "GET /s/k/close-idle:body=one/200:body=two HTTP/1.1\r\nHost: h\r\n\r\n"
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.Close {
		t.Fatalf("first answer: %v, %v; want one that keeps the connection", resp, err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "one" {
		t.Fatalf("first body %q, %v; want one", body, err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(br, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("second answer: %v, want a closed connection", err)
	}
	r, err := o.Await(t.Context(), "k", 2)
	must.Succeed(t, err)
	<-r.Done
	if got := o.Requests("k"); len(got) != 2 || got[1].ConnectionRequest != 2 || got[1].End != origin.EndBroken {
		t.Errorf("log %+v, want the second request too, broken", got)
	}
	// net/http sends a GET again by itself when this happens to it.
	client := newClient(t, o)
	mustGet(t, client, o.URL("http", "/s/a/close-idle"))
	if g := mustGet(t, client, o.URL("http", "/s/b/200")); g.StatusCode != 200 || len(o.Requests("b")) != 2 {
		t.Errorf("re-send: status %d and %d requests, want 200 and 2", g.StatusCode, len(o.Requests("b")))
	}
}

func TestRequestBodies(t *testing.T) {
	t.Parallel()
	o := start(t)
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	for _, tc := range []struct {
		name, head, body string
		end              origin.End
		bytes            int64
		sum              string
	}{
		{"length", "Content-Length: 3\r\n", "abc", origin.EndAnswered, 3, abc},
		{"chunked", "Transfer-Encoding: chunked\r\n", "1\r\na\r\n2\r\nbc\r\n0\r\nT: x\r\n\r\n", origin.EndAnswered, 3, abc},
		{"continue", "Expect: 100-continue\r\nContent-Length: 3\r\n", "abc", origin.EndAnswered, 3, abc},
		{"cut", "Content-Length: 9\r\n", "abc", origin.EndClientGone, 3, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, o.Addr("http"))
			_, err := io.WriteString(c, "POST /s/"+tc.name+"/200 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+tc.head+"\r\n"+tc.body)
			must.Succeed(t, err)
			if tc.end == origin.EndClientGone {
				closeWrite(t, c)
			}
			answer, err := io.ReadAll(c)
			if err != nil {
				t.Fatalf("%s: %q, %v", tc.name, answer, err)
			}
			<-o.Requests(tc.name)[0].Done
			r := o.Requests(tc.name)[0]
			if r.End != tc.end || r.BodyBytes != tc.bytes || r.BodySHA256 != tc.sum {
				t.Errorf("%s: end %q, %d bytes, %q; want %q, %d, %q", tc.name, r.End, r.BodyBytes, r.BodySHA256, tc.end, tc.bytes, tc.sum)
			}
			if tc.name == "continue" && !strings.HasPrefix(string(answer), "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200") {
				t.Errorf("continue: %q, want a 100 first", answer)
			}
		})
	}
}

func TestUnreadBody(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, tc := range []struct {
		step string
		head error
	}{
		{"413:unread", nil},
		{"reset:at=accept-body,after=10", syscall.ECONNRESET},
		{"fin:at=accept-body,after=10", io.EOF},
	} {
		t.Run(tc.step, func(t *testing.T) {
			t.Parallel()
			c := dial(t, o.Addr("http"))
			_, err := io.WriteString(c, "POST /s/"+tc.step+"/"+tc.step+" HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n0123456789abcdef")
			must.Succeed(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF // http.ReadResponse calls every end unexpected
			}
			if !errors.Is(err, tc.head) {
				t.Fatalf("%s: error %v, want %v", tc.step, err, tc.head)
			}
			if err == nil && (resp.StatusCode != 413 || !resp.Close) {
				t.Errorf("%s: %v, want 413 and close", tc.step, resp)
			}
			if r := o.Requests(tc.step)[0]; r.BodySHA256 != "" || r.BodyBytes > 10 {
				t.Errorf("%s: body of %d bytes %q logged, want it unread", tc.step, r.BodyBytes, r.BodySHA256)
			}
		})
	}
}
