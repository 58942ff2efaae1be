package fetch_test

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"fetchd/classify"
	"fetchd/fetch"
)

// surplus is what the origin sends behind an answer.
const surplus = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"

// surplusRig is an origin that sends surplus bytes on connections that had carried another request, and
// a client of it.
type surplusRig struct {
	*testing.T
	client *fetch.Client
	lines  *bytes.Buffer // of the log
	url    string
	// answer is what the first request for /x gets, with the surplus bytes. Later ones get honest.
	answer, honest string
	// rest answers a request for the rest of a body, with the surplus bytes.
	rest string
	// atEnd, if it is set, are the last bytes of answer. They are sent when chunk is closed.
	atEnd string
	chunk chan struct{}
	// warming lets the requests for /warm wait for each other.
	warming sync.WaitGroup

	mu       sync.Mutex
	accepted int
	seen     []string // what the requests for /x and /target were: path, Range, Connection
}

// newSurplusRig starts an origin. It ends with the test.
func newSurplusRig(t *testing.T, answer, honest string, never ...string) *surplusRig {
	t.Helper()
	r := &surplusRig{T: t, lines: new(bytes.Buffer), answer: answer, honest: honest, chunk: make(chan struct{})}
	r.url = "http://" + serveConns(t, r.serve)
	logger := slog.New(slog.NewTextHandler(r.lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.client = newClient(t, fetch.Config{Egress: unrestricted, NeverReuse: never, Logger: logger})
	return r
}

func (r *surplusRig) serve(conn net.Conn, n int) {
	r.mu.Lock()
	r.accepted = n
	r.mu.Unlock()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if req.URL.Path == "/warm" {
			r.warming.Done()
			r.warming.Wait()
			_, _ = conn.Write([]byte(r.honest))
			continue
		}
		r.mu.Lock()
		seen := req.URL.Path
		if ranges := req.Header.Get("Range"); ranges != "" {
			seen += " " + ranges
		}
		if req.Close {
			seen += " close"
		}
		r.seen = append(r.seen, seen)
		first := len(r.seen) == 1
		r.mu.Unlock()
		switch {
		case !first && !strings.Contains(seen, "bytes="):
			_, _ = conn.Write([]byte(r.honest))
		case r.atEnd != "" && first:
			_, _ = conn.Write([]byte(r.answer))
			<-r.chunk
			_, _ = conn.Write([]byte(r.atEnd + surplus))
		case strings.Contains(seen, "bytes="): // a part of the body was sent
			_, _ = conn.Write([]byte(r.rest + surplus))
		case strings.HasSuffix(r.answer, "\x00"):
			_, _ = conn.Write([]byte(strings.TrimSuffix(r.answer, "\x00")))
			return
		default:
			_, _ = conn.Write([]byte(r.answer + surplus))
		}
	}
}

// request returns a request that is retried without delay.
func (r *surplusRig) request(path string) *fetch.Request {
	r.Helper()
	req := get(r, r.url+path)
	req.Policy.BaseDelay, req.Delivery, req.Events = 0, fetch.Inline, fetch.All
	return req
}

// warm makes the client keep n idle connections to the origin, for requests like like.
func (r *surplusRig) warm(n int, like *fetch.Request) {
	r.Helper()
	r.warming.Add(n)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			req := r.request("/warm")
			req.Recorder = like.Recorder
			if out := r.client.Fetch(r.Context(), req, nil); out.Kind != classify.Success {
				r.Errorf("warming: %+v", out.Failure)
			}
		})
	}
	all.Wait()
}

// fetch runs a fetch, and returns the body that the caller or the shelf has at its end, and the attempts.
func (r *surplusRig) fetch(req *fetch.Request, to *shelf) (out *fetch.Outcome, got []byte, finished []fetch.AttemptFinished) {
	received := sync.OnceFunc(func() { close(r.chunk) })
	out = r.client.Fetch(r.Context(), req, func(e fetch.Event) error {
		switch e := e.(type) {
		case fetch.BodyChunk:
			got = append(got, e.Data...)
			received()
		case fetch.AttemptFinished:
			finished = append(finished, e)
		}
		return nil
	})
	got = append(got, out.InlineBody...)
	for _, u := range to.uploads {
		if u.state == "committed" {
			got = append(got, u.body...)
		}
	}
	return out, got, finished
}

// wantDropped checks the failure of an attempt whose response was dropped.
func (r *surplusRig) wantDropped(f *fetch.Failure) {
	r.Helper()
	const message = "the origin sent more than was requested, so the response may be the answer to an earlier request"
	if f == nil || f.Rule != "N4" || f.Phase == classify.NoPhase || f.Message != message {
		r.Errorf("the first attempt: %+v", f)
	}
}

// wantRecords checks that no doubtful response to a request for /x is recorded.
func (r *surplusRig) wantRecords(req *fetch.Request) {
	r.Helper()
	tape, ok := req.Recorder.(*tape)
	if !ok {
		return
	}
	for _, recording := range tape.recordings {
		sure := bytes.Contains(recording.received, []byte("hello")) || bytes.Contains(recording.received, []byte("416"))
		if bytes.Contains(recording.sent, []byte(" /x ")) && recording.exchange != nil && !sure {
			r.Errorf("the records have the response %q", recording.received)
		}
	}
}

func answer(head, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body)
}

// TestSurplus checks what becomes of a response that more bytes follow (N4, B5).
func TestSurplus(t *testing.T) {
	t.Parallel()
	const (
		sum    = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
		tagged = "200 OK\r\nEtag: \"v\""
		cut    = "HTTP/1.1 " + tagged + "\r\nContent-Length: 5\r\n\r\nhel\x00"
		noEnd  = "HTTP/1.1 " + tagged + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\x00"
		n4     = "connection_reset unrequested_data attempts_exhausted"
		chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwrong\r\n"
	)
	rest := answer("206 Partial Content\r\nEtag: \"v\"\r\nContent-Range: bytes 3-4/5", "LO")
	nothing := answer("416 Range Not Satisfiable\r\nContent-Range: bytes */5", "no")
	once := func(r *fetch.Request) { r.Policy.MaxAttempts = 1 }
	for _, row := range []struct {
		name, answer, atEnd string
		rest                string
		warm                int
		change              func(*fetch.Request)
		want                string   // failureText
		body                string   // what the caller has at the end
		flag                bool     // UnrequestedData
		seen                []string // by the origin
	}{
		{name: "a new connection", answer: answer("200 OK", "right"), want: "ok", body: "right", seen: []string{"/x"}},
		{name: "a new connection, 204", answer: "HTTP/1.1 204 No Content\r\n\r\n", want: "ok", seen: []string{"/x"}},
		{name: "inline", warm: 1, answer: answer("200 OK", "wrong"), want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "longer than the buffer", warm: 1, answer: answer("200 OK", strings.Repeat("w", 9000)), want: "ok", body: "hello", seen: []string{"/x", "/x"}}, // one segment
		{name: "the last attempt", warm: 1, answer: answer("200 OK", "wrong"), change: once, want: n4, seen: []string{"/x"}},
		{name: "auto", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Delivery = fetch.Auto }, want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "held back", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Delivery = fetch.Stream }, want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "streamed in part", warm: 1, answer: chunks, atEnd: "0\r\n\r\n", change: func(r *fetch.Request) { r.Delivery, r.HoldBackBytes = fetch.Stream, 0 }, want: "ok", body: "wrong", flag: true, seen: []string{"/x"}},
		{name: "digest", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Delivery = fetch.Digest }, want: "ok", seen: []string{"/x", "/x"}},
		{name: "another digest", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Integrity.SHA256 = sum }, want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "empty", warm: 1, answer: answer("200 OK", ""), change: once, want: n4, seen: []string{"/x"}},
		{name: "HEAD", warm: 1, answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", change: func(r *fetch.Request) { r.Method = http.MethodHead; once(r) }, want: n4, seen: []string{"/x"}},
		{name: "204", warm: 1, answer: "HTTP/1.1 204 No Content\r\n\r\n", want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "redirect", warm: 1, answer: answer("302 Found\r\nLocation: /target", "moved"), want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "redirect without a body", warm: 1, answer: answer("302 Found\r\nLocation: /target", ""), want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "redirect that cannot be followed", warm: 1, answer: answer("302 Found\r\nLocation: ftp://x/", "moved"), change: once, want: n4, seen: []string{"/x"}},
		{name: "failed status", warm: 1, answer: answer("404 Not Found", "wrong"), want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "failed status in the last attempt", warm: 1, answer: answer("404 Not Found", "wrong"), change: once, want: n4, seen: []string{"/x"}},
		{name: "a pause that is asked for", warm: 1, answer: answer("503 Busy\r\nRetry-After: 3000", "wrong"), want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "stored", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Delivery = fetch.Store }, want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "stored, with a validator", warm: 1, answer: answer(tagged, "wrong"), change: func(r *fetch.Request) { r.Delivery = fetch.Store }, want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "stored, the last attempt", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Delivery = fetch.Store; once(r) }, want: n4, seen: []string{"/x"}},
		{name: "stored, continued", warm: 2, answer: cut, rest: rest, change: func(r *fetch.Request) { r.Delivery = fetch.Store }, want: "ok", body: "hello", seen: []string{"/x", "/x bytes=3-", "/x"}},
		{name: "streamed, continued", warm: 2, answer: cut, rest: rest, change: func(r *fetch.Request) { r.Delivery, r.HoldBackBytes = fetch.Stream, 0 }, want: "ok", body: "helLO", flag: true, seen: []string{"/x", "/x bytes=3-"}},
		{name: "stored, nothing missing", warm: 2, answer: noEnd, rest: nothing, change: func(r *fetch.Request) { r.Delivery = fetch.Store }, want: "ok", body: "hello", seen: []string{"/x", "/x bytes=5-", "/x bytes=5-"}},
		{name: "stored and recorded, nothing missing", warm: 2, answer: noEnd, rest: nothing, change: func(r *fetch.Request) { r.Delivery, r.Recorder = fetch.Store, new(tape) }, want: "ok", body: "hello", seen: []string{"/x", "/x bytes=5-", "/x bytes=5-"}},
		{name: "recorded", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Recorder = new(tape) }, want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "recorded, not read", warm: 1, answer: answer("200 OK", "wrong"), change: func(r *fetch.Request) { r.Recorder, r.Delivery = new(tape), fetch.None }, want: "ok", seen: []string{"/x", "/x"}},
		{name: "recorded redirect", warm: 1, answer: answer("302 Found\r\nLocation: /target", "moved"), change: func(r *fetch.Request) { r.Recorder = new(tape) }, want: "ok", body: "hello", seen: []string{"/x", "/x"}},
		{name: "recorded, streamed in part", warm: 1, answer: chunks, atEnd: "0\r\n\r\n", change: func(r *fetch.Request) {
			r.Recorder, r.Delivery, r.HoldBackBytes = new(tape), fetch.Stream, 0
		}, want: "ok", body: "wrong", flag: true, seen: []string{"/x"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newSurplusRig(t, row.answer, answer("200 OK", "hello"))
			r.atEnd, r.rest = row.atEnd, row.rest
			req, to := r.request("/x"), new(shelf)
			if row.change != nil {
				row.change(req)
			}
			if req.Delivery == fetch.Store {
				req.Destination = to
			}
			r.warm(row.warm, req)
			out, got, finished := r.fetch(req, to)
			if text := failureText(out); text != row.want || string(got) != row.body || out.Body.UnrequestedData != row.flag {
				t.Errorf("%s, body %q, unrequested bytes %t; want %s, %q, %t", text, got, out.Body.UnrequestedData, row.want, row.body, row.flag)
			}
			if !slices.Equal(r.seen, row.seen) {
				t.Errorf("the origin saw %q, want %q", r.seen, row.seen)
			}
			if row.want == n4 && (out.Response != nil || out.ErrorBody != nil || out.Stored != nil || out.Body != fetch.BodySummary{}) {
				t.Errorf("the outcome has what may belong to another request: %+v", out)
			}
			if len(row.seen) == 2 && row.warm == 1 {
				r.wantDropped(finished[0].Failure)
			}
			r.wantRecords(req)
			if n := strings.Count(r.lines.String(), "not reused for a minute\" origin="+r.url+"\n"); n != 1 || r.client.Connections().Surplus == 0 {
				t.Errorf("%d lines in the log, want one; %d connections with unrequested bytes:\n%s", n, r.client.Connections().Surplus, r.lines)
			}
		})
	}
}

// TestNeverReuse checks that each request to a host with that setting has a connection of its own, and
// that bytes behind a response then change nothing.
func TestNeverReuse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		never []string
		alone bool
	}{
		{"no host", nil, false},
		{"all hosts", []string{"*"}, true},
		{"the host", []string{"127.0.0.1"}, true},
		{"another host", []string{"127.0.0.2"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			honest := answer("200 OK", "hello")
			r := newSurplusRig(t, "", honest, row.never...)
			r.answer = strings.TrimSuffix(honest, surplus)
			r.seen = []string{"/first"} // all answers are honest
			for range 3 {
				if out := r.client.Fetch(t.Context(), r.request("/x"), nil); out.Kind != classify.Success || string(out.InlineBody) != "hello" {
					t.Fatalf("%s, %q: %+v", out.Kind, out.InlineBody, out.Failure)
				}
			}
			connections, seen := 1, "/x"
			if row.alone {
				connections, seen = 3, "/x close"
			}
			if r.accepted != connections || slices.ContainsFunc(r.seen[1:], func(s string) bool { return s != seen }) {
				t.Errorf("%d connections, the origin saw %q; want %d, %q", r.accepted, r.seen[1:], connections, seen)
			}
		})
	}
}

// TestNeverReuseRejected checks that a host that could never match is an error.
func TestNeverReuseRejected(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"", "*.example.com", "http://example.com", "example.com/", "example.com:0", "example.com:x", "a b", "2001:db8::1", "user@example.com", "0x7f.1", "a?b", "a#b"} {
		if _, err := fetch.New(fetch.Config{NeverReuse: []string{host}}); !strings.Contains(fmt.Sprint(err), fmt.Sprintf("%q is not a host: give", host)) {
			t.Errorf("%q: error %v, want one that names it", host, err)
		}
	}
}
