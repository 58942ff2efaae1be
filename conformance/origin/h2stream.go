package origin

import (
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
)

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
