package origin

import (
	"bytes"
	"context"
	"errors"
	"io"
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
