package conns

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
	"fetchd/test/must"
	"fetchd/test/wait"
)

// hang is when a test gives up waiting. No result depends on it.
const hang = 2 * time.Minute

// outcome is what a client makes of an exchange, and of the next request.
type outcome struct {
	Proto, Status    string
	Header, Trailer  http.Header
	ContentLength    int64
	TransferEncoding []string
	Close            bool
	Body             string
	Class            classify.Class // of the error; none: there was none
	InBody           bool           // the error came behind the head
	Request          string         // as the origin received it; empty: not in full
	Reused           bool           // the next request used the same connection
	Next             string         // the body of its response
}

// read fills in the outcome of an exchange. It reads the body to its end.
func (o *outcome) read(resp *http.Response, err error, classOf func(inBody bool, err error) classify.Class) {
	if err != nil {
		o.Class = classOf(false, err)
		return
	}
	o.Proto, o.Status, o.Header, o.ContentLength = resp.Proto, resp.Status, resp.Header, resp.ContentLength
	o.TransferEncoding, o.Close = resp.TransferEncoding, resp.Close
	body, err := io.ReadAll(resp.Body)
	o.Body, o.Trailer = string(body), resp.Trailer
	if err != nil {
		o.Class, o.InBody = classOf(true, err), true
	}
}

// shape is a kind of request.
type shape struct {
	name, method string
	body         int  // bytes
	alone        bool // the request says Connection: close
}

func (s shape) request(u *url.URL, path string) *http.Request {
	to := *u
	to.Path = path
	r := &http.Request{Method: s.method, URL: &to, Host: u.Host, Header: http.Header{}}
	if s.body > 0 {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", s.body))), int64(s.body)
	}
	return r
}

// ending is what an origin does when it has answered.
type ending uint8

const (
	keep  ending = iota // It reads the next request.
	shut                // It closes the connection.
	snap                // It resets the connection.
	abort               // It closes the connection without the end of TLS.
	stay                // It neither reads nor writes.
	drain               // It says that it has said all, and reads on.
)

// differential is a reply of an origin to a request, and in what Exchange differs from Transport.
type differential struct {
	name       string
	head, body string // HEAD gets only the head
	then       ending
	surplus    bool // more than the response was sent
	early      bool // the origin does not read the body of the request
	secure     bool // over TLS
	shape      shape

	// why says why Exchange differs, which is then what ours makes of the outcome of Transport.
	why  string
	ours func(*outcome)
	// either means that Transport may do one or the other.
	either bool
}

// ends reports whether the origin does something behind the response that clients notice.
func (d *differential) ends() bool { return d.surplus || d.then != keep }

// exchange runs the row with an Exchange.
func (d *differential) exchange(t testing.TB) (out outcome) {
	t.Helper()
	o := newScripted(t, d)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	_, roots := testCertificate()
	p := New(Config{Guard: egress.New(egress.Policy{Unrestricted: true}), Dial: dialSmall, RootCAs: roots})
	defer o.end()
	defer p.Close()
	x := p.NewExchange(ctx, new(timers.Clock), Settings{})
	defer x.End()
	must.Succeed(t, x.Connect(Target{URL: o.url, Alone: d.shape.alone}))
	c := x.conn
	resp, err := x.RoundTrip(d.shape.request(o.url, "/"))
	out.read(resp, err, func(inBody bool, err error) classify.Class {
		if inBody {
			return x.ClassOf(classify.PhaseTransfer, err)
		}
		return x.ClassOf(x.Phase(), err)
	})
	out.Request = o.request()
	if !d.early && x.writing != nil { // End would wait for a limited time
		until(t, ctx, "the request is written", func() bool { return len(x.writing) > 0 })
	}
	x.End()
	if p.Stats().Idle > 0 && d.ends() {
		until(t, ctx, "the connection is no longer idle", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.open.Load() == 0 || slices.Contains(slices.Collect(p.idle.All()), c) && len(waiting([]*conn{c})) > 0
		})
	}
	x = p.NewExchange(ctx, new(timers.Clock), Settings{})
	defer x.End()
	must.Succeed(t, x.Connect(Target{URL: o.url}))
	out.Reused = x.Report().Reused
	resp, err = x.RoundTrip(shape{method: http.MethodGet}.request(o.url, "/next"))
	var next outcome
	next.read(resp, err, func(bool, error) classify.Class { return x.ClassOf(x.Phase(), err) })
	out.Next = next.Body
	return out
}

func until(t testing.TB, ctx context.Context, what string, done func() bool) {
	t.Helper()
	if err := wait.Until(ctx, 100*time.Microsecond, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// watched is a connection of Transport. It records what Exchange records in its own.
type watched struct {
	net.Conn
	failed atomic.Bool // reading has ended
	close  sync.Once
	closed chan struct{} // Transport has closed it
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.failed.Store(true)
	}
	return n, err
}

func (w *watched) Close() error {
	w.close.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// newTransport returns a Transport with the limits of a Pool.
func newTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	_, roots := testCertificate()
	return &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{RootCAs: roots},
		DisableCompression:     true,
		MaxResponseHeaderBytes: MaxHeadBytes,
	}
}

// traced returns a request whose context traces when it was written. Each 1xx response gets
// its own limit of bytes, as in an Exchange.
func traced(ctx context.Context, r *http.Request, reused *bool) (*http.Request, *atomic.Bool) {
	wrote := new(atomic.Bool)
	return r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest:   func(info httptrace.WroteRequestInfo) { wrote.Store(info.Err == nil) },
		Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil },
		GotConn:        func(info httptrace.GotConnInfo) { *reused = info.Reused },
	})), wrote
}

// classOfTransport returns the class of an error of Transport, as [Exchange.ClassOf] does.
func classOfTransport(w *watched, wrote *atomic.Bool) func(inBody bool, err error) classify.Class {
	return func(inBody bool, err error) classify.Class {
		phase := classify.PhaseRequest
		switch {
		case inBody:
			phase = classify.PhaseTransfer
		case wrote.Load():
			phase = classify.PhaseProcessing
		}
		class := classify.Error(phase, err)
		if class == classify.Protocol && w.failed.Load() {
			class = classify.ConnectionReset
		}
		return class
	}
}

// transport runs the row with http.Transport.
func (d *differential) transport(t testing.TB) (out outcome) {
	t.Helper()
	o := newScripted(t, d)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	var first *watched
	tr := newTransport(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialSmall(ctx, network, address)
		w := &watched{Conn: c, closed: make(chan struct{})}
		if first == nil {
			first = w
		}
		return w, err
	})
	defer o.end()
	defer tr.CloseIdleConnections()
	r, wrote := traced(ctx, d.shape.request(o.url, "/"), new(bool))
	r.Close = d.shape.alone
	resp, err := tr.RoundTrip(r)
	out.read(resp, err, classOfTransport(first, wrote))
	if err == nil {
		_ = resp.Body.Close()
	}
	out.Request = o.request()
	if d.ends() {
		select {
		case <-first.closed:
		case <-ctx.Done():
			t.Fatal("Transport has kept the connection")
		}
	}
	r, wrote = traced(ctx, shape{method: http.MethodGet}.request(o.url, "/next"), &out.Reused)
	resp, err = tr.RoundTrip(r)
	var next outcome
	next.read(resp, err, classOfTransport(first, wrote))
	if err == nil {
		_ = resp.Body.Close()
	}
	out.Next = next.Body
	return out
}

// check asks Transport again if it differs: under load it finds a connection dead earlier or later, and it closes one
// that is still written to after 50 ms.
func (d *differential) check(t testing.TB) {
	t.Helper()
	got := d.exchange(t)
	var same bool
	var diff string
	for range 10 {
		plain := d.transport(t)
		want := plain
		if d.ours != nil {
			d.ours(&want)
		}
		same = d.ours != nil && !d.either && cmp.Equal(want, plain)
		if diff = cmp.Diff(want, got); diff == "" && !same {
			return
		}
	}
	if same {
		t.Errorf("Transport does the same, but the row says: %s", d.why)
	}
	t.Errorf("%.200q%.200q\n-want (Transport, except: %s) +got (Exchange):\n%s", d.head, d.body, d.why, diff)
}

// TestAgainstTransport compares an Exchange with http.Transport, request by request, where an origin
// keeps, bends and breaks the rules of RFC 9112. They share the parser, so what is compared is all that
// is around it: limits, the end of a response, early answers, broken connections, and reuse.
func TestAgainstTransport(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, d := range differentials() {
		name := fmt.Sprintf("%s, %s", d.shape.name, d.name)
		if d.secure {
			name += ", TLS"
		}
		if names[name] {
			t.Errorf("two rows are called %q", name)
		}
		names[name] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.check(t)
		})
	}
}

// scripted is an origin that runs the script of a row.
type scripted struct {
	*differential
	net.Listener
	url      *url.URL
	over     chan struct{} // the client has ended
	ended    sync.WaitGroup
	received atomic.Pointer[string]
}

// testCertificate returns a certificate for 127.0.0.1, and the pool that trusts it.
var testCertificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
})

func newScripted(t testing.TB, d *differential) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	o := &scripted{differential: d, Listener: l, url: &url.URL{Scheme: "http", Host: l.Addr().String()}, over: make(chan struct{})}
	if d.secure {
		o.url.Scheme = "https"
	}
	o.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if tcp, ok := c.(*net.TCPConn); ok && d.early {
				_ = tcp.SetReadBuffer(16 << 10)
			}
			o.ended.Go(func() { o.serve(c) })
		}
	})
	return o
}

// dialSmall makes a connection whose socket has room for less than a long body.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(16 << 10)
	}
	return c, err
}

// end ends the origin. The client must have closed its connections.
func (o *scripted) end() {
	close(o.over)
	_ = o.Close()
	o.ended.Wait()
}

func (o *scripted) serve(raw net.Conn) {
	defer raw.Close()
	c := raw
	if o.secure {
		certificate, _ := testCertificate()
		// Without tickets an idle connection is readable only if it is over.
		c = tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true})
	}
	var all bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &all))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.URL.Path == "/next" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")
			continue
		}
		if !o.early {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			text := strings.ReplaceAll(all.String(), o.url.Host, "origin")
			o.received.Store(&text)
		}
		if !o.answer(raw, c) {
			return
		}
	}
}

// answer reports whether the origin reads the next request.
func (o *scripted) answer(raw, c net.Conn) bool {
	text := o.head
	if o.shape.method != http.MethodHead {
		text += o.body
	}
	_, _ = io.WriteString(c, text)
	switch o.then {
	case keep:
		return true
	case shut:
		_ = c.Close()
	case snap:
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	case stay:
		<-o.over
	case drain:
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, raw)
	}
	return false
}

func (o *scripted) request() string {
	if text := o.received.Load(); text != nil {
		return *text
	}
	return ""
}
