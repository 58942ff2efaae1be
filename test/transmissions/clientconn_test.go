package transmissions

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
	"fetchd/test/wait"
)

// shape describes an error without its text: the types of the chain and the errors it matches. Types
// are the evidence that the classification of failures uses.
func shape(err error) string {
	if err == nil {
		return "none"
	}
	var types []string
	for e := err; e != nil; e = errors.Unwrap(e) {
		types = append(types, strings.TrimPrefix(fmt.Sprintf("%T", e), "*"))
	}
	text := strings.Join(types, " > ")
	for _, known := range []struct {
		name string
		err  error
	}{
		{"EOF", io.EOF},
		{"unexpected EOF", io.ErrUnexpectedEOF},
		{"ECONNRESET", syscall.ECONNRESET},
		{"DeadlineExceeded", context.DeadlineExceeded},
	} {
		if errors.Is(err, known.err) {
			text += " is " + known.name
		}
	}
	if s, ok := errors.AsType[http2.StreamError](err); ok {
		text += " is " + s.Code.String()
	}
	return text
}

// Shapes of errors.
const (
	untyped   = "errors.errorString"
	endOfFile = "errors.errorString is EOF"
	resetRead = "net.OpError > os.SyscallError > syscall.Errno is ECONNRESET"
	badHead   = "textproto.ProtocolError"
	limited   = "fault.Error"
	truncated = "errors.errorString is unexpected EOF"
	timedOut  = "context.deadlineExceededError is DeadlineExceeded"
)

func streamError(code http2.ErrCode) string { return "http2.StreamError is " + code.String() }

// connFault is a fault, and what a connection makes of it: over HTTP/1.1 that of [conns.Exchange], over
// HTTP/2 an http.ClientConn.
type connFault struct {
	name  string
	http1 func(net.Conn) bool
	http2 func(*frames, request) bool
	// secure uses TLS below HTTP/1.1.
	secure bool
	// cold sends the request on a new connection, and otherwise on one that has carried a request.
	cold bool
	// idle commits the fault behind the answer to the first request, and the next request is sent when
	// the connection is found dead. Over HTTP/1.1 it is sent over a new one.
	idle bool
	// late ends the time of the request when the origin has received it.
	late bool

	received int    // requests that the origin receives
	shape    string // of the error
}

func raw(text string, then func(net.Conn) bool) func(net.Conn) bool {
	return func(c net.Conn) bool { return say(c, text) && then(c) }
}

// resetStream breaks the stream of a request.
func resetStream(code http2.ErrCode) func(*frames, request) bool {
	return func(f *frames, r request) bool {
		return f.write(func() error { return f.WriteRSTStream(r.stream, code) }) == nil
	}
}

// lastStream sends a GOAWAY whose last stream is that of the request.
func lastStream(then func(*frames, request) bool) func(*frames, request) bool {
	return func(f *frames, r request) bool {
		return f.write(func() error { return f.WriteGoAway(r.stream, http2.ErrCodeNo, nil) }) == nil && then(f, r)
	}
}

// halfHead sends a header block without its end.
func halfHead(f *frames, r request) bool {
	_ = f.write(func() error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: r.stream, BlockFragment: f.encode(":status", "200")})
	})
	return false
}

var connFaults = []connFault{
	{name: "reset, reused", http1: reset1, received: 1, shape: resetRead},
	{name: "reset, new", http1: reset1, cold: true, received: 1, shape: resetRead},
	{name: "reset, reused, TLS", http1: reset1, secure: true, received: 1, shape: resetRead},
	{name: "close before the head, reused", http1: close1, received: 1, shape: endOfFile},
	{name: "close before the head, new", http1: close1, cold: true, received: 1, shape: endOfFile},
	{name: "close before the head, reused, TLS", http1: close1, secure: true, received: 1, shape: endOfFile},
	{name: "close in the head", http1: raw("HTTP/1.1 200 OK\r\nContent-Le", close1), received: 1, shape: badHead},
	{name: "408 and close of an idle connection", http1: late408, idle: true, received: 1, shape: "none"},
	{name: "close of an idle connection", http1: leave, idle: true, received: 1, shape: "none"},
	{name: "garbage", http1: raw("SSH-2.0-x\r\n\r\n", close1), received: 1, shape: untyped},
	{name: "head too large", http1: raw("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 100_000), leave), received: 1, shape: limited},
	{name: "silence", http1: silent1, late: true, received: 1, shape: timedOut},

	{name: "reset of the connection, reused", http2: reset2, received: 1, shape: resetRead},
	{name: "close before the head, reused", http2: close2, received: 1, shape: truncated},
	{name: "close before the head, new", http2: close2, cold: true, received: 1, shape: truncated},
	{name: "close in HEADERS", http2: halfHead, received: 1, shape: truncated},
	{name: "GOAWAY that excludes the request, reused", http2: goAway(http2.ErrCodeNo), received: 1, shape: untyped},
	{name: "GOAWAY that excludes the request, new", http2: goAway(http2.ErrCodeNo), cold: true, received: 1, shape: untyped},
	{name: "GOAWAY with an error, reused", http2: goAway(http2.ErrCodeEnhanceYourCalm), received: 1, shape: untyped},
	{name: "GOAWAY with an error, new", http2: goAway(http2.ErrCodeEnhanceYourCalm), cold: true, received: 1, shape: untyped},
	{name: "GOAWAY, then the answer", http2: lastStream(answer2), received: 1, shape: "none"},
	{name: "GOAWAY, then close", http2: lastStream(close2), received: 1, shape: "http2.GoAwayError"},
	{name: "REFUSED_STREAM, reused", http2: refuse, received: 1, shape: streamError(http2.ErrCodeRefusedStream)},
	{name: "REFUSED_STREAM, new", http2: refuse, cold: true, received: 1, shape: streamError(http2.ErrCodeRefusedStream)},
	{name: "RST_STREAM INTERNAL_ERROR", http2: resetStream(http2.ErrCodeInternal), received: 1, shape: streamError(http2.ErrCodeInternal)},
	{name: "RST_STREAM PROTOCOL_ERROR", http2: resetStream(http2.ErrCodeProtocol), received: 1, shape: streamError(http2.ErrCodeProtocol)},
	{name: "RST_STREAM HTTP_1_1_REQUIRED", http2: resetStream(http2.ErrCodeHTTP11Required), received: 1, shape: streamError(http2.ErrCodeHTTP11Required)},
	{name: "RST_STREAM NO_ERROR", http2: resetStream(http2.ErrCodeNo), received: 1, shape: streamError(http2.ErrCodeNo)},
	{name: "silence", http2: silent2, late: true, received: 1, shape: timedOut},
	{name: "close of an idle connection", http2: func(f *frames, _ request) bool { return leave(f) }, idle: true, received: 0, shape: untyped},
	{name: "GOAWAY on an idle connection", http2: dismiss, idle: true, received: 0, shape: untyped},
}

// TestClientConn records what the rest of this project relies on: a connection sends a request once or
// not at all, whatever happens to it, and the shapes of its errors. If a new version of Go fails here, read
// the pool and the classification of failures before you change the table.
func TestClientConn(t *testing.T) {
	t.Parallel()
	kinds := map[string]func() *http.Request{
		"GET":                   func() *http.Request { return newHTTPRequest("GET", "", true, false) },
		"PUT with GetBody":      func() *http.Request { return newHTTPRequest("PUT", "hello", true, false) },
		"POST without GetBody":  func() *http.Request { return newHTTPRequest("POST", "hello", false, false) },
		"POST with a nil key":   func() *http.Request { return newHTTPRequest("POST", "hello", true, true) },
		"DELETE with a nil key": func() *http.Request { return newHTTPRequest("DELETE", "", true, true) },
	}
	for _, f := range connFaults {
		protocol := "HTTP/1.1"
		if f.http2 != nil {
			protocol = "HTTP/2"
		}
		t.Run(protocol+" "+f.name, func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			defer all.Wait()
			for name, request := range kinds {
				all.Go(func() { t.Run(name, func(t *testing.T) { f.check(t, request()) }) })
			}
		})
	}
}

// newHTTPRequest returns a request of net/http. Transport resends one that has GetBody, or the
// Idempotency-Key field even if it is not sent.
func newHTTPRequest(method, body string, again, key bool) *http.Request {
	r := &http.Request{Method: method, Header: make(http.Header)}
	if body != "" {
		r.ContentLength = int64(len(body))
		r.Body = io.NopCloser(strings.NewReader(body))
		if again {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
		}
	}
	if key {
		r.Header["Idempotency-Key"] = nil
	}
	return r
}

func (f connFault) origin(t *testing.T) *origin {
	s := script{http1: func(c net.Conn, r request) bool {
		switch {
		case f.idle:
			return answer1(c, r) && (r.path != "/warm" || f.http1(c))
		case r.path != "/warm":
			return f.http1(c)
		}
		return answer1(c, r)
	}}
	if f.secure {
		s.secure = new(tls.Config)
	}
	if f.http2 != nil {
		s.http2 = func(c *frames, r request) bool {
			switch {
			case r.path != "/warm":
				return f.http2(c, r)
			case f.idle:
				return answer2(c, r) && f.http2(c, r)
			}
			return answer2(c, r)
		}
	}
	return start(t, s)
}

// sender sends requests to an origin, over one connection as long as that is alive.
type sender interface {
	// send sends a request and reads the response to its end.
	send(*http.Request) error
	// isDead reports whether the first connection takes no further request.
	isDead() bool
	close()
}

// exchanges sends over HTTP/1.1.
type exchanges struct{ pool *conns.Pool }

func newExchanges() exchanges {
	_, roots := certificate()
	return exchanges{conns.New(conns.Config{Guard: egress.New(egress.Policy{Unrestricted: true}), Resolver: net.DefaultResolver, RootCAs: roots})}
}

func (e exchanges) send(r *http.Request) error {
	x := e.pool.NewExchange(r.Context(), new(timers.Clock), conns.Settings{})
	defer x.End()
	if err := x.Connect(conns.Target{URL: r.URL}); err != nil {
		return err
	}
	response, err := x.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func (e exchanges) isDead() bool { return e.pool.Stats().Open == 0 }
func (e exchanges) close()       { e.pool.Close() }

// clientConn sends over HTTP/2, as package conns does.
type clientConn struct{ *http.ClientConn }

func newClientConn(t *testing.T, o *origin) clientConn {
	_, roots := certificate()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true, MaxResponseHeaderBytes: conns.MaxHeadBytes}
	if err := http2.ConfigureTransport(transport); err != nil { //nolint:staticcheck // deprecated, but conns uses it
		t.Fatal(err)
	}
	scheme, address, _ := strings.Cut(o.url, "://")
	c, err := transport.NewClientConn(t.Context(), scheme, address)
	if err != nil {
		t.Fatal(err)
	}
	return clientConn{c}
}

func (c clientConn) send(r *http.Request) error {
	response, err := c.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func (c clientConn) isDead() bool { return c.Err() != nil || c.Available() == 0 }
func (c clientConn) close()       { _ = c.Close() }

func (f connFault) check(t *testing.T, r *http.Request) {
	o := f.origin(t)
	var s sender
	if f.http2 != nil {
		s = newClientConn(t, o)
	} else {
		s = newExchanges()
	}
	defer s.close()
	send := func(r *http.Request, path string) error {
		ctx := t.Context()
		if f.late && path != "/warm" {
			limited, end := context.WithCancelCause(ctx)
			defer end(nil)
			go func() {
				_ = wait.Until(limited, time.Millisecond, func() bool { return len(o.requests(path)) > 0 })
				end(context.DeadlineExceeded)
			}()
			ctx = lateContext{limited}
		}
		r, err := cloneTo(ctx, r, o.url+path)
		if err != nil {
			return err
		}
		return s.send(r)
	}
	if !f.cold {
		if err := send(newHTTPRequest("GET", "", true, false), "/warm"); err != nil {
			t.Fatalf("the first request: %v", err)
		}
	}
	if f.idle {
		until(t, "the connection is no longer usable", s.isDead)
	}
	err := send(r, "/fault")
	if got := shape(err); got != f.shape {
		t.Errorf("%v\nhas the shape %s\nwant            %s", err, got, f.shape)
	}
	s.close()
	until(t, "the origin has read the connection to its end", func() bool { return !o.isOpen(1) })
	received := o.requests("/fault")
	if len(received) != f.received {
		t.Errorf("the origin received %d requests, want %d", len(received), f.received)
	}
	if slices.ContainsFunc(received, func(r request) bool { return (r.protocol == 2) != (f.http2 != nil) }) {
		t.Errorf("the origin received %+v over another protocol", received)
	}
}

// lateContext is a context that ends like one whose deadline has passed.
type lateContext struct{ context.Context }

func (c lateContext) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// cloneTo returns the request with a context and a URL.
func cloneTo(ctx context.Context, r *http.Request, url string) (*http.Request, error) {
	to, err := http.NewRequestWithContext(ctx, r.Method, url, r.Body)
	if err != nil {
		return nil, err
	}
	to.ContentLength, to.GetBody, to.Header = r.ContentLength, r.GetBody, r.Header
	return to, nil
}
