package origin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxHeadBytes limits the head of a request.
const maxHeadBytes = 1 << 20

// prefaceHead is the start of HTTP/2 with prior knowledge (RFC 9113 §3.4).
const prefaceHead = "PRI * HTTP/2.0\r\n\r\n"

var errHeadTooLarge = errors.New("request head too large")

// h1conn speaks HTTP/1.1 on one connection. It writes responses itself, because
// net/http would repair what a step wants to be broken.
type h1conn struct {
	origin *Origin
	conn   *connection
	head   *headRecorder // between conn and br
	br     *bufio.Reader
	bw     *bufio.Writer
}

func newH1Conn(o *Origin, c *connection) *h1conn {
	head := &headRecorder{r: c}
	return &h1conn{origin: o, conn: c, head: head, br: bufio.NewReader(head), bw: bufio.NewWriterSize(c, 16<<10)}
}

// headRecorder keeps a copy of what is read while a head is parsed: net/http
// loses the order and the spelling of the fields.
type headRecorder struct {
	r    io.Reader
	on   bool
	seen []byte
	err  error
}

func (h *headRecorder) Read(p []byte) (int, error) {
	if h.on && len(h.seen) > maxHeadBytes {
		h.err = errHeadTooLarge
		return 0, h.err
	}
	n, err := h.r.Read(p)
	if h.on {
		h.seen, h.err = append(h.seen, p[:n]...), err
	}
	return n, err
}

// readRequest reads the head of a request. Its raw text may continue after the head.
func (c *h1conn) readRequest() (req *http.Request, raw string, err error) {
	buffered, _ := c.br.Peek(c.br.Buffered())
	c.head.on, c.head.seen, c.head.err = true, slices.Clone(buffered), nil
	req, err = http.ReadRequest(c.br)
	c.head.on = false
	return req, string(c.head.seen), err
}

// fieldsOf returns the fields in the order and spelling of a raw head.
func fieldsOf(raw string) []Field {
	var fields []Field
	_, rest, _ := strings.Cut(raw, "\n")
	for line := range strings.Lines(rest) {
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, Field{name, strings.TrimSpace(value)})
	}
	return fields
}

// serve answers requests until the connection or the origin is closed. The
// caller closes the connection.
func (c *h1conn) serve(ctx context.Context) {
	for ctx.Err() == nil && c.serveNext(ctx) {
	}
}

func (c *h1conn) serveNext(ctx context.Context) bool {
	req, raw, err := c.readRequest()
	if err != nil {
		if c.head.err == nil { // the connection works, so the head is malformed
			_, _ = io.WriteString(c.conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		}
		return false
	}
	if strings.HasPrefix(raw, prefaceHead) {
		c.serveH2(ctx)
		return false
	}
	body := &h1body{
		ReadCloser:   req.Body,
		conn:         c.conn,
		wantContinue: strings.EqualFold(req.Header.Get("Expect"), "100-continue"),
		done:         req.Body == http.NoBody,
	}
	req.Body = body
	return c.exchange(ctx, req, fieldsOf(raw), body)
}

// h1body is the body of a request. It sends 100 Continue when the first byte is
// wanted, and knows whether all of it was read.
type h1body struct {
	io.ReadCloser
	conn         net.Conn
	wantContinue bool
	done         bool
}

func (b *h1body) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	if b.wantContinue {
		b.wantContinue = false
		if _, err := io.WriteString(b.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.done = errors.Is(err, io.EOF)
	return n, err
}

// exchange answers one request. It reports whether another one may follow.
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
	reusable := c.origin.serve(x) && !w.closing && body.done && c.bw.Flush() == nil
	if !reusable {
		c.finish(body)
	}
	return watch.wait() && reusable
}

// lingerTime is how long the origin continues to read after it has answered a
// request without reading all of it.
const lingerTime = time.Second

// finish closes the connection. If bytes of the request were unread, the kernel
// would send RST and the client could lose the answer. So finish closes the
// writing side first and then reads.
func (c *h1conn) finish(body *h1body) {
	_ = c.bw.Flush() // the client may have left
	if !body.done {
		c.conn.closeWrite()
		_ = c.conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, c.br)
	}
	_ = c.conn.Close()
}

// watcher cancels the exchange if the client disconnects before it is answered.
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

// wait returns when the client sends its next request or disconnects. It reports
// whether there is something to read.
func (w *watcher) wait() bool {
	if w.done == nil {
		return true // not started
	}
	<-w.done
	return w.err == nil
}

// h1wire is one exchange on an h1conn.
type h1wire struct {
	conn    *h1conn
	ctx     context.Context
	closing bool // the connection is closed after this answer
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
	if how != howFin { // finish closes in order
		w.conn.conn.sever(how)
	}
	return errBroken
}

// gone turns any write error into errGone. All that a failed write shows is that
// the client has left.
func gone(err error) error {
	if err == nil || errors.Is(err, errBroken) {
		return err
	}
	return errGone
}

// The values of chunk-fault.
const (
	chunkBadSize = "bad-size"
	chunkNoLast  = "no-last"
	chunkBadCRLF = "bad-crlf"
	chunkHuge    = "huge"
)

func (w *h1wire) interim(status int, fields []Field) error {
	var b bytes.Buffer
	writeHead(&b, "1.1", strconv.Itoa(status), fields)
	return w.raw(b.Bytes())
}

func writeHead(b *bytes.Buffer, version, status string, fields []Field) {
	fmt.Fprintf(b, "HTTP/%s %s %s\r\n", version, status, reason(status))
	writeFields(b, fields)
}

// writeFields writes fields and an empty line. It removes line breaks from values:
// there are separate steps for broken heads.
func writeFields(b *bytes.Buffer, fields []Field) {
	clean := strings.NewReplacer("\r", " ", "\n", " ")
	for _, f := range fields {
		fmt.Fprintf(b, "%s: %s\r\n", f.Name, clean.Replace(f.Value))
	}
	b.WriteString("\r\n")
}

func (w *h1wire) begin(h *head) error {
	w.chunked, w.fault = h.chunked && !h.bodyless, h.chunkFault
	w.closing = w.closing || h.closing
	fields := h.fields
	if h.length != unset {
		fields = append(fields, Field{"Content-Length", strconv.FormatInt(h.length, 10)})
	}
	if h.chunked {
		fields = append(fields, Field{"Transfer-Encoding", "chunked"})
	}
	if w.closing {
		fields = append(fields, Field{"Connection", "close"})
	}
	var b bytes.Buffer
	writeHead(&b, cmp.Or(h.version, "1.1"), h.status, fields)
	if h.drip > 0 {
		return w.dripHead(b.Bytes(), h.drip)
	}
	_, err := w.conn.bw.Write(b.Bytes())
	return gone(err)
}

func (w *h1wire) dripHead(p []byte, every time.Duration) error {
	for i := range p {
		if err := w.raw(p[i : i+1]); err != nil {
			return err
		}
		if err := wait(w.ctx, every); err != nil {
			return err
		}
	}
	return nil
}

func (w *h1wire) body(p []byte) error {
	if !w.chunked {
		_, err := w.conn.bw.Write(p)
		return gone(err)
	}
	crlf := "\r\n"
	if w.fault == chunkBadCRLF {
		crlf = "XX"
	}
	if _, err := fmt.Fprintf(w.conn.bw, "%x\r\n", len(p)); err != nil {
		return errGone
	}
	if _, err := w.conn.bw.Write(p); err != nil {
		return errGone
	}
	_, err := w.conn.bw.WriteString(crlf)
	return gone(err)
}

func (w *h1wire) end(trailers []Field) error {
	if !w.chunked {
		return w.flush()
	}
	var b bytes.Buffer
	switch w.fault {
	case chunkNoLast:
	case chunkBadSize:
		b.WriteString("zz\r\nnot a chunk\r\n")
	case chunkHuge: // 17 digits exceed any 64-bit size
		b.WriteString("fffffffffffffffff\r\nnot that much\r\n")
	case chunkBadCRLF:
		b.WriteString("0\r\n\r\n")
	default:
		b.WriteString("0\r\n")
		writeFields(&b, trailers)
	}
	if err := w.raw(b.Bytes()); err != nil || w.fault == "" {
		return err
	}
	return w.sever(howFin)
}
