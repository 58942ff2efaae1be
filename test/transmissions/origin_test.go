package transmissions

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"fetchd/test/rig"
	"fetchd/test/selfsigned"
)

// until waits for a condition, and fails the test if it does not come true.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	rig.Until(ctx, t, what, done)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// certificate returns a certificate for 127.0.0.1, and the pool that trusts it.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	pair, certPEM, _, err := selfsigned.New()
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return pair, roots
})

// pingAnswer is the path under which the log has the client's answers to PING.
const pingAnswer = "PING"

// request is a request that an origin has read with its body.
type request struct {
	method, path string
	protocol     int    // 1 or 2
	connection   int    // numbers the connections of the origin from 1
	place        int    // numbers the requests of the connection from 1
	turn         int    // numbers the requests for the path from 1
	stream       uint32 // 0 over HTTP/1.1
}

// script answers requests. Its functions run on the goroutine that reads the connection, and report
// whether to keep the connection. A nil HTTP2 makes an origin of HTTP/1.1.
type script struct {
	http1 func(net.Conn, request) bool
	http2 func(*frames, request) bool

	// secure configures TLS. Nil means plain TCP; HTTP/2 always has TLS.
	secure   *tls.Config
	settings []http2.Setting
	// refused is called with the TCP connection after a failed TLS handshake. Nil: it is closed.
	refused func(net.Conn) bool
	// idle returns how long the origin keeps an idle connection of HTTP/1.1. Nil: for ever.
	idle func() time.Duration
}

// origin runs a script on loopback, and records what it receives.
type origin struct {
	script
	url string

	mu       sync.Mutex
	log      []request
	turns    map[string]int
	accepted int
	open     map[net.Conn]int // number of each open connection
	closed   bool
	ended    sync.WaitGroup
}

// start serves the script until the test ends.
func start(t testing.TB, s script) *origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.http2 != nil && s.secure == nil {
		s.secure = new(tls.Config)
	}
	o := &origin{script: s, url: "http://" + l.Addr().String(), turns: make(map[string]int), open: make(map[net.Conn]int)}
	if s.secure != nil {
		o.url = "https://" + l.Addr().String()
		o.secure = s.secure.Clone()
		pair, _ := certificate()
		o.secure.Certificates, o.secure.NextProtos = []tls.Certificate{pair}, []string{"http/1.1"}
		if s.http2 != nil {
			o.secure.NextProtos = []string{"h2", "http/1.1"}
		}
	}
	o.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.ended.Go(func() { o.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		o.mu.Lock()
		o.closed = true
		for c := range o.open {
			_ = c.Close()
		}
		o.mu.Unlock()
		o.ended.Wait()
	})
	return o
}

// serve serves one connection.
func (o *origin) serve(c net.Conn) {
	defer c.Close()
	number := o.add(c)
	defer o.remove(c)
	if number == 0 {
		return
	}
	if o.secure == nil {
		o.serveHTTP1(c, number)
		return
	}
	secure := tls.Server(c, o.secure)
	if secure.Handshake() != nil {
		if o.refused != nil {
			o.refused(c)
		}
		return
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		o.serveHTTP2(secure, number)
	} else {
		o.serveHTTP1(secure, number)
	}
	_ = secure.Close() // says close_notify, unless the script has closed the connection
}

// add returns 0 if the origin is closed.
func (o *origin) add(c net.Conn) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0
	}
	o.accepted++
	o.open[c] = o.accepted
	return o.accepted
}

func (o *origin) remove(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, c)
}

// record adds a request to the log and fills in its turn.
func (o *origin) record(r request) request {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns[r.path]++
	r.turn = o.turns[r.path]
	o.log = append(o.log, r)
	return r
}

// requests returns the requests for a path, in the order in which they arrived.
func (o *origin) requests(path string) (all []request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.log {
		if r.path == path {
			all = append(all, r)
		}
	}
	return all
}

// connections returns the number of connections that were accepted.
func (o *origin) connections() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.accepted
}

// received returns the number of all requests.
func (o *origin) received() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.log)
}

// isOpen reports whether the connection with that number is open.
func (o *origin) isOpen(number int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.open {
		if n == number {
			return true
		}
	}
	return false
}

func (o *origin) serveHTTP1(c net.Conn, number int) {
	in := bufio.NewReader(c)
	for place := 1; ; place++ {
		if o.idle != nil && place > 1 {
			_ = c.SetReadDeadline(time.Now().Add(o.idle()))
			if _, err := in.Peek(1); err != nil {
				return
			}
			_ = c.SetReadDeadline(time.Time{})
		}
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if !o.http1(c, o.record(request{method: r.Method, path: r.URL.Path, protocol: 1, connection: number, place: place})) {
			return
		}
	}
}

// frames is a connection of HTTP/2. Only its reader uses the methods of Framer that read.
type frames struct {
	net.Conn
	*http2.Framer
	// writing is held while frames are written. The methods of frames take it; functions that call
	// Framer themselves take it too if other goroutines write.
	writing sync.Mutex
	block   bytes.Buffer // output of encoder
	encoder *hpack.Encoder
	silent  bool // no PING is answered; of the reader
}

func (o *origin) serveHTTP2(c net.Conn, number int) {
	in := bufio.NewReader(c)
	if _, err := in.Discard(len(http2.ClientPreface)); err != nil {
		return
	}
	f := &frames{Conn: c, Framer: http2.NewFramer(c, in)}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.encoder = hpack.NewEncoder(&f.block)
	if f.write(func() error { return f.WriteSettings(o.settings...) }) != nil {
		return
	}
	bodies := make(map[uint32]request) // whose body is being read
	for place := 1; ; {
		frame, err := f.ReadFrame()
		if _, only := errors.AsType[http2.StreamError](err); only {
			continue
		}
		if err != nil {
			return
		}
		var whole request
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.write(f.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if frame.IsAck() {
				o.record(request{path: pingAnswer, connection: number})
			} else if !f.silent {
				err = f.write(func() error { return f.WritePing(true, frame.Data) })
			}
		case *http2.MetaHeadersFrame:
			r := request{method: frame.PseudoValue("method"), path: frame.PseudoValue("path"), protocol: 2,
				connection: number, place: place, stream: frame.StreamID}
			place++
			if bodies[r.stream] = r; frame.StreamEnded() {
				whole = r
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				whole = bodies[frame.StreamID]
			}
		case *http2.RSTStreamFrame:
			delete(bodies, frame.StreamID)
		}
		if err != nil {
			return
		}
		if whole.stream == 0 {
			continue
		}
		delete(bodies, whole.stream)
		if !o.http2(f, o.record(whole)) {
			return
		}
	}
}

// write calls frames to write frames. No other goroutine writes in between.
func (f *frames) write(frames func() error) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return frames()
}

// head writes the HEADERS frame of a response.
func (f *frames) head(stream uint32, end bool, status string) error {
	return f.write(func() error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.encode(":status", status), EndHeaders: true, EndStream: end})
	})
}

// encode returns a header block. The caller holds writing until it has written the block.
func (f *frames) encode(pairs ...string) []byte {
	f.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) // into memory
	}
	return f.block.Bytes()
}

// reset closes a connection with a TCP reset.
func reset(c net.Conn) {
	if f, ok := c.(*frames); ok {
		c = f.Conn
	}
	if s, ok := c.(*tls.Conn); ok {
		c = s.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// answering returns a script of HTTP/1.1 or HTTP/2 that answers every request.
func answering(protocol int) script {
	if protocol == 2 {
		return script{http1: answer1, http2: answer2}
	}
	return script{http1: answer1}
}

// answer1 and answer2 answer a request with its path as the body, and keep the connection.
func answer1(c net.Conn, r request) bool {
	return say(c, body(r, r.path))
}

func answer2(f *frames, r request) bool {
	if r.method == http.MethodHead {
		return f.head(r.stream, true, "200") == nil
	}
	return f.head(r.stream, false, "200") == nil &&
		f.write(func() error { return f.WriteData(r.stream, true, []byte(r.path)) }) == nil
}

// body returns a 200 of HTTP/1.1 with that body, which a HEAD does not get.
func body(r request, text string) string {
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " + strconv.Itoa(len(text)) + "\r\n\r\n"
	if r.method == http.MethodHead {
		return head
	}
	return head + text
}

// say writes text, and reports whether it could.
func say(c net.Conn, text string) bool {
	_, err := io.WriteString(c, text)
	return err == nil
}
