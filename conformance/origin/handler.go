package origin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
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
