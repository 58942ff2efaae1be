package origin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// h1conn speaks HTTP/1.1 by hand on one connection: net/http would repair
// what is to be broken.
type h1conn struct {
	origin *Origin
	conn   *connection
	br     *bufio.Reader
	bw     *bufio.Writer
}

func newH1Conn(o *Origin, c *connection) *h1conn {
	return &h1conn{origin: o, conn: c, br: bufio.NewReader(c), bw: bufio.NewWriterSize(c, 16<<10)}
}

// serve answers requests until the connection or the origin ends. The caller
// closes the connection.
func (c *h1conn) serve(ctx context.Context) {
	for ctx.Err() == nil && c.next(ctx) {
	}
}

func (c *h1conn) next(ctx context.Context) bool {
	raw, err := readHead(c.br)
	if err != nil {
		return false
	}
	if string(raw) == prefaceHead {
		c.serveH2(ctx)
		return false
	}
	req, fields, err := parseHead(raw)
	if err != nil {
		_, _ = io.WriteString(c.conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		return false
	}
	body := c.bodyOf(req)
	req.Body = body
	return c.exchange(ctx, req, fields, body)
}

// exchange answers one request; it reports whether another may follow.
func (c *h1conn) exchange(ctx context.Context, req *http.Request, fields []Field, body *h1body) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := &watcher{}
	w := &h1wire{conn: c, ctx: ctx, closing: req.Close || !req.ProtoAtLeast(1, 1)}
	req.RemoteAddr = c.conn.RemoteAddr().String()
	x := &exchange{
		origin: c.origin, conn: c.conn, place: c.conn.nextPlace(), req: req, fields: fields, wire: w, ctx: ctx,
		bodyRead: func() { watch.start(c.br, cancel) },
	}
	goOn := c.origin.serve(x) && !w.closing && body.done && c.bw.Flush() == nil
	if !goOn {
		c.finish(body)
	}
	return watch.wait() && goOn
}

// lingerTime is how long the origin reads on after an answer to a request that
// it did not read whole.
const lingerTime = time.Second

// finish closes the connection. Closing while bytes of the request are unread
// would make the kernel send RST, and take the answer back: end the writing
// side first, then read.
func (c *h1conn) finish(body *h1body) {
	_ = c.bw.Flush() // the client may have left
	if !body.done {
		c.conn.closeWrite()
		_ = c.conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, c.br)
	}
	_ = c.conn.Close()
}

// watcher notices that the client leaves while its request is being answered.
type watcher struct {
	done chan struct{}
	err  error
}

func (w *watcher) start(br *bufio.Reader, gone context.CancelFunc) {
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		if _, w.err = br.Peek(1); w.err != nil {
			gone()
		}
	}()
}

// wait ends when the client sends its next request or leaves. It reports
// whether there is something to read.
func (w *watcher) wait() bool {
	if w.done == nil {
		return true // never started: nothing reads
	}
	<-w.done
	return w.err == nil
}

// h1wire is one exchange on an h1conn.
type h1wire struct {
	conn    *h1conn
	ctx     context.Context
	closing bool // the connection ends with this answer
	chunked bool
	fault   string
}

func (w *h1wire) major() int { return 1 }

func (w *h1wire) flush() error { return gone(w.conn.bw.Flush()) }

func (w *h1wire) raw(p []byte) error {
	if _, err := w.conn.bw.Write(p); err != nil {
		return errGone
	}
	return w.flush()
}

func (w *h1wire) abort() error { return w.sever(howFin) }

func (w *h1wire) sever(how string) error {
	if how != howFin {
		w.conn.conn.sever(how)
	} // the end of the exchange closes in order
	return errBroken
}

// gone turns any error of a connection into errGone: there is one thing that a
// server can know about a client that cannot be written to.
func gone(err error) error {
	if err == nil || errors.Is(err, errBroken) {
		return err
	}
	return errGone
}
