package origin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// ServeHTTP answers r as the grammar says. HTTP/1.1 connections are taken over
// from the server, so that their faults are real; the request body is read
// first then, whatever the step, up to 64 MiB. In HTTP/2, and with a writer
// that cannot be hijacked, a step that breaks off panics with
// [http.ErrAbortHandler], as net/http expects.
func (o *Origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if hijacker, ok := w.(http.Hijacker); ok && r.ProtoMajor == 1 {
		o.takeOver(hijacker, r)
		return
	}
	o.serveStream(&connection{listener: "handler"}, w, r)
}

// serveStream answers a request through a ResponseWriter.
func (o *Origin) serveStream(c *connection, w http.ResponseWriter, r *http.Request) {
	mux := &streamWire{w: w, conn: c}
	whole := o.serve(&exchange{
		origin: o, conn: c, place: c.nextPlace(), req: r, fields: sortedFields(r.Header), wire: mux, ctx: r.Context(),
	})
	if !whole && !mux.ended {
		// Returning would send an answer of net/http's own.
		panic(http.ErrAbortHandler) //nolint:forbidigo // the way that net/http has for it
	}
}

// takeOver answers r and all that follows on its connection.
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
	c := &h1conn{
		origin: o,
		conn:   &connection{Conn: conn, listener: "handler"},
		br:     rw.Reader,
		bw:     bufio.NewWriterSize(conn, 16<<10),
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if c.exchange(o.ctx, r, sortedFields(r.Header), &h1body{done: true}) {
		c.serve(o.ctx)
	}
}

// streamWire is one exchange through a ResponseWriter.
type streamWire struct {
	w     http.ResponseWriter
	conn  *connection
	begun bool
	ended bool
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
	header["Date"] = nil // so that none is added
	w.set(h.fields)
	if h.length != unset {
		header.Set("Content-Length", strconv.FormatInt(h.length, 10))
	}
	w.begun = true
	w.w.WriteHeader(h.code())
	return nil
}

func (w *streamWire) body(p []byte) error {
	_, err := w.w.Write(p)
	if errors.Is(err, http.ErrBodyNotAllowed) || errors.Is(err, http.ErrContentLength) {
		return nil // net/http keeps such bytes back
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
	if !w.begun {
		return nil // flushing would send a head of its own
	}
	return gone(http.NewResponseController(w.w).Flush())
}

// abort leaves it to serveStream to panic.
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

// serveH2 hands the connection to net/http's HTTP/2 server, which gets every
// frame right, and waits until it is closed.
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
		// Faults are wanted here; nobody needs to read of them.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(closed)
			}
		},
	}
	_ = server.Serve(&oneConn{conn: c.Conn}) // io.EOF of the second Accept
	<-closed
}

// serveH2 goes on with HTTP/2 after the head of its preface was read.
func (c *h1conn) serveH2(ctx context.Context) {
	replay := io.MultiReader(strings.NewReader(prefaceHead), c.br)
	c.origin.serveH2(ctx, &connection{
		Conn: &replayConn{Conn: c.conn.Conn, r: replay}, id: c.conn.id, listener: c.conn.listener,
	})
}

// oneConn is a listener of one connection.
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

// replayConn is a connection of which some was read already.
type replayConn struct {
	net.Conn
	r io.Reader
}

func (c *replayConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// NetConn returns the connection below, as [crypto/tls.Conn.NetConn] does.
func (c *replayConn) NetConn() net.Conn { return c.Conn }
