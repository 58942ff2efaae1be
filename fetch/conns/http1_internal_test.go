package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
)

// requestBody is a body whose reader notes in plain memory that it was read.
type requestBody struct {
	io.Reader
	reads int
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.reads++
	return b.Reader.Read(p)
}

func (b *requestBody) Close() error { return nil }

func (o *testOrigin) put(b io.ReadCloser, n int) *http.Request {
	r := shape{method: http.MethodPut}.request(o.target.URL, "/")
	r.Body, r.ContentLength = b, int64(n)
	return r
}

var errTest = errors.New("the test ends it")

// TestCancel checks that the end of an exchange, for whatever cause, closes its socket, whether the
// request is being written, or the response is read.
func TestCancel(t *testing.T) {
	t.Parallel()
	const long = 1 << 20
	for _, row := range []struct {
		name   string
		body   int
		answer string // sent before the exchange is cancelled
	}{
		{"no answer", 0, ""},
		{"no answer, a short body", 5, ""},
		{"no answer, a long body", long, ""},
		{"half a head", 0, "HTTP/1.1 200 OK\r\n"},
		{"half a head, a long body", long, "HTTP/1.1 200 OK\r\n"},
		{"half a body", 0, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"},
		{"half a body, a long body", long, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"},
		{"half a chunk", 0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello"},
		{"a 103", long, "HTTP/1.1 103 Early Hints\r\n\r\n"},
	} {
		for name, cancel := range map[string]func(*Exchange, context.CancelCauseFunc){
			"by Cancel":     func(x *Exchange, _ context.CancelCauseFunc) { x.Cancel(errTest) },
			"by its parent": func(_ *Exchange, cancel context.CancelCauseFunc) { cancel(errTest) },
		} {
			t.Run(row.name+", "+name, func(t *testing.T) {
				t.Parallel()
				o := newTestOrigin(t, nil)
				ctx, cancelParent := context.WithCancelCause(o.ctx)
				defer cancelParent(nil)
				x := o.pool.NewExchange(ctx, new(timers.Clock), Settings{})
				if err := x.Connect(o.target); err != nil {
					t.Fatal(err)
				}
				c, in := o.accept()
				body := &requestBody{Reader: strings.NewReader(strings.Repeat("x", row.body))}
				got := make(chan error)
				go func() {
					resp, err := x.RoundTrip(o.put(body, row.body))
					if err == nil {
						_, err = io.ReadAll(resp.Body)
					}
					got <- err
				}()
				readHead(in)
				_, _ = io.WriteString(c, row.answer)
				cancel(x, cancelParent)
				if err := <-got; !errors.Is(err, errTest) {
					t.Errorf("%v, want the cause", err)
				}
				if n := o.pool.Stats().Open; n != 0 {
					t.Errorf("%d sockets are open before End", n)
				}
				x.End()
				body.reads++ // a race if the writer goes on
				_, _ = io.Copy(io.Discard, in)
				if s := o.pool.Stats(); s.Idle != 0 || s.Open != 0 {
					t.Errorf("%+v, want no connection", s)
				}
			})
		}
	}
}

// slowTap is a tap whose Sent goes on only when the socket of its exchange is closed.
type slowTap struct {
	*testOrigin
	called chan struct{}
	over   bool // Sent has returned
}

func (s *slowTap) Sent([]byte) error {
	close(s.called)
	until(s.T, s.ctx, "the socket is closed", func() bool { return s.pool.open.Load() == 0 })
	s.over = true
	return nil
}

func (s *slowTap) Received([]byte) error { return nil }

// TestEndWaitsForWriter checks that the goroutine that writes a long request has ended when End returns,
// and that its connection is not used again.
func TestEndWaitsForWriter(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, answer string
		read         bool // the response is read to its end
	}{
		{"a response without a body", "HTTP/1.1 204 No Content\r\n\r\n", true},
		{"a body that is read", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"a body that is not read", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := newTestOrigin(t, nil)
			tap := &slowTap{testOrigin: o, called: make(chan struct{})}
			x := o.open(Settings{Tap: tap})
			c, _ := o.accept()
			o.scripts.Go(func() {
				<-tap.called
				_, _ = io.WriteString(c, row.answer)
			})
			resp, err := x.RoundTrip(o.put(io.NopCloser(strings.NewReader(strings.Repeat("x", longRequest))), longRequest))
			if err != nil {
				t.Fatal(err)
			}
			if row.read {
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Error(err)
				}
			}
			x.End()
			if !tap.over {
				t.Error("the request is still being written")
			}
			if s := o.pool.Stats(); s.Idle != 0 {
				t.Errorf("%+v, want no idle connection", s)
			}
		})
	}
}

// TestBodyAfterEnd checks that the body of a response gives nothing when its exchange is over, although
// another exchange reads with the same buffer.
func TestBodyAfterEnd(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		n    int // bytes of the first body that are read before its end; negative: all, and the end
	}{{"before the first byte", 0}, {"in the middle", 2}, {"behind the last byte", 5}, {"behind the end", -1}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := newTestOrigin(t, nil)
			var bodies []io.Reader
			exchange := func(body string) *Exchange {
				x := o.open(Settings{})
				o.scripts.Go(func() {
					c, in := o.accept()
					readHead(in)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"+body)
				})
				resp, err := x.RoundTrip(shape{method: http.MethodGet}.request(o.target.URL, "/"))
				if err != nil {
					t.Fatal(err)
				}
				bodies = append(bodies, resp.Body)
				return x
			}
			x := exchange("first")
			if row.n < 0 {
				_, _ = io.ReadAll(bodies[0])
			} else {
				_, _ = io.ReadFull(bodies[0], make([]byte, row.n))
			}
			x.End()
			for range 4 { // one of them has the buffer
				exchange("other")
			}
			if got, err := io.ReadAll(bodies[0]); len(got) > 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("%q, %v, want nothing, %v", got, err, http.ErrBodyReadAfterClose)
			}
			for _, other := range bodies[1:] {
				if got, err := io.ReadAll(other); string(got) != "other" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
}

// lossyConn is a connection whose writes report an error, although the peer gets the bytes.
type lossyConn struct{ *net.TCPConn }

func (c lossyConn) Write(p []byte) (int, error) {
	_, _ = c.TCPConn.Write(p)
	return 0, errTest
}

// TestAnswerAfterWriteError checks that an answer counts although the request could not be written, and
// that the connection is not used again. Without an answer the error is that of writing.
func TestAnswerAfterWriteError(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 5, longRequest} {
		for _, answer := range []string{"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", ""} {
			t.Run(fmt.Sprintf("%d bytes, %.35q", n, answer), func(t *testing.T) {
				t.Parallel()
				o := newTestOrigin(t, func(c *net.TCPConn) net.Conn { return lossyConn{c} })
				o.scripts.Go(func() {
					c, in := o.accept()
					readHead(in)
					_, _ = io.WriteString(c, answer)
					if answer == "" {
						_ = c.Close()
					}
				})
				x := o.open(Settings{})
				resp, err := x.RoundTrip(o.put(io.NopCloser(strings.NewReader(strings.Repeat("x", n))), n))
				switch {
				case answer == "":
					if class := x.ClassOf(x.Phase(), err); n < longRequest && !errors.Is(err, errTest) || n == longRequest && class != classify.ConnectionReset {
						t.Errorf("%v, %s, want that of writing", err, class)
					}
				case err != nil:
					t.Errorf("%v, want the answer", err)
				default:
					if _, err := io.ReadAll(resp.Body); err != nil {
						t.Error(err)
					}
				}
				x.End()
				if s := o.pool.Stats(); s.Idle != 0 {
					t.Errorf("%+v, want no idle connection", s)
				}
			})
		}
	}
}

// slowWriter returns from each write as late as an exchange waits for it at its end.
type slowWriter struct{ net.Conn }

func (w slowWriter) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	time.Sleep(writerTime) //nolint:forbidigo // of the bubble
	return n, err
}

// TestWriterEndsLate checks an exchange whose writer ends at the moment when End stops waiting for it. What
// closes the socket then may run when the exchange is over.
func TestWriterEndsLate(t *testing.T) {
	t.Parallel()
	const body = 20 << 10
	for range 200 { // a race
		synctest.Test(t, func(t *testing.T) {
			p := New(Config{Guard: egress.New(egress.Policy{Unrestricted: true}), Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					_, _ = io.CopyN(io.Discard, far, body)
					_, _ = io.WriteString(far, okay)
					_, _ = io.Copy(io.Discard, far)
					_ = far.Close()
				}()
				return slowWriter{near}, nil
			}})
			defer p.Close()
			u := &url.URL{Scheme: "http", Host: "origin.test", Path: "/"}
			x := p.NewExchange(t.Context(), new(timers.Clock), Settings{})
			defer x.End()
			if err := x.Connect(Target{URL: u}); err != nil {
				t.Fatal(err)
			}
			resp, err := x.RoundTrip(shape{method: http.MethodPost, body: body}.request(u, "/"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body)
		})
	}
}

// TestStaleAnswerOfAnyLength checks that bytes behind a response on a reused connection are seen wherever
// the response ends in the buffer.
func TestStaleAnswerOfAnyLength(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Length: %05d\r\n\r\n"
	const headBytes = len(head) - len("%05d") + len("00000")
	for _, length := range []int{1, readBytes - headBytes - 1, readBytes - headBytes, readBytes - headBytes + 1, readBytes, readBytes + 1, 2*readBytes - headBytes, 3 * readBytes} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			o := newTestOrigin(t, nil)
			o.scripts.Go(func() {
				c, in := o.accept()
				readHead(in)
				_, _ = io.WriteString(c, okay)
				readHead(in)
				_, _ = fmt.Fprintf(c, head+"%s%s", length, strings.Repeat("f", length), okay) // one segment
			})
			o.get()
			x := o.open(Settings{})
			resp, err := x.RoundTrip(shape{method: http.MethodGet}.request(o.target.URL, "/"))
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || len(body) != length {
				t.Errorf("%d bytes, %v", len(body), err)
			}
			if !x.Surplus() || !x.Report().Reused {
				t.Errorf("surplus %t, reused %t, want both", x.Surplus(), x.Report().Reused)
			}
		})
	}
}

// finisher calls a function when the client's part of a TLS handshake has been written.
type finisher struct {
	net.Conn
	writes int
	then   func()
}

func (f *finisher) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	if f.writes++; f.writes == 2 {
		f.then()
	}
	return n, err
}

// TestCancelWhileSharing checks that a stream which was reserved for an exchange is given back if the
// exchange is cancelled just when it gives its own connection up.
func TestCancelWhileSharing(t *testing.T) {
	t.Parallel()
	s, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate, roots := testCertificate()
	srv := &http.Server{ReadHeaderTimeout: hang, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.ServeTLS(s, "", "")
	}()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	u := &url.URL{Scheme: "https", Host: s.Addr().String(), Path: "/"}
	then := func() {}
	p := New(Config{Guard: egress.New(egress.Policy{Unrestricted: true}), RootCAs: roots, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		return &finisher{Conn: c, then: then}, err
	}})
	first := p.NewExchange(t.Context(), new(timers.Clock), Settings{})
	if err := first.Connect(Target{URL: u}); err != nil {
		t.Fatal(err)
	}
	shared := first.conn
	second := p.NewExchange(t.Context(), new(timers.Clock), Settings{})
	then = func() { // the first connection is shared from now on
		resp, err := first.RoundTrip(shape{method: http.MethodGet}.request(u, "/"))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.ReadAll(resp.Body)
		first.End()
		second.Cancel(context.Canceled)
	}
	if err := second.Connect(Target{URL: u}); err == nil {
		t.Error("an exchange that was cancelled has connected")
	}
	second.End()
	p.mu.Lock()
	users := shared.users
	p.mu.Unlock()
	if users != 0 {
		t.Errorf("the shared connection has %d users, and no exchange is open", users)
	}
	p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	until(t, ctx, "all connections are closed", func() bool { return p.Stats().Open == 0 })
}
