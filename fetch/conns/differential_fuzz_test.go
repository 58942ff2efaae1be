package conns

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/test/must"
)

// canned is a connection to an origin that answers the first request with pieces of bytes, and the
// others with "next". The pieces come in separate reads.
type canned struct {
	ends bool // the origin closes the connection behind the pieces

	mu       sync.Mutex
	wait     sync.Cond // of changes
	pieces   [][]byte
	requests int  // that were written, each in one call
	drained  bool // a read has found no byte behind the pieces
	closed   bool
	deadline bool // a read must not wait
}

func newCanned(data []byte, split int, ends bool) *canned {
	c := &canned{ends: ends}
	c.wait.L = &c.mu
	for split > 0 && len(data) > split {
		c.pieces, data = append(c.pieces, data[:split]), data[split:]
	}
	c.pieces = append(c.pieces, data)
	return c
}

func (c *canned) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.requests > 0 && len(c.pieces) > 0:
			n := copy(p, c.pieces[0])
			if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
				c.pieces = c.pieces[1:]
			}
			if n > 0 {
				return n, nil
			}
		case c.requests > 0 && c.ends:
			return 0, io.EOF
		case c.deadline:
			return 0, os.ErrDeadlineExceeded
		default:
			if c.requests > 0 {
				c.drained = true
				c.wait.Broadcast()
			}
			c.wait.Wait()
		}
	}
}

func (c *canned) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	if c.requests++; c.requests > 1 {
		c.pieces, c.drained = append(c.pieces, []byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")), false
	}
	c.wait.Broadcast()
	return len(p), nil
}

func (c *canned) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.wait.Broadcast()
	return nil
}

func (c *canned) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = !t.IsZero()
	c.wait.Broadcast()
	return nil
}

func (c *canned) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *canned) SetWriteDeadline(time.Time) error { return nil }
func (c *canned) LocalAddr() net.Addr              { return nil }
func (c *canned) RemoteAddr() net.Addr             { return nil }

// settle waits until the reader of an idle connection waits, or has closed it.
func (c *canned) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.drained && !c.closed {
		c.wait.Wait()
	}
}

// dialCanned dials c first, and then connections that answer every request with "next".
func dialCanned(c *canned) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		next := c
		if c = nil; next == nil {
			next = newCanned(nil, 0, false)
			next.requests = 1 // the first one is not special
		}
		return next, nil
	}
}

var fuzzURL = &url.URL{Scheme: "http", Host: "origin.example", Path: "/"}

// reason is why an Exchange rejected the response.
type reason = string

// exchangeCanned makes an exchange, and another one if the first one leaves a connection.
func exchangeCanned(t *testing.T, method string, c *canned) (out outcome, why reason) {
	p := New(Config{Guard: egress.New(egress.Policy{Unrestricted: true}), Dial: dialCanned(c)})
	defer p.Close()
	x := p.NewExchange(t.Context(), new(timers.Clock), Settings{})
	must.Succeed(t, x.Connect(Target{URL: fuzzURL}))
	resp, err := x.RoundTrip(shape{method: method}.request(fuzzURL, "/"))
	why = fault.ReasonOf(err)
	out.read(resp, err, func(inBody bool, err error) classify.Class {
		if inBody {
			return x.ClassOf(classify.PhaseTransfer, err)
		}
		return x.ClassOf(x.Phase(), err)
	})
	x.End()
	if c.ends || out.Class != classify.NoClass {
		return out, why
	}
	x = p.NewExchange(t.Context(), new(timers.Clock), Settings{})
	defer x.End()
	must.Succeed(t, x.Connect(Target{URL: fuzzURL}))
	out.Reused = x.Report().Reused
	resp, err = x.RoundTrip(shape{method: http.MethodGet}.request(fuzzURL, "/next"))
	must.Succeed(t, err)
	text, _ := io.ReadAll(resp.Body)
	out.Next = string(text)
	return out, why
}

// transportCanned does the same with http.Transport.
func transportCanned(t *testing.T, method string, c *canned) (out outcome) {
	w := &watched{Conn: c, closed: make(chan struct{})}
	dial := dialCanned(c)
	tr := newTransport(func(ctx context.Context, network, address string) (net.Conn, error) {
		if c, err := dial(ctx, network, address); c != w.Conn {
			return c, err
		}
		return w, nil
	})
	defer tr.CloseIdleConnections()
	r, wrote := traced(t.Context(), shape{method: method}.request(fuzzURL, "/"), new(bool))
	resp, err := tr.RoundTrip(r)
	out.read(resp, err, classOfTransport(w, wrote))
	if err == nil {
		_ = resp.Body.Close()
	}
	if c.ends || out.Class != classify.NoClass {
		return out
	}
	c.settle()
	r, _ = traced(t.Context(), shape{method: http.MethodPost}.request(fuzzURL, "/next"), &out.Reused)
	resp, err = tr.RoundTrip(r)
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	out.Next = string(text)
	return out
}

// isStricter reports whether an Exchange rejects a response for a reason that Transport does not
// have, and the response gives that reason.
func isStricter(why reason, data []byte, plain outcome) bool {
	switch why {
	case errVersion.Reason:
		return !strings.HasPrefix(plain.Proto, "HTTP/1.")
	case ErrFields.Reason:
		return bytes.Count(data, []byte("\n")) > MaxHeaderFields
	case errInformational.Reason:
		return bytes.Count(data, []byte("HTTP/")) > MaxInformational
	}
	return false
}

// misreads matches responses that net/http may not read as RFC 9112 says.
var misreads = regexp.MustCompile(`(?is)[ \t][:;]|\r[^\n]|[^\r]\n|content-length:[^\n]*,|HTTP/1\.0.*transfer-encoding|transfer-encoding.*content-length|content-length.*transfer-encoding`)

// unfinishedHead matches a response whose last head, perhaps after informational ones, has no end. Any error is N4
// then, while Transport may notice first that a line is invalid.
var unfinishedHead = regexp.MustCompile(`(?s)(^|\n\r?\n)HTTP/([^\n]|\n[^\r\n]|\n\r[^\n])*\n?\r?$`)

// FuzzAgainstTransport compares an Exchange with http.Transport, like TestAgainstTransport. The origin
// answers with any bytes, in pieces of a length.
func FuzzAgainstTransport(f *testing.F) {
	for i, d := range differentials() {
		if text := d.head + d.body; len(text) < 2000 && d.shape.name == "GET" && !d.secure {
			f.Add([]byte(text), uint8(i%3), false)
		}
	}
	f.Add([]byte("HTTP/1.1 100 \r\n\r\nHTTP/1.1 200 \r\n0\r\n"), uint8(2), true)
	f.Fuzz(func(t *testing.T, data []byte, split uint8, head bool) {
		if len(data) >= MaxHeadBytes { // the limits of bytes differ in where they begin to count
			return
		}
		defer time.AfterFunc(hang, func() { panic("it hangs") }).Stop() // go test then keeps the input
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		got, why := exchangeCanned(t, method, newCanned(data, int(split), true))
		want := transportCanned(t, method, newCanned(data, int(split), true))
		if isStricter(why, data, want) || misreads.Match(data) || got.Class == classify.ConnectionReset && want.Class == classify.Protocol && unfinishedHead.Match(data) {
			return
		}
		if strings.HasPrefix(want.Status, "101") {
			want.Body = got.Body // no request asks for another protocol
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-want (Transport) +got (Exchange):\n%s", diff)
		}
		if got.Class != classify.NoClass || got.Close || strings.HasPrefix(got.Status, "101") {
			return
		}
		// The response has an end, so the connection can stay open.
		got, _ = exchangeCanned(t, method, newCanned(data, int(split), false))
		want = transportCanned(t, method, newCanned(data, int(split), false))
		if offersBinding(got.Header) {
			want.Reused = false
		}
		if keepAlive(got.Header) < idleLimit { // which may be over
			want.Reused = got.Reused
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("on a connection that stays open: -want (Transport) +got (Exchange):\n%s", diff)
		}
	})
}
