package origin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The defaults of RFC 9113 §6.5.2. This server does not change them.
const (
	h2Window     = 65535
	h2FrameBytes = 16384
)

// h2conn speaks HTTP/2 frame by frame on one connection. A server that gets every
// frame right, such as net/http's, cannot send a wrong one.
type h2conn struct {
	origin  *Origin
	conn    *connection
	framer  *http2.Framer // only serve reads from it
	handled sync.WaitGroup

	// writing is a lock, held by sending into it, while frames are written. It is
	// not a mutex: a head can drip for long, and waiting for a mutex would stop
	// the clock of a synctest bubble.
	writing chan struct{}
	block   bytes.Buffer // output of encoder; only the holder of writing uses both
	encoder *hpack.Encoder

	mu      sync.Mutex
	streams map[uint32]*h2stream
	window  int64         // for DATA on the connection
	initial int64         // window of new streams
	lastID  uint32        // after GOAWAY, higher streams are not served
	changed chan struct{} // closed and replaced when the state of a stream or a window changes
}

// h2stream is one request. The connection's mu guards window, pending and ended.
type h2stream struct {
	id     uint32
	conn   *h2conn
	ctx    context.Context
	cancel context.CancelFunc
	window int64 // for DATA on the stream

	// The body of the request. The stream's receive window limits pending.
	pending []byte // received and not yet read
	ended   bool   // the client has sent all of it
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
	// Without a dynamic table a broken or unfinished header block cannot spoil
	// the ones after it.
	h.encoder.SetMaxDynamicTableSize(0)
	return h
}

// update changes the state under the lock and wakes everyone who waits for it.
func (c *h2conn) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// waitUntil calls try under the lock, after each update, until it returns true
// or ctx ends.
func (c *h2conn) waitUntil(ctx context.Context, try func() bool) error {
	for {
		c.mu.Lock()
		ok, changed := try(), c.changed
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errGone
		}
	}
}

// serve reads frames until the connection ends, and then waits for the handlers of
// all streams. The caller closes the connection.
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

// write calls frames to write frames. No other stream writes in between.
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
		c.update(func() {
			if f.StreamID == 0 {
				c.window += int64(f.Increment)
			} else if s := c.streams[f.StreamID]; s != nil {
				s.window += int64(f.Increment)
			}
		})
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
		c.update(func() { // the change applies to all streams (RFC 9113 §6.9.2)
			for _, s := range c.streams {
				s.window += int64(size) - c.initial
			}
			c.initial = int64(size)
		})
	}
	return c.write(c.framer.WriteSettingsAck)
}

func (c *h2conn) ping(f *http2.PingFrame) error {
	if f.IsAck() {
		return nil
	}
	return c.write(func() error { return c.framer.WritePing(true, f.Data) })
}

// headers starts a stream, or ends the body of one if these are trailers.
func (c *h2conn) headers(ctx context.Context, f *http2.MetaHeadersFrame) error {
	if s := c.stream(f.StreamID); s != nil {
		c.update(func() { s.ended = true })
		return nil
	}
	s := c.openStream(ctx, f.StreamID)
	if s == nil {
		return nil
	}
	s.ended = f.StreamEnded()
	req, fields, err := requestOf(f)
	if err != nil {
		c.closeStream(s)
		return c.resetStream(f.StreamID, http2.ErrCodeProtocol)
	}
	c.handled.Go(func() { c.answer(s, req, fields) })
	return nil
}

// data receives bytes of a request body. It returns the connection's window at
// once; the stream's window is returned when the bytes are read.
func (c *h2conn) data(f *http2.DataFrame) error {
	if s := c.stream(f.StreamID); s != nil {
		c.update(func() {
			s.pending = append(s.pending, f.Data()...)
			s.ended = s.ended || f.StreamEnded()
		})
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

// openStream returns nil if a GOAWAY excludes the stream.
func (c *h2conn) openStream(ctx context.Context, id uint32) *h2stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id > c.lastID {
		return nil
	}
	s := &h2stream{id: id, conn: c, window: c.initial}
	s.ctx, s.cancel = context.WithCancel(ctx)
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

// requestOf converts a header block to a request.
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
		req.Header.Add(h.Name, h.Value)
	}
	return req, fields, nil
}

// answer serves the request of one stream.
func (c *h2conn) answer(s *h2stream, req *http.Request, fields []Field) {
	defer c.closeStream(s)
	req.RemoteAddr = c.conn.RemoteAddr().String()
	req.Body = s
	c.origin.serve(&exchange{
		origin: c.origin, conn: c.conn, place: c.conn.nextPlace(), req: req, fields: fields,
		wire: &h2wire{conn: c, stream: s, abortCode: http2.ErrCodeInternal}, ctx: s.ctx,
	})
	c.mu.Lock()
	ended := s.ended
	c.mu.Unlock()
	if !ended {
		// The rest of the request is not needed (RFC 9113 §8.1).
		_ = c.resetStream(s.id, http2.ErrCodeNo)
	}
}

// reserve takes 1 to n bytes from the send windows. It waits while one of them is
// empty.
func (c *h2conn) reserve(s *h2stream, n int64) (free int64, err error) {
	err = c.waitUntil(s.ctx, func() bool {
		free = max(min(n, c.window, s.window, h2FrameBytes), 0)
		c.window -= free
		s.window -= free
		return free > 0
	})
	return free, err
}

// Read reads the body of the request, and returns what was read to its window.
func (s *h2stream) Read(p []byte) (n int, err error) {
	var atEnd bool
	err = s.conn.waitUntil(s.ctx, func() bool {
		n = copy(p, s.pending)
		s.pending = s.pending[n:]
		atEnd = s.ended && len(s.pending) == 0
		return n > 0 || atEnd
	})
	switch {
	case err != nil:
		return 0, err
	case n > 0:
		return n, s.conn.write(func() error { return s.conn.framer.WriteWindowUpdate(s.id, uint32(n)) })
	}
	return 0, io.EOF
}

// Close makes h2stream an io.ReadCloser.
func (s *h2stream) Close() error { return nil }
