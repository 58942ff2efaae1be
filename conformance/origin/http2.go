package origin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The defaults of RFC 9113 §6.5.2, which this server does not change for
// itself.
const (
	h2Window     = 65535
	h2FrameBytes = 16384
)

// h2conn speaks HTTP/2 frame by frame on one connection: a server that gets
// every frame right, such as net/http's, cannot be made to get one wrong.
type h2conn struct {
	origin  *Origin
	conn    *connection
	framer  *http2.Framer // read by serve alone
	handled sync.WaitGroup

	// writing is held, by sending into it, while frames are written. Not a
	// mutex: a head can drip for long, and who waits for a mutex stops the
	// clock of a synctest bubble.
	writing chan struct{}
	block   bytes.Buffer // what encoder writes; both belong to the writer
	encoder *hpack.Encoder

	mu      sync.Mutex
	streams map[uint32]*h2stream
	window  int64         // for DATA on the connection
	initial int64         // window of new streams
	changed chan struct{} // closed and replaced when a window grows
	lastID  uint32        // after GOAWAY, streams above are not served
}

// h2stream is one request.
type h2stream struct {
	id     uint32
	ctx    context.Context
	cancel context.CancelFunc
	body   *h2body
	window int64 // guarded by the connection's mu
}

func newH2Conn(o *Origin, c *connection) *h2conn {
	h := &h2conn{
		origin:  o,
		conn:    c,
		framer:  http2.NewFramer(c, c),
		streams: make(map[uint32]*h2stream),
		window:  h2Window,
		initial: h2Window,
		changed: make(chan struct{}),
		writing: make(chan struct{}, 1),
		lastID:  1<<31 - 1,
	}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.framer.MaxHeaderListSize = maxHeadBytes
	h.encoder = hpack.NewEncoder(&h.block)
	// No dynamic table: a header block that is broken on purpose, or never sent
	// to its end, cannot put later ones out of step.
	h.encoder.SetMaxDynamicTableSize(0)
	return h
}

// serve reads frames until the connection ends, then waits for the streams.
// The caller closes the connection.
func (c *h2conn) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.handled.Wait()
	defer cancel()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.conn, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	if c.write(func() error { return c.framer.WriteSettings() }) != nil {
		return
	}
	for {
		frame, err := c.framer.ReadFrame()
		var broken http2.StreamError
		switch {
		case errors.As(err, &broken):
			err = c.resetStream(broken.StreamID, broken.Code)
		case err == nil:
			err = c.handle(ctx, frame)
		}
		if err != nil {
			return
		}
	}
}

// write writes frames as one: no frame of another stream comes between.
func (c *h2conn) write(frames func() error) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	return gone(frames())
}

func (c *h2conn) resetStream(id uint32, code http2.ErrCode) error {
	return c.write(func() error { return c.framer.WriteRSTStream(id, code) })
}

func (c *h2conn) handle(ctx context.Context, frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		return c.ping(f)
	case *http2.WindowUpdateFrame:
		c.grow(f.StreamID, int64(f.Increment))
	case *http2.MetaHeadersFrame:
		return c.headers(ctx, f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.RSTStreamFrame:
		if s := c.stream(f.StreamID); s != nil {
			s.cancel()
		}
	}
	return nil
}

func (c *h2conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
		c.setInitial(int64(size))
	}
	return c.write(c.framer.WriteSettingsAck)
}

func (c *h2conn) ping(f *http2.PingFrame) error {
	if f.IsAck() {
		return nil
	}
	return c.write(func() error { return c.framer.WritePing(true, f.Data) })
}

// headers begins a stream, or ends its body if these are trailers.
func (c *h2conn) headers(ctx context.Context, f *http2.MetaHeadersFrame) error {
	if s := c.stream(f.StreamID); s != nil {
		s.body.end()
		return nil
	}
	s := c.openStream(ctx, f.StreamID)
	if s == nil {
		return nil
	}
	if f.StreamEnded() {
		s.body.end()
	}
	req, fields, err := requestOf(f)
	if err != nil {
		c.closeStream(s)
		return c.resetStream(f.StreamID, http2.ErrCodeProtocol)
	}
	c.handled.Go(func() { c.answer(s, req, fields) })
	return nil
}

// data takes bytes of a request body. The connection's window is given back at
// once, the stream's when the bytes are read.
func (c *h2conn) data(f *http2.DataFrame) error {
	s := c.stream(f.StreamID)
	if s != nil {
		s.body.add(f.Data())
	}
	if s != nil && f.StreamEnded() {
		s.body.end()
	}
	if f.Length == 0 {
		return nil
	}
	return c.write(func() error { return c.framer.WriteWindowUpdate(0, f.Length) })
}

func (c *h2conn) stream(id uint32) *h2stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// openStream returns nil for a stream that GOAWAY has disclaimed.
func (c *h2conn) openStream(ctx context.Context, id uint32) *h2stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id > c.lastID {
		return nil
	}
	s := &h2stream{id: id, window: c.initial}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.body = &h2body{conn: c, stream: s, changed: make(chan struct{}, 1)}
	c.streams[id] = s
	return s
}

func (c *h2conn) closeStream(s *h2stream) {
	s.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s.id)
}

var errPseudo = errors.New("bad pseudo-header")

// requestOf makes a request of a header block.
func requestOf(f *http2.MetaHeadersFrame) (*http.Request, []Field, error) {
	u, err := url.ParseRequestURI(f.PseudoValue("path"))
	if err != nil || f.PseudoValue("method") == "" {
		return nil, nil, errPseudo
	}
	req := &http.Request{
		Method:     f.PseudoValue("method"),
		URL:        u,
		RequestURI: f.PseudoValue("path"),
		Host:       f.PseudoValue("authority"),
		Proto:      "HTTP/2.0",
		ProtoMajor: 2,
		Header:     make(http.Header),
	}
	fields := make([]Field, 0, len(f.Fields))
	for _, h := range f.RegularFields() {
		fields = append(fields, Field{h.Name, h.Value})
		req.Header[textproto.CanonicalMIMEHeaderKey(h.Name)] =
			append(req.Header[textproto.CanonicalMIMEHeaderKey(h.Name)], h.Value)
	}
	req.ContentLength = contentLength(req.Header, f.StreamEnded())
	return req, fields, nil
}

func contentLength(h http.Header, ended bool) int64 {
	if ended {
		return 0
	}
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// answer carries out the step of one stream.
func (c *h2conn) answer(s *h2stream, req *http.Request, fields []Field) {
	defer c.closeStream(s)
	req.RemoteAddr = c.conn.RemoteAddr().String()
	req.Body = s.body
	c.origin.serve(&exchange{
		origin: c.origin, conn: c.conn, place: c.conn.nextPlace(), req: req, fields: fields,
		wire: &h2wire{conn: c, stream: s, abortCode: http2.ErrCodeInternal}, ctx: s.ctx,
	})
	if !s.body.ended() {
		// The rest of the request is not wanted (RFC 9113 §8.1).
		_ = c.resetStream(s.id, http2.ErrCodeNo)
	}
}

// setInitial changes the window of all streams (RFC 9113 §6.9.2).
func (c *h2conn) setInitial(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		s.window += size - c.initial
	}
	c.initial = size
	c.wake()
}

// grow adds to the window of a stream, or of the connection if id is 0.
func (c *h2conn) grow(id uint32, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 {
		c.window += n
	} else if s := c.streams[id]; s != nil {
		s.window += n
	}
	c.wake()
}

// wake is called with mu held.
func (c *h2conn) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// reserve takes 1 to n bytes off the windows; it waits until there are any.
func (c *h2conn) reserve(s *h2stream, n int64) (int64, error) {
	for {
		c.mu.Lock()
		free := min(n, c.window, s.window, h2FrameBytes)
		if free > 0 {
			c.window -= free
			s.window -= free
			c.mu.Unlock()
			return free, nil
		}
		changed := c.changed
		c.mu.Unlock()
		if err := waitFor(s.ctx, changed); err != nil {
			return 0, err
		}
	}
}

func waitFor(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return errGone
	}
}

// h2body is the body of a request: what has arrived and was not read. The
// stream's window bounds it.
type h2body struct {
	conn    *h2conn
	stream  *h2stream
	changed chan struct{} // of size 1: something arrived

	mu      sync.Mutex
	pending []byte
	atEnd   bool
}

func (b *h2body) add(p []byte) {
	b.mu.Lock()
	b.pending = append(b.pending, p...)
	b.mu.Unlock()
	b.wake()
}

func (b *h2body) end() {
	b.mu.Lock()
	b.atEnd = true
	b.mu.Unlock()
	b.wake()
}

func (b *h2body) wake() {
	select {
	case b.changed <- struct{}{}:
	default: // it is known already
	}
}

func (b *h2body) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.atEnd
}

func (b *h2body) Read(p []byte) (int, error) {
	for {
		n, atEnd := b.take(p)
		if n > 0 {
			return n, b.conn.write(func() error {
				return b.conn.framer.WriteWindowUpdate(b.stream.id, uint32(n))
			})
		}
		if atEnd {
			return 0, io.EOF
		}
		if err := waitFor(b.stream.ctx, b.changed); err != nil {
			return 0, err
		}
	}
}

func (b *h2body) take(p []byte) (n int, atEnd bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = copy(p, b.pending)
	b.pending = b.pending[n:]
	return n, b.atEnd && len(b.pending) == 0
}

func (b *h2body) Close() error { return nil }

// isConnectionField tells the fields that HTTP/2 has no place for (RFC 9113
// §8.2.2).
func isConnectionField(name string) bool {
	switch strings.ToLower(name) {
	case "connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection":
		return true
	}
	return false
}
