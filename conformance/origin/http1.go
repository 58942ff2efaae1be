package origin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
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

// maxHeadBytes bounds the head of a request.
const maxHeadBytes = 1 << 20

// prefaceHead is how HTTP/2 with prior knowledge begins (RFC 9113 §3.4).
const prefaceHead = "PRI * HTTP/2.0\r\n\r\n"

var errHeadTooLarge = errors.New("request head too large")

// readHead reads up to and with the empty line.
func readHead(br *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		line, err := br.ReadSlice('\n')
		head = append(head, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			// A long line; the rest of it follows.
		case err != nil:
			return nil, fmt.Errorf("read head: %w", err)
		case len(bytes.TrimSpace(line)) == 0 && len(head) > len(line):
			return head, nil
		}
		if len(head) > maxHeadBytes {
			return nil, errHeadTooLarge
		}
	}
}

// parseHead reads a head; the body of the request is not set.
func parseHead(raw []byte) (*http.Request, []Field, error) {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, nil, fmt.Errorf("parse head: %w", err)
	}
	return req, fieldsOf(raw), nil
}

// fieldsOf returns the fields in the order and spelling of the head.
func fieldsOf(raw []byte) []Field {
	lines := strings.Split(strings.TrimRight(string(raw), "\r\n"), "\n")
	fields := make([]Field, 0, len(lines))
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, Field{name, strings.TrimSpace(value)})
	}
	return fields
}

// h1body is the body of a request on an h1conn.
type h1body struct {
	conn         *h1conn
	reader       io.Reader
	chunked      bool
	wantContinue bool
	done         bool
}

func (c *h1conn) bodyOf(req *http.Request) *h1body {
	b := &h1body{conn: c, wantContinue: strings.EqualFold(req.Header.Get("Expect"), "100-continue")}
	switch {
	case req.ContentLength > 0:
		b.reader = &exactReader{r: c.br, left: req.ContentLength}
	case req.ContentLength < 0:
		b.reader, b.chunked = httputil.NewChunkedReader(c.br), true
	default:
		b.done = true
	}
	return b
}

func (b *h1body) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	if err := b.sayContinue(); err != nil {
		return 0, err
	}
	n, err := b.reader.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if b.chunked {
		if err := skipTrailers(b.conn.br); err != nil {
			return n, err
		}
	}
	b.done = true
	return n, io.EOF
}

func (b *h1body) sayContinue() error {
	if !b.wantContinue {
		return nil
	}
	b.wantContinue = false
	_, err := io.WriteString(b.conn.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

func (b *h1body) Close() error { return nil }

// skipTrailers reads what the chunked reader leaves: trailers and empty line.
func skipTrailers(br *bufio.Reader) error {
	for {
		line, err := br.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read trailers: %w", io.ErrUnexpectedEOF)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
	}
}

// exactReader reads just so many bytes; fewer are an unexpected end.
type exactReader struct {
	r    io.Reader
	left int64
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	switch {
	case e.left == 0:
		return n, io.EOF
	case errors.Is(err, io.EOF):
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// The ways in which chunked framing is broken.
const (
	chunkBadSize = "bad-size"
	chunkNoLast  = "no-last"
	chunkBadCRLF = "bad-crlf"
	chunkHuge    = "huge"
)

func (w *h1wire) interim(status int, fields []Field) error {
	var b bytes.Buffer
	writeHead(&b, strconv.Itoa(status), fields)
	return w.raw(b.Bytes())
}

func writeHead(b *bytes.Buffer, status string, fields []Field) {
	fmt.Fprintf(b, "HTTP/1.1 %s %s\r\n", status, reason(status))
	for _, f := range fields {
		fmt.Fprintf(b, "%s: %s\r\n", f.Name, noLineBreak(f.Value))
	}
	b.WriteString("\r\n")
}

// noLineBreak keeps a value in its line: broken heads have steps of their own.
func noLineBreak(value string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
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
	writeHead(&b, h.status, fields)
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
	switch w.fault {
	case chunkNoLast:
		return w.breakChunks("")
	case chunkBadSize:
		return w.breakChunks("zz\r\nnot a chunk\r\n")
	case chunkHuge:
		// 17 digits: more than any 64-bit size.
		return w.breakChunks("fffffffffffffffff\r\nnot that much\r\n")
	case chunkBadCRLF:
		return w.breakChunks("0\r\n\r\n")
	}
	return w.lastChunk(trailers)
}

func (w *h1wire) breakChunks(s string) error {
	if err := w.raw([]byte(s)); err != nil {
		return err
	}
	return w.sever(howFin)
}

func (w *h1wire) lastChunk(trailers []Field) error {
	var b bytes.Buffer
	b.WriteString("0\r\n")
	for _, f := range trailers {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, noLineBreak(f.Value))
	}
	b.WriteString("\r\n")
	return w.raw(b.Bytes())
}
