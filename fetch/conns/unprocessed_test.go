package conns_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
	"fetchd/internal/budget"
	"fetchd/test/must"
)

// refuser is an origin that speaks HTTP/2 and refuses a stream of its first connection.
type refuser struct {
	net.Listener
	stream uint32 // the others get 200
	refuse func(*http2.Framer) error
}

func (r *refuser) run() {
	for first := true; ; first = false {
		c, err := r.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
			f := http2.NewFramer(bytewise{c}, c)
			for err := f.WriteSettings(); err == nil; {
				var in http2.Frame
				if in, err = f.ReadFrame(); err != nil || !in.Header().Flags.Has(http2.FlagHeadersEndStream) || in.Header().StreamID == 0 {
					continue
				}
				if id := in.Header().StreamID; first && id == r.stream {
					err = r.refuse(f)
				} else {
					err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(":status", "200"), EndStream: true, EndHeaders: true})
				}
			}
		}()
	}
}

// bytewise writes each byte in a separate TLS record.
type bytewise struct{ net.Conn }

func (b bytewise) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := b.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func reset(stream uint32, code http2.ErrCode) func(*http2.Framer) error {
	return func(f *http2.Framer) error { return f.WriteRSTStream(stream, code) }
}

// goAway returns a function that writes a GOAWAY for each last stream.
func goAway(code http2.ErrCode, last ...uint32) func(*http2.Framer) error {
	return func(f *http2.Framer) error {
		for _, last := range last {
			if err := f.WriteGoAway(last, code, []byte("why")); err != nil {
				return err
			}
		}
		return nil
	}
}

// then returns a function that writes frames and closes the connection, or writes more.
func then(first func(*http2.Framer) error, next func(*http2.Framer) error) func(*http2.Framer) error {
	return func(f *http2.Framer) error {
		if err := first(f); err != nil || next == nil {
			return io.EOF
		}
		return next(f)
	}
}

// TestRefused checks which requests an HTTP/2 origin has not processed (RFC 9113 §6.8, §8.7).
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		stream uint32
		refuse func(*http2.Framer) error
		want   bool
	}{
		{"refused", 1, reset(1, http2.ErrCodeRefusedStream), true},
		{"refused on a kept connection", 3, reset(3, http2.ErrCodeRefusedStream), true},
		{"reset otherwise", 1, reset(1, http2.ErrCodeCancel), false},
		{"refused after a 103", 1, then(fields(":status", "103"), reset(1, http2.ErrCodeRefusedStream)), false},
		{"graceful GOAWAY below the first stream", 1, goAway(http2.ErrCodeNo, 0), true},
		{"GOAWAY with an error below the first stream", 1, goAway(http2.ErrCodeEnhanceYourCalm, 0), true},
		{"graceful GOAWAY below a later stream", 3, goAway(http2.ErrCodeNo, 1), true},
		{"GOAWAY with an error below a later stream", 3, goAway(http2.ErrCodeInternal, 1), true},
		{"GOAWAY in two steps", 3, goAway(http2.ErrCodeNo, 1<<31-1, 1), true},
		{"GOAWAY, then the end", 3, then(goAway(http2.ErrCodeNo, 1), nil), true},
		{"GOAWAY that grows, then the end", 3, then(goAway(http2.ErrCodeNo, 1, 3), nil), true},
		{"GOAWAY at the stream, then the end", 3, then(goAway(http2.ErrCodeNo, 3), nil), false},
		{"GOAWAY above the stream, then the end", 3, then(goAway(http2.ErrCodeNo, 1<<31-1), nil), false},
		{"GOAWAY after a 103", 1, then(fields(":status", "103"), goAway(http2.ErrCodeNo, 0)), false},
		{"a GOAWAY that is too short", 1, func(f *http2.Framer) error { return f.WriteRawFrame(http2.FrameGoAway, 0, 0, []byte{0, 0}) }, false},
		{"the end", 3, func(*http2.Framer) error { return io.EOF }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l, roots := certified(t)
			go (&refuser{l, row.stream, row.refuse}).run()
			p := conns.New(conns.Config{Guard: egress.New(egress.Policy{Unrestricted: true}), Resolver: net.DefaultResolver, RootCAs: roots})
			t.Cleanup(func() { p.Close(); _ = l.Close() })
			b := &bench{T: t, pool: p, target: conns.Target{URL: &url.URL{Scheme: "https", Host: l.Addr().String(), Path: "/"}}}
			for range row.stream / 2 {
				b.answer(b.target)
			}
			lease := budget.New(1 << 30).Lease("a")
			x := b.connect(lease)
			_, err := x.RoundTrip(b.put(0))
			class := x.ClassOf(x.Phase(), err)
			x.End()
			if err == nil || x.Unprocessed() != row.want || x.Report().Sent == row.want || (x.RequestState() == classify.NotProcessed) != row.want || lease.Total() != 0 {
				t.Errorf("%v, unprocessed %t, sent %t, %d bytes charged; want unprocessed %t", err, x.Unprocessed(), x.Report().Sent, lease.Total(), row.want)
			}
			if row.want && class != classify.ConnectionReset {
				t.Errorf("%v: class %s", err, class)
			}
			b.target.Fresh = true
			if _, report := b.answer(b.target); report.Reused {
				t.Error("the next request got a kept connection")
			}
			if x.Cancel(context.Canceled); x.Unprocessed() {
				t.Error("a request that was cancelled would go again")
			}
		})
	}
}

// certified starts a listener for HTTP/2.
func certified(t *testing.T) (net.Listener, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	s.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return tls.NewListener(plain, &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2"}}), roots
}

// connect begins an exchange.
func (b *bench) connect(m *budget.Lease) *conns.Exchange {
	b.Helper()
	x := b.pool.NewExchange(b.Context(), new(timers.Clock), conns.Settings{Memory: m})
	must.Succeed(b.T, x.Connect(b.target))
	return x
}

// put returns a request whose body has n bytes.
func (b *bench) put(n int) *http.Request {
	req := &http.Request{Method: http.MethodPut, URL: b.target.URL, Host: b.target.URL.Host, Header: http.Header{}}
	if n > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, n))), int64(n)
	}
	return req
}

// breaking is a connection that fails each write, and closes, while broken is set.
type breaking struct {
	net.Conn
	broken *atomic.Bool
	n      int // bytes that the failed write has written
}

func (c breaking) Write(p []byte) (int, error) {
	if !c.broken.Load() {
		return c.Conn.Write(p)
	}
	n := 0
	if c.n > 0 {
		n, _ = c.Conn.Write(p[:c.n])
	}
	_ = c.Conn.Close()
	return n, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

// TestGoneBeforeSent checks that a request of which the connection has taken no byte, or no whole TLS record, was
// not processed: over each protocol, new or kept, with and without a body.
func TestGoneBeforeSent(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		tls, h2   bool
		asks      tls.ClientAuthType
		body, n   int
		new, kept bool // the wants
	}{
		{name: "HTTP/1.1", new: true, kept: true},
		{name: "HTTP/1.1, a body", body: 100, new: true, kept: true},
		{name: "HTTP/1.1, a long body", body: 1 << 20, new: true, kept: true},
		{name: "HTTP/1.1, one byte", n: 1},
		{name: "HTTP/1.1, one byte and a long body", n: 1, body: 1 << 20},
		{name: "HTTP/1.1 over TLS", tls: true, n: 1, new: true, kept: true},
		{name: "HTTP/1.1 over TLS, a long body", tls: true, n: 1, body: 1 << 20, new: true, kept: true},
		{name: "HTTP/1.1, without a client certificate", tls: true, asks: tls.RequestClientCert, kept: true},
		{name: "HTTP/2", tls: true, h2: true, n: 1, new: true, kept: true},
		{name: "HTTP/2, a long body", tls: true, h2: true, body: 1 << 20, new: true, kept: true},
		{name: "HTTP/2, without a client certificate", tls: true, h2: true, asks: tls.RequestClientCert, kept: true},
	} {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept %t", row.name, kept), func(t *testing.T) {
				t.Parallel()
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
				srv.EnableHTTP2, srv.TLS = row.h2, &tls.Config{ClientAuth: row.asks}
				start, roots := srv.Start, x509.NewCertPool()
				if row.tls {
					start = srv.StartTLS
				}
				start()
				t.Cleanup(srv.Close)
				if row.tls {
					roots.AddCert(srv.Certificate())
				}
				var broken atomic.Bool
				p := conns.New(conns.Config{Guard: egress.New(egress.Policy{Unrestricted: true}), RootCAs: roots,
					Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
						c, err := new(net.Dialer).DialContext(ctx, network, address)
						return breaking{c, &broken, row.n}, err
					}})
				t.Cleanup(p.Close)
				u, _ := url.Parse(srv.URL)
				b := &bench{T: t, pool: p, target: conns.Target{URL: u}}
				if kept {
					b.answer(b.target)
				}
				lease := budget.New(1 << 30).Lease("a")
				x := b.connect(lease)
				broken.Store(true)
				_, err := x.RoundTrip(b.put(row.body))
				x.End()
				want := kept && row.kept || !kept && row.new
				if err == nil || x.Unprocessed() != want || (x.RequestState() == classify.NotSent) != want || x.Report().Reused != kept || lease.Total() != 0 {
					t.Errorf("%v, unprocessed %t, reused %t, %d bytes charged; want unprocessed %t", err, x.Unprocessed(), x.Report().Reused, lease.Total(), want)
				}
				if s := p.Stats(); s.Idle != 0 {
					t.Errorf("%d connections are kept", s.Idle)
				}
			})
		}
	}
}

// late is a connection from which nothing is read, once it is held, before a write fails.
type late struct {
	net.Conn
	held, broken atomic.Bool
	failed       chan struct{}
}

func (l *late) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.held.Load() {
		<-l.failed
	}
	return n, err
}

func (l *late) Write(p []byte) (int, error) {
	if !l.broken.Load() {
		return l.Conn.Write(p)
	}
	select {
	case <-l.failed:
	default:
		close(l.failed)
	}
	return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
}

// TestAnsweredBeforeTheEnd checks that a response that was received counts, although the connection ends and the
// next request cannot be written.
func TestAnsweredBeforeTheEnd(t *testing.T) {
	t.Parallel()
	l, roots := certified(t)
	answered := make(chan struct{})
	go (&refuser{l, 3, func(f *http2.Framer) error {
		defer close(answered)
		return then(func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block(":status", "200"), EndStream: true, EndHeaders: true})
		}, nil)(f)
	}}).run()
	c := &late{failed: make(chan struct{})}
	p := conns.New(conns.Config{Guard: egress.New(egress.Policy{Unrestricted: true}), RootCAs: roots,
		Dial: func(ctx context.Context, network, address string) (_ net.Conn, err error) {
			c.Conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return c, err
		}})
	t.Cleanup(func() { p.Close(); _ = l.Close() })
	b := &bench{T: t, pool: p, target: conns.Target{URL: &url.URL{Scheme: "https", Host: l.Addr().String(), Path: "/"}}}
	b.answer(b.target)
	first, second := b.connect(nil), b.connect(nil)
	c.held.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := first.RoundTrip(b.put(0))
		done <- err
	}()
	<-answered
	c.broken.Store(true)
	if _, err := second.RoundTrip(b.put(0)); err == nil || !second.Unprocessed() || second.Report().Sent {
		t.Errorf("the second request: %v, unprocessed %t, sent %t", err, second.Unprocessed(), second.Report().Sent)
	}
	if err := <-done; err != nil {
		t.Errorf("the first request was answered, and failed: %v", err)
	}
	first.End()
	second.End()
}

// slow is a connection whose writes return late, once it is held.
type slow struct {
	net.Conn
	held           atomic.Bool
	wrote, release chan struct{}
}

func (s *slow) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if s.held.Swap(false) {
		close(s.wrote)
		<-s.release
	}
	return n, err
}

// TestCancelledWhileWritten checks that a request counts as sent if it was cancelled when its headers were written, but
// before HTTP/2 says so.
func TestCancelledWhileWritten(t *testing.T) {
	t.Parallel()
	l, roots := certified(t)
	go (&refuser{Listener: l}).run()
	c := &slow{wrote: make(chan struct{}), release: make(chan struct{})}
	p := conns.New(conns.Config{Guard: egress.New(egress.Policy{Unrestricted: true}), RootCAs: roots,
		Dial: func(ctx context.Context, network, address string) (_ net.Conn, err error) {
			c.Conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return c, err
		}})
	t.Cleanup(func() { p.Close(); _ = l.Close() })
	b := &bench{T: t, pool: p, target: conns.Target{URL: &url.URL{Scheme: "https", Host: l.Addr().String(), Path: "/"}}}
	b.answer(b.target)
	x := b.connect(nil)
	go func() {
		<-c.wrote
		x.Cancel(context.Canceled)
	}()
	c.held.Store(true)
	_, err := x.RoundTrip(b.put(0))
	close(c.release)
	if err == nil || !x.Report().Sent || x.RequestState() != classify.Unknown {
		t.Errorf("%v, sent %t, %s", err, x.Report().Sent, x.RequestState())
	}
	x.End()
}
