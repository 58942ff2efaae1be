package conns

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
	"fetchd/test/must"
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
		for name, by := range map[string]struct {
			cancel func(*Exchange, context.CancelCauseFunc)
			want   error
		}{
			"by Cancel":     {func(x *Exchange, _ context.CancelCauseFunc) { x.Cancel(errTest) }, errTest},
			"by its parent": {func(_ *Exchange, cancel context.CancelCauseFunc) { cancel(errTest) }, context.Canceled},
		} {
			t.Run(row.name+", "+name, func(t *testing.T) {
				t.Parallel()
				o := newTestOrigin(t, nil)
				ctx, cancelParent := context.WithCancelCause(o.ctx)
				defer cancelParent(nil)
				x := o.pool.NewExchange(ctx, new(timers.Clock), Settings{})
				must.Succeed(t, x.Connect(o.target))
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
				by.cancel(x, cancelParent)
				if err := <-got; !errors.Is(err, by.want) {
					t.Errorf("%v, want %v", err, by.want)
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
			must.Succeed(t, err)
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
				must.Succeed(t, err)
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
			must.Succeed(t, x.Connect(Target{URL: u}))
			resp, err := x.RoundTrip(shape{method: http.MethodPost, body: body}.request(u, "/"))
			must.Succeed(t, err)
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
			must.Succeed(t, err)
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
	must.Succeed(t, err)
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
	must.Succeed(t, first.Connect(Target{URL: u}))
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

// splits are the ways to split the same bytes into reads.
var splits = map[string]func(string) []string{
	"at once":            func(s string) []string { return []string{s} },
	"byte by byte":       func(s string) []string { return strings.Split(s, "") },
	"line by line":       func(s string) []string { return strings.SplitAfter(s, "\n") },
	"after each CR":      func(s string) []string { return strings.SplitAfter(s, "\r") },
	"in pieces of seven": func(s string) []string { return pieces(s, 7) },
}

func pieces(s string, n int) []string {
	var all []string
	for p := range slices.Chunk([]byte(s), n) {
		all = append(all, string(p))
	}
	return all
}

// manyFields returns a head with n fields.
func manyFields(status string, n int) string {
	return "HTTP/1.1 " + status + "\r\n" + strings.Repeat("a:b\r\n", n) + "\r\n"
}

// TestPartialHead checks that an incomplete head is charged, however it is split, and
// that a head with too many fields is not read to its end.
func TestPartialHead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, sent string
		head       int // bytes up to the end of the final head; 0: there is none
		err        error
	}{
		{"CRLF", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 25, nil},
		{"bare LF", "HTTP/1.1 200 OK\nA: b\n\n", 22, nil},
		{"mixed line ends", "HTTP/1.1 200 OK\nA: b\r\nC: d\n\r\n", 29, nil},
		{"no field", "HTTP/1.1 204 No Content\r\n\r\n", 27, nil},
		{"no reason", "HTTP/1.1 200\r\n\r\n", 16, nil},
		{"a body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na\nb\nc", 38, nil},
		{"a body of many lines", manyFields("200 OK", 1) + strings.Repeat("\n", 2000), 24, nil},
		{"one informational head", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n", 62, nil},
		{"three informational heads", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 3) + "HTTP/1.1 200 OK\r\n\r\n", 94, nil},
		{"an informational head with more blanks", "HTTP/1.1   100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 46, nil},
		{"512 fields", manyFields("200 OK", 512), 17 + 512*5 + 2, nil},
		{"513 fields", manyFields("200 OK", 513), 0, ErrFields},
		{"512 fields in each of two heads", manyFields("103 Early Hints", 512) + manyFields("200 OK", 512), 26 + 17 + 2*(512*5+2), nil},
		{"513 fields in an informational head", manyFields("103 Early Hints", 513), 0, ErrFields},
		{"513 fields after an informational head with more blanks", "HTTP/1.1  100 \r\n\r\n" + manyFields("200 OK", 513), 0, ErrFields},
		{"513 fields without end", strings.TrimSuffix(manyFields("200 OK", 513), "\r\n"), 0, ErrFields},
		{"a line without end", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 10_000), 0, nil},
		{"a head without end", "HTTP/1.1 200 OK\r\nA: b\r\n", 0, nil},
		{"nothing after 101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 48, nil},
		{"what follows 101", "HTTP/1.1 101 Switching Protocols\r\n\r\n" + strings.Repeat("x\n", 1000), 36, nil},
	} {
		for split, of := range splits {
			t.Run(row.name+", "+split, func(t *testing.T) {
				t.Parallel()
				checkPartialHead(t, of(row.sent), row.head, row.err)
			})
		}
	}
}

var endOfHead = regexp.MustCompile("\n\r?\n")

// checkPartialHead reads pieces whose final head ends after head bytes.
func checkPartialHead(t *testing.T, sent []string, head int, want error) {
	t.Helper()
	lease := budget.New(1 << 30).Lease("a")
	h := &partialHead{memory: lease}
	came := ""
	for _, piece := range sent {
		err := h.read([]byte(piece))
		complete := h.complete
		came += piece
		if err != nil {
			if !errors.Is(err, want) || want == nil {
				t.Errorf("%v after %d bytes, want %v", err, len(came), want)
			}
			break
		}
		if want := head > 0 && len(came) >= head; complete != want {
			t.Fatalf("complete %t after %d bytes of a head of %d", complete, len(came), head)
		}
		charged := int64(0)
		if !complete {
			rest := came
			for _, at := range endOfHead.FindAllStringIndex(came, -1) {
				rest = came[at[1]:]
			}
			charged = int64(len(rest)) + HeaderLineBytes*int64(strings.Count(rest, "\n"))
		}
		if held := lease.Held(budget.Receiving); held != charged {
			t.Fatalf("%d bytes are charged after %d, want %d", held, len(came), charged)
		}
		if strings.HasSuffix(came, "a:b\r\n\r\n") && want != nil && len(came) == len(strings.Join(sent, "")) {
			t.Errorf("no error, want %v", want)
		}
	}
	h.drop()
	if held := lease.Total(); held != 0 {
		t.Errorf("%d bytes are still charged", held)
	}
	if err := h.read([]byte("more\n")); !h.complete || err != nil || lease.Total() != 0 {
		t.Errorf("read after drop = %t, %v, with %d bytes charged", h.complete, err, lease.Total())
	}
}

// TestHeadBytes checks that a head has at most MaxHeadBytes, however it is split.
func TestHeadBytes(t *testing.T) {
	t.Parallel()
	const start, end = "HTTP/1.1 200 OK\r\nA: ", "\r\n\r\n"
	for _, row := range []struct {
		name, before string
		bytes        int
		err          error
	}{
		{"64 KiB", "", MaxHeadBytes, nil},
		{"one byte more", "", MaxHeadBytes + 1, errHeadBytes},
		{"64 KiB after an informational head", manyFields("103 Early Hints", 1), MaxHeadBytes, nil},
		{"one byte more after an informational head", manyFields("103 Early Hints", 1), MaxHeadBytes + 1, errHeadBytes},
	} {
		sent := row.before + start + strings.Repeat("x", row.bytes-len(start)-len(end)) + end
		for split, of := range splits {
			t.Run(row.name+", "+split, func(t *testing.T) {
				t.Parallel()
				var h partialHead
				var err error
				for _, piece := range of(sent) {
					if err = h.read([]byte(piece)); err != nil {
						break
					}
				}
				if !errors.Is(err, row.err) || (err == nil) != h.complete {
					t.Errorf("%v, complete: %t, want %v", err, h.complete, row.err)
				}
			})
		}
	}
}

// TestPartialHeadWithoutMemory expects an error from the read that exceeds the lease.
func TestPartialHeadWithoutMemory(t *testing.T) {
	t.Parallel()
	lease := budget.New(1600).Lease("a") // 1,200 for one
	h := &partialHead{memory: lease}
	for i, want := range []error{nil, nil, fault.OutOfMemory} {
		if err := h.read([]byte(strings.Repeat("x", 500))); !errors.Is(err, want) {
			t.Errorf("read %d = %v, want %v", i+1, err, want)
		}
	}
	if got := lease.Total(); got != 1000 {
		t.Errorf("%d bytes are charged, want the 1,000 that were granted", got)
	}
}

// FuzzPartialHead checks that a head is complete where net/http finds its end, however
// it is split, and that all its fields and bytes are counted before that.
func FuzzPartialHead(f *testing.F) {
	for _, sent := range []string{
		manyFields("200 OK", 2) + "body\n\n", manyFields("103 Early Hints", 1) + manyFields("200 OK", 1),
		manyFields("101 Switching Protocols", 1) + "x\n\n", "HTTP/1.1  100 \n\nHTTP/1.1 200 OK\r\n \r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\td\r\n\r\n", "HTTP/1.0 199\n\nHTTP/1.1 200\n\n", "\r\r\n\r\n", "HTTP/1.1 +10 x\r\n\r\n\r\n",
		manyFields("200 OK", 513),
	} {
		f.Add([]byte(sent), uint8(1))
		f.Add([]byte(sent), uint8(250))
	}
	f.Fuzz(func(t *testing.T, sent []byte, size uint8) {
		whole, end, fieldsOver := headEnd(sent)
		lease := budget.New(1 << 40).Lease("a")
		h := &partialHead{memory: lease}
		n := 0
		for piece := range slices.Chunk(sent, int(size)+1) {
			err := h.read(piece)
			complete := h.complete
			if errors.Is(err, ErrFields) {
				if lines := bytes.Count(sent[:n+len(piece)], newline); lines <= MaxHeaderFields+1 {
					t.Errorf("refused after %d lines", lines)
				}
				return
			}
			n += len(piece)
			if whole != notKnown && complete != (whole == isWhole && n >= end) {
				t.Fatalf("complete %t after %d bytes, net/http finds the end at %d of %d, whole %v", complete, n, end, len(sent), whole)
			}
			if complete {
				if fieldsOver {
					t.Errorf("a head of more than %d fields is read to its end", MaxHeaderFields)
				}
				if got := lease.Total(); got != 0 {
					t.Errorf("%d bytes are charged for a head that is complete", got)
				}
				return
			}
		}
	})
}

// The results of net/http's parser.
const (
	isWhole  = "whole"
	isPart   = "part"
	notKnown = "not known" // net/http rejects the bytes
)

// headEnd parses the heads at the start of sent as net/http does. It returns the end of
// the final one, and reports whether any has too many fields.
func headEnd(sent []byte) (whole string, end int, tooMany bool) {
	below := bytes.NewReader(sent)
	r := bufio.NewReader(below)
	for {
		resp, err := http.ReadResponse(r, nil)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return isPart, 0, tooMany
		}
		if err != nil {
			return notKnown, 0, tooMany
		}
		end = len(sent) - below.Len() - r.Buffered()
		_ = resp.Body.Close()
		tooMany = tooMany || Fields(resp.Header) > MaxHeaderFields
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return isWhole, end, tooMany
		}
	}
}

// encode returns a name and its encoding.
func encode(t *testing.T, n pkix.Name) (pkix.Name, []byte) {
	t.Helper()
	raw, err := asn1.Marshal(n.ToRDNSequence())
	must.Succeed(t, err)
	return n, raw
}

// TestDescribe checks that the names of a certificate are short and printable, whatever the origin sends.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		in   pkix.Name
		want string
	}{
		{"usual", pkix.Name{CommonName: "origin.example", Organization: []string{"Example, Inc."}, Country: []string{"NZ"}}, `CN=origin.example,O=Example\, Inc.,C=NZ`},
		{"none", pkix.Name{}, ""},
		{"not ASCII", pkix.Name{CommonName: "größe"}, "CN=größe"},
		{"control characters", pkix.Name{CommonName: "a\r\n\x1b[31mb\u202e"}, `CN=a\r\n\x1b[31mb\u202e`},
		{"long", pkix.Name{CommonName: strings.Repeat("a", 300)}, "CN=" + strings.Repeat("a", MaxNameBytes-6) + "…"},
		{"so long that it is not formatted", pkix.Name{CommonName: "origin.example", Organization: []string{strings.Repeat("o", maxParsedName)}}, "CN=origin.example"},
		{"of many parts", pkix.Name{Organization: strings.Split(strings.Repeat("o", 1000), "")}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			name, raw := encode(t, row.in)
			end := time.Date(2030, time.January, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
			got := describe([]*x509.Certificate{{Subject: name, RawSubject: raw, Issuer: name, RawIssuer: raw, NotAfter: end, Raw: []byte("abc")}})
			want := Certificate{row.want, row.want, end.UTC(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
			if got != want {
				t.Errorf("%+v\nwant %+v", got, want)
			}
			if len(got.Subject) > MaxNameBytes {
				t.Errorf("%d bytes", len(got.Subject))
			}
		})
	}
	if got := describe(nil); got != (Certificate{}) {
		t.Errorf("no certificate: %+v", got)
	}
}

// FuzzBindsConnection checks that a scheme is found after any prefix, and that none is
// found where no name of a scheme is.
func FuzzBindsConnection(f *testing.F) {
	f.Add(`Basic realm="a, b`)
	f.Add("Digest qop=\"auth,auth-int\"")
	f.Add(", \t ,nEGOTIATE")
	f.Fuzz(func(t *testing.T, line string) {
		if !BindsConnection(line + ",\t NtLm TlRM") {
			t.Errorf("NTLM is not found behind %q", line)
		}
		named := false
		for _, scheme := range bindingSchemes {
			named = named || strings.Contains(strings.ToLower(line), scheme)
		}
		if BindsConnection("Basic x", line) && !named {
			t.Errorf("a scheme is found in %q", line)
		}
	})
}

// testOrigin is an origin whose connections a test reads and writes itself.
type testOrigin struct {
	*testing.T
	ctx      context.Context
	pool     *Pool
	target   Target
	accepted chan net.Conn
	all      []net.Conn     // that were accepted
	scripts  sync.WaitGroup // what the origin does
}

// newTestOrigin starts an origin on loopback. wrap, if it is not nil, wraps the connections of the pool.
func newTestOrigin(t *testing.T, wrap func(*net.TCPConn) net.Conn) *testOrigin {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	s, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	o := &testOrigin{T: t, ctx: ctx, accepted: make(chan net.Conn, 8), target: Target{URL: &url.URL{Scheme: "http", Host: s.Addr().String(), Path: "/"}}}
	_, roots := testCertificate()
	o.pool = New(Config{Guard: egress.New(egress.Policy{Unrestricted: true}), RootCAs: roots,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialSmall(ctx, network, address)
			if tcp, ok := c.(*net.TCPConn); ok && wrap != nil {
				return wrap(tcp), err
			}
			return c, err
		}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := s.Accept()
			if err != nil {
				close(o.accepted)
				return
			}
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(16 << 10)
			}
			o.all = append(o.all, c)
			o.accepted <- c
		}
	}()
	t.Cleanup(func() {
		o.pool.Close()
		_ = s.Close()
		<-done
		for _, c := range o.all {
			_ = c.Close()
		}
		o.scripts.Wait()
		o.pool.mu.Lock()
		defer o.pool.mu.Unlock()
		if n := len(o.pool.hosts); n != 0 {
			t.Errorf("the closed pool lists %d origins", n)
		}
	})
	return o
}

// encrypt makes the pool use TLS, to the origin, or to a proxy that the test plays.
func (o *testOrigin) encrypt(on, proxied bool) {
	switch {
	case on && proxied:
		proxy := &url.URL{Scheme: "https", Host: o.target.URL.Host}
		o.pool.config.Proxy = func(*url.URL) *url.URL { return proxy }
	case on:
		o.target.URL.Scheme = "https"
	}
}

// accept returns the next connection with a reader. It is closed when the test ends, or already if none
// comes until then.
func (o *testOrigin) accept() (net.Conn, *bufio.Reader) {
	c, ok := <-o.accepted
	if !ok {
		c, _ = net.Pipe()
		_ = c.Close()
	}
	return c, bufio.NewReader(c)
}

// readHead reads the head of a request.
func readHead(in *bufio.Reader) {
	for {
		if line, err := in.ReadString('\n'); err != nil || line == "\r\n" {
			return
		}
	}
}

// open returns a connected exchange that is not over before the test.
func (o *testOrigin) open(s Settings) *Exchange {
	o.Helper()
	x := o.pool.NewExchange(o.ctx, new(timers.Clock), s)
	o.Cleanup(x.End)
	must.Succeed(o, x.Connect(o.target))
	return x
}

// NewExchange returns an exchange that has begun.
func (p *Pool) NewExchange(ctx context.Context, clock *timers.Clock, settings Settings) *Exchange {
	x := new(Exchange)
	p.Begin(x, ctx, clock, settings)
	return x
}
