package origin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ServeHTTP answers r according to the grammar, so that an Origin can be mounted
// in any [http.Server]. It hijacks HTTP/1.1 connections, so that their faults are
// real; the request body is read first, up to 64 MiB, whatever the step says. In
// HTTP/2, and with a writer that cannot be hijacked, a step that breaks off panics
// with [http.ErrAbortHandler], as net/http expects.
func (o *Origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if hijacker, ok := w.(http.Hijacker); ok && r.ProtoMajor == 1 {
		o.takeOver(hijacker, r)
		return
	}
	o.serveStream(&connection{listener: "handler"}, w, r)
}

// serveStream answers a request through a ResponseWriter.
func (o *Origin) serveStream(c *connection, w http.ResponseWriter, r *http.Request) {
	wire := &streamWire{w: w, conn: c}
	complete := o.serve(&exchange{
		origin: o, conn: c, place: c.nextPlace(), req: r, fields: sortedFields(r.Header), wire: wire, ctx: r.Context(),
	})
	if !complete && !wire.ended {
		// After a return net/http would complete the response.
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http documents this panic
	}
}

// takeOver answers r, and then every further request on its connection.
func (o *Origin) takeOver(hijacker http.Hijacker, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxMemory))
	if err != nil {
		return
	}
	conn, rw, err := hijacker.Hijack()
	if err != nil {
		return
	}
	if !o.tracker.add(conn) {
		return
	}
	defer o.tracker.remove(conn)
	c := newH1Conn(o, &connection{Conn: &replayConn{Conn: conn, r: rw.Reader}, listener: "handler"})
	r.Body = io.NopCloser(bytes.NewReader(body))
	if c.exchange(o.ctx, r, sortedFields(r.Header), &h1body{done: true}) {
		c.serve(o.ctx)
	}
}

// streamWire is one exchange through a ResponseWriter.
type streamWire struct {
	w        http.ResponseWriter
	conn     *connection
	headSent bool
	ended    bool
}

func (w *streamWire) major() int { return 2 }

func (w *streamWire) interim(status int, fields []Field) error {
	w.set(fields)
	w.w.WriteHeader(status)
	clear(w.w.Header())
	return nil
}

func (w *streamWire) set(fields []Field) {
	header := w.w.Header()
	for _, f := range fields {
		header.Add(f.Name, f.Value)
	}
}

func (w *streamWire) begin(h *head) error {
	if h.code() < 200 || h.drip > 0 {
		return errUnsupported // WriteHeader panics below 100
	}
	header := w.w.Header()
	header["Date"] = nil // net/http must not add one
	w.set(h.fields)
	if h.length != unset {
		header.Set("Content-Length", strconv.FormatInt(h.length, 10))
	}
	w.headSent = true
	w.w.WriteHeader(h.code())
	return nil
}

func (w *streamWire) body(p []byte) error {
	_, err := w.w.Write(p)
	if errors.Is(err, http.ErrBodyNotAllowed) || errors.Is(err, http.ErrContentLength) {
		return nil // net/http does not send such bytes
	}
	return gone(err)
}

func (w *streamWire) end(trailers []Field) error {
	w.ended = true
	for _, f := range trailers {
		w.w.Header().Set(http.TrailerPrefix+f.Name, f.Value)
	}
	return nil
}

func (w *streamWire) flush() error {
	if !w.headSent {
		return nil // Flush would send a default head
	}
	return gone(http.NewResponseController(w.w).Flush())
}

// abort makes serveStream panic, which resets the stream.
func (w *streamWire) abort() error { return errBroken }

func (w *streamWire) sever(how string) error {
	if w.conn.Conn == nil {
		return w.abort()
	}
	w.conn.sever(how)
	return errBroken
}

func (w *streamWire) raw(p []byte) error {
	if w.conn.Conn == nil {
		return errUnsupported
	}
	_, err := w.conn.Write(p)
	return gone(err)
}

// serveH2 runs net/http's HTTP/2 server on the connection and returns when it is closed.
func (o *Origin) serveH2(ctx context.Context, c *connection) {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	closed := make(chan struct{})
	server := &http.Server{
		Handler:        http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serveStream(c, w, r) }),
		Protocols:      protocols,
		MaxHeaderBytes: maxHeadBytes,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		// The faults are intended, so their errors are not worth a log line.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(closed)
			}
		},
	}
	_ = server.Serve(&oneConn{conn: c.Conn}) // ends with io.EOF of the second Accept
	<-closed
}

// serveH2 continues with HTTP/2 after prefaceHead was read.
func (c *h1conn) serveH2(ctx context.Context) {
	replay := io.MultiReader(strings.NewReader(prefaceHead), c.br)
	c.origin.serveH2(ctx, &connection{
		Conn: &replayConn{Conn: c.conn.Conn, r: replay}, id: c.conn.id, listener: c.conn.listener,
	})
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn net.Conn
	done bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if l.done {
		return nil, io.EOF
	}
	l.done = true
	return l.conn, nil
}

func (l *oneConn) Close() error { return nil }

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// replayConn is a connection whose first bytes were already read; r returns them again.
type replayConn struct {
	net.Conn
	r io.Reader
}

func (c *replayConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// NetConn returns the connection below, as [crypto/tls.Conn.NetConn] does.
func (c *replayConn) NetConn() net.Conn { return c.Conn }

// sortedFields returns the fields of h by name. Their order on the wire is not known.
func sortedFields(h http.Header) []Field {
	fields := make([]Field, 0, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fields = append(fields, Field{name, value})
		}
	}
	return fields
}
