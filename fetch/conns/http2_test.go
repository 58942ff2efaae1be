package conns_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/timers"
	"fetchd/test/must"
	"fetchd/test/wait"
)

// freezer is a listener whose connections can fall silent.
type freezer struct {
	net.Listener
	frozen atomic.Bool
	ended  chan struct{}
}

func (f *freezer) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	return &freezing{c, f}, err
}

// freezing is a connection that neither reads nor writes once its listener is frozen.
type freezing struct {
	net.Conn
	of *freezer
}

func (c *freezing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.of.frozen.Load() {
		<-c.of.ended
	}
	return n, err
}

func (c *freezing) Write(p []byte) (int, error) {
	if c.of.frozen.Load() {
		<-c.of.ended
	}
	return c.Conn.Write(p)
}

// newHTTP2Bench starts an origin that speaks HTTP/2 on l.
func newHTTP2Bench(t *testing.T, l net.Listener, h http.Handler) *bench {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	if l != nil {
		_ = srv.Listener.Close()
		srv.Listener = l
	}
	srv.StartTLS()
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	u, _ := url.Parse(srv.URL)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	p := conns.New(conns.Config{
		Guard:    egress.New(egress.Policy{Unrestricted: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}),
		Resolver: net.DefaultResolver,
		RootCAs:  roots,
	})
	t.Cleanup(p.Close)
	return &bench{T: t, pool: p, target: conns.Target{URL: u}}
}

// TestSilentConnection checks that an HTTP/2 connection takes no further request after one
// timed out on it and nothing was received since.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		body     int
		limit    time.Duration // of the exchange
		deadline time.Duration // of its caller
		cancel   time.Duration // when its caller gives it up
		reused   bool
	}{
		{name: "after the limit for the head", limit: 200 * time.Millisecond},
		{name: "after the limit for sending", body: 8 << 20, limit: 200 * time.Millisecond},
		{name: "after the deadline of the caller", deadline: 200 * time.Millisecond},
		{name: "not after a cancellation", cancel: 200 * time.Millisecond, reused: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must.Succeed(t, err)
			f := &freezer{Listener: l, ended: make(chan struct{})}
			b := newHTTP2Bench(t, f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			t.Cleanup(func() { close(f.ended) })
			b.answer(b.target)
			f.frozen.Store(true)
			ctx := t.Context()
			if row.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.deadline)
				defer cancel()
			}
			x := b.pool.NewExchange(ctx, new(timers.Clock), conns.Settings{HeaderTimeout: row.limit})
			if err := x.Connect(b.target); err != nil || !x.Report().Reused {
				t.Fatalf("%v, reused: %t", err, x.Report().Reused)
			}
			if row.cancel > 0 {
				time.AfterFunc(row.cancel, func() { x.Cancel(context.Canceled) })
			}
			req := &http.Request{Method: http.MethodPut, URL: b.target.URL, Host: b.target.URL.Host, Header: http.Header{},
				Body: io.NopCloser(bytes.NewReader(make([]byte, row.body))), ContentLength: int64(row.body)}
			if _, err := x.RoundTrip(req); err == nil {
				t.Fatal("a silent origin has answered")
			}
			x.End()
			f.frozen.Store(false)
			x = b.pool.NewExchange(t.Context(), new(timers.Clock), conns.Settings{})
			defer x.End()
			if err := x.Connect(b.target); err != nil || x.Report().Reused != row.reused {
				t.Errorf("%v, reused: %t, want %t", err, x.Report().Reused, row.reused)
			}
		})
	}
}

// TestSmallFrames checks that an origin may fill the window of a stream byte by byte while the
// caller reads nothing.
func TestSmallFrames(t *testing.T) {
	t.Parallel()
	b := newHTTP2Bench(t, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range conns.WindowBytes {
			_, _ = w.Write([]byte{'x'})
			_ = http.NewResponseController(w).Flush()
		}
	}))
	x, resp, err := b.send(t.Context(), b.target)
	defer x.End()
	must.Succeed(t, err)
	// Without a call of Permit all bytes count as received at once.
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != conns.WindowBytes {
		t.Errorf("%d bytes, %v, want %d", n, err, conns.WindowBytes)
	}
}

// counted is a connection that counts what is read from it.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// flood is an origin that speaks HTTP/2 and sends frames without end after a response, or in its place.
type flood struct {
	endStream bool // the head ends the stream; else the client does
	headless  bool // there is no head
	record    int  // bytes of a TLS record; 0: that of a frame
	frame     func(*http2.Framer) error

	release chan struct{} // the flood may begin
	sent    atomic.Int64  // frames
	over    chan error    // why the flood ended
}

func (f *flood) serve(l net.Listener) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	out := bufio.NewWriterSize(c, max(f.record, 16))
	var to io.Writer = c
	if f.record > 0 {
		to = out
	}
	framer := http2.NewFramer(to, c)
	_ = framer.WriteSettings()
	_ = out.Flush()
	for {
		in, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if _, ok := in.(*http2.HeadersFrame); ok {
			break
		}
	}
	if !f.headless {
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":status", "200"), EndStream: f.endStream, EndHeaders: true})
		_ = out.Flush()
	}
	<-f.release
	go func() { _, _ = io.Copy(io.Discard, c) }() // until the connection ends
	for {
		if err := f.frame(framer); err != nil {
			f.over <- err
			return
		}
		f.sent.Add(1)
	}
}

// block returns a header block of one field.
func block(name, value string) []byte {
	var b bytes.Buffer
	_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: name, Value: value}) // into memory
	return b.Bytes()
}

// fields returns a function that writes a header block of one field.
func fields(name, value string) func(*http2.Framer) error {
	return func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(name, value), EndHeaders: true})
	}
}

// continued returns a function that writes a header block without end.
func continued() func(*http2.Framer) error {
	begun := false
	return func(f *http2.Framer) error {
		if !begun {
			begun = true
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(":status", "200")})
		}
		return f.WriteContinuation(1, false, block("a", strings.Repeat("b", 100)))
	}
}

// TestFloodAfterOutcome checks that an HTTP/2 origin that goes on after the response is cut off: at
// most 256 KiB are read of frames that belong to no request, whatever is in them (spec I6).
func TestFloodAfterOutcome(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	empty := func(f *http2.Framer) error { return f.WriteData(1, false, nil) }
	for _, row := range []struct {
		name      string
		endStream bool
		record    int
		frame     func(*http2.Framer) error
	}{
		{"empty DATA after the end of the stream", true, 0, empty},
		{"empty DATA after a reset", false, 0, empty},
		{"empty DATA in large records", false, 16 << 10, empty},
		{"DATA of one byte", false, 0, func(f *http2.Framer) error { return f.WriteData(1, false, []byte{1}) }},
		{"DATA", false, 0, func(f *http2.Framer) error { return f.WriteData(1, false, make([]byte, 8<<10)) }},
		{"DATA after the end of the stream", true, 0, func(f *http2.Framer) error { return f.WriteData(1, false, make([]byte, 8<<10)) }},
		{"DATA of padding alone", false, 0, func(f *http2.Framer) error { return f.WriteDataPadded(1, false, nil, make([]byte, 255)) }},
		{"103 in place of a response", false, 0, fields(":status", "103")},
		{"103 after the end of the stream", true, 0, fields(":status", "103")},
		{"trailers", false, 0, fields("a", "b")},
		{"CONTINUATION in place of a response", false, 0, continued()},
		{"SETTINGS", true, 0, func(f *http2.Framer) error { return f.WriteSettings() }},
		{"answers to SETTINGS", true, 0, (*http2.Framer).WriteSettingsAck},
		{"PING", true, 0, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }},
		{"answers to PING", true, 0, func(f *http2.Framer) error { return f.WritePing(true, [8]byte{}) }},
		{"WINDOW_UPDATE of the connection", true, 0, func(f *http2.Framer) error { return f.WriteWindowUpdate(0, 1) }},
		{"WINDOW_UPDATE of the stream", false, 0, func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1) }},
		{"RST_STREAM", false, 0, func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeNo) }},
		{"PRIORITY", true, 0, func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{Weight: 1}) }},
		{"frames of an unknown type", true, 0, func(f *http2.Framer) error { return f.WriteRawFrame(0xbe, 0, 1, make([]byte, 100)) }},
		{"GOAWAY", true, 0, func(f *http2.Framer) error { return f.WriteGoAway(1, http2.ErrCodeNo, nil) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := &flood{endStream: row.endStream, headless: strings.Contains(row.name, "in place of"), record: row.record, frame: row.frame,
				release: make(chan struct{}), over: make(chan error, 1)}
			if f.headless {
				close(f.release)
			}
			var read atomic.Int64
			b := newFloodBench(t, f, &read)
			x, resp, err := b.send(t.Context(), b.target)
			if (err != nil) != f.headless {
				t.Fatal(err)
			}
			if row.endStream {
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Error(err)
				}
			}
			x.End()
			before := read.Load() // a slow machine may have read much of a flood before the outcome
			if !f.headless {
				close(f.release)
			}
			if err := <-f.over; err == nil {
				t.Error("the flood ended by itself")
			}
			must.Succeed(t, wait.Until(t.Context(), time.Millisecond, func() bool { return b.pool.Stats().Open == 0 }))
			// One read may exceed the limit, and crypto/tls reads what is buffered.
			if got := read.Load() - before; got > limit+32<<10 {
				t.Errorf("%d bytes, of %d frames that were sent, were read after the outcome; want at most %d", got, f.sent.Load(), limit)
			}
		})
	}
}

// TestFloodUnderRequest checks that an HTTP/2 origin that sends frames without end under a request breaks
// the protocol, whatever is in them: before the head of the response and in its body (spec I6, N10).
func TestFloodUnderRequest(t *testing.T) {
	t.Parallel()
	const unrequested = "unrequested_data"
	for _, row := range []struct {
		name   string
		inBody bool
		frame  func(*http2.Framer) error
		reason string // of PROTOCOL; "-": the error of HTTP/2 decides
	}{
		{"empty DATA before the head", false, func(f *http2.Framer) error { return f.WriteData(1, false, nil) }, "-"},
		{"empty DATA", true, func(f *http2.Framer) error { return f.WriteData(1, false, nil) }, unrequested},
		{"DATA of padding alone", true, func(f *http2.Framer) error { return f.WriteDataPadded(1, false, nil, make([]byte, 255)) }, unrequested},
		{"DATA for another stream", false, func(f *http2.Framer) error { return f.WriteData(3, false, make([]byte, 100)) }, "-"},
		{"103", false, fields(":status", "103"), "too_many_informational_responses"},
		{"103 in the body", true, fields(":status", "103"), "-"},
		{"CONTINUATION", false, continued(), "-"},
		{"SETTINGS", false, func(f *http2.Framer) error { return f.WriteSettings() }, unrequested},
		{"SETTINGS that change", true, settings(), unrequested},
		{"PING", false, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, unrequested},
		{"PING in the body", true, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, unrequested},
		{"answers to PING", true, func(f *http2.Framer) error { return f.WritePing(true, [8]byte{}) }, unrequested},
		{"WINDOW_UPDATE of the connection", false, func(f *http2.Framer) error { return f.WriteWindowUpdate(0, 1) }, unrequested},
		{"WINDOW_UPDATE of the stream", true, func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1) }, unrequested},
		{"RST_STREAM of another stream", false, func(f *http2.Framer) error { return f.WriteRSTStream(3, http2.ErrCodeNo) }, unrequested},
		{"frames of an unknown type", false, func(f *http2.Framer) error { return f.WriteRawFrame(0xbe, 0, 1, make([]byte, 16<<10)) }, unrequested},
		{"frames of an unknown type in the body", true, func(f *http2.Framer) error { return f.WriteRawFrame(0xbe, 0, 1, make([]byte, 16<<10)) }, unrequested},
		{"GOAWAY", true, func(f *http2.Framer) error { return f.WriteGoAway(1, http2.ErrCodeNo, make([]byte, 1000)) }, unrequested},
		{"frames that are too large", false, func(f *http2.Framer) error { return f.WriteRawFrame(0, 0, 1, make([]byte, 1<<20)) }, "-"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := &flood{headless: !row.inBody, frame: row.frame, record: 64 << 10, release: make(chan struct{}), over: make(chan error, 1)}
			close(f.release)
			var read atomic.Int64
			b := newFloodBench(t, f, &read)
			x, resp, err := b.send(t.Context(), b.target)
			defer x.End()
			phase, class := x.Phase(), classify.Protocol
			if row.inBody {
				must.Succeed(t, err)
				_, err = io.ReadAll(resp.Body)
				phase = classify.PhaseTransfer
			}
			if row.inBody && row.reason == "-" {
				class = classify.BodyInterrupted
			}
			err = cmp.Or(x.Cause(), err)
			if got := x.ClassOf(phase, err); got != class {
				t.Errorf("%v: %s, want %s", err, got, class)
			}
			if got := fault.ReasonOf(err); row.reason != "-" && got != row.reason {
				t.Errorf("%v: reason %q, want %q", err, got, row.reason)
			}
			x.End()
			if err := <-f.over; err == nil {
				t.Error("the flood ended by itself")
			}
		})
	}
}

// settings returns a function that writes SETTINGS which change the windows of streams.
func settings() func(*http2.Framer) error {
	n := uint32(0)
	return func(f *http2.Framer) error {
		n++
		return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n % 65536}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: n})
	}
}

// TestWindowOverflow checks that an HTTP/2 origin that makes the window of a stream larger than 2^31-1
// ends that exchange and no other (RFC 9113 §6.9.1). Before Go 1.26.9 the connection of net/http locked
// itself, and with it every fetch that looked for a connection: this test would not end.
func TestWindowOverflow(t *testing.T) {
	t.Parallel()
	f := &flood{frame: func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1<<31-1) },
		release: make(chan struct{}), over: make(chan error, 1)}
	var read atomic.Int64
	b := newFloodBench(t, f, &read)
	x, resp, err := b.send(t.Context(), b.target)
	must.Succeed(t, err)
	close(f.release)
	if _, err := io.ReadAll(resp.Body); !strings.Contains(fmt.Sprint(err), "FLOW_CONTROL_ERROR") {
		t.Errorf("the body ended with %v, want a flow control error", err)
	}
	x.End()
	if err := <-f.over; err == nil {
		t.Error("the flood ended by itself")
	}
	must.Succeed(t, wait.Until(t.Context(), time.Millisecond, func() bool { return b.pool.Stats().Open == 0 }))
}

// newFloodBench starts the origin for one connection. read counts what the pool reads from it.
func newFloodBench(t *testing.T, f *flood, read *atomic.Int64) *bench {
	t.Helper()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	certified.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	l := tls.NewListener(plain, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}, DynamicRecordSizingDisabled: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.serve(l)
		_ = l.Close()
	}()
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	p := conns.New(conns.Config{
		Guard: egress.New(egress.Policy{Unrestricted: true}), Resolver: net.DefaultResolver, RootCAs: roots,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return counted{c, read}, nil
		},
	})
	t.Cleanup(func() { p.Close(); _ = l.Close(); <-done })
	return &bench{T: t, pool: p, target: conns.Target{URL: &url.URL{Scheme: "https", Host: plain.Addr().String(), Path: "/"}}}
}
