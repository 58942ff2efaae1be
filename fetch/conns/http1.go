package conns

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"fetchd/classify"
	"fetchd/fetch/fault"
)

// HTTP/1.1 needs no goroutine beside that of the exchange: it writes the request, and then reads the
// response. What is sent and what a response may be is decided by http.Request.Write, whose bytes appendHead
// writes, and by http.ReadResponse. http.Transport uses both, except that we frame bodies (spec I6).

const (
	// longRequest is the length from which a request is written by a second goroutine, because
	// the origin may answer, and then wait, before it has read it all. The kernel takes less than
	// that at once.
	longRequest = 16 << 10
	// writerTime is how long an exchange waits at its end for that goroutine, to keep the connection.
	writerTime = 50 * time.Millisecond
)

// Buffers of exchanges. An idle connection has none.
var (
	readers  = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBytes) }}
	requests = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// errAnswered is the error for an answer that was there before the request. The origin does not speak
// HTTP. A connection that is reused is not taken in this state.
var errAnswered = fault.New(classify.Protocol, classify.PhaseProcessing, "answer_before_request")

// errVersion is the error for a status line of another version than HTTP/1, which net/http accepts
// (RFC 9110 §2.5).
var errVersion = fault.New(classify.Protocol, classify.PhaseProcessing, "http_version")

// errSurplus is the error for a response without a body that more bytes follow, on a connection that
// had carried another request: the response may belong to that one.
var errSurplus = fault.New(classify.ConnectionReset, classify.PhaseProcessing, "unrequested_data")

// send1 sends a request over HTTP/1.1, and reads the head.
func (x *Exchange) send1(req *http.Request) (*http.Response, error) {
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	if err := x.closeWith(x.conn.socket); err != nil {
		return nil, err
	}
	resp, err := x.exchange1(req)
	if cause := x.Cause(); err != nil && x.rejected == nil && cause != nil {
		err = cause // the closed socket has only a text
	}
	return resp, err
}

func (x *Exchange) exchange1(req *http.Request) (*http.Response, error) {
	if !x.report.Reused && !x.conn.encrypted && x.conn.socket.peek() == spoke {
		x.reject(errAnswered)
		return nil, errAnswered
	}
	x.head = partialHead{memory: x.settings.Memory}
	x.in, _ = readers.Get().(*bufio.Reader)
	x.in.Reset((*incoming)(x))
	req.Close = x.conn.alone
	wrote := x.write(req)
	if wrote != nil && !x.report.Sent {
		return nil, wrote
	}
	// An origin may answer and close before it has read the request. Then the answer counts.
	_, err := x.in.Peek(1)
	switch {
	case err != nil && wrote != nil && !isAlert(err):
		return nil, wrote
	case err != nil:
		return nil, err
	}
	x.firstByte()
	resp, err := x.readHead(req)
	switch {
	case x.rejected != nil:
		return nil, x.rejected
	case err != nil:
		return nil, err
	case resp.ProtoMajor != 1:
		x.reject(errVersion)
		return nil, errVersion
	}
	x.mayReuse = wrote == nil && !x.faulty && !resp.Close && !req.Close && resp.StatusCode > 199 // after a 101 it is another protocol
	if resp.Body == http.NoBody {
		x.complete()
		if x.Surplus() {
			return nil, errSurplus
		}
		return resp, nil
	}
	x.body = body{x: x, from: resp.Body, left: resp.ContentLength}
	if slices.Contains(resp.TransferEncoding, "chunked") {
		x.body.chunks, x.body.trailer = chunks{in: x.in}, &resp.Trailer
	}
	resp.Body = &x.body
	return resp, nil
}

// isAlert reports whether a read has failed for a reason that the origin gave.
func isAlert(err error) bool {
	return classify.Error(classify.PhaseProcessing, err) == classify.TLSHandshake
}

// readHead reads a response head, and those with 1xx before it.
func (x *Exchange) readHead(req *http.Request) (*http.Response, error) {
	for {
		resp, err := x.readOneHead(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 100 || resp.StatusCode > 199 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
		if err := x.gotInformational(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
			return nil, err
		}
	}
}

// checkRequest checks what http.Request.Write does not, and http.Transport does.
func checkRequest(req *http.Request) error {
	for name, values := range req.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("invalid header field name %q", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("invalid value of header field %s", name)
			}
		}
	}
	if !httpguts.ValidHeaderFieldName(req.Method) { // a method is a token, too
		return fmt.Errorf("invalid method %q", req.Method)
	}
	return nil
}

// write writes the request. It returns early if the request is long.
func (x *Exchange) write(req *http.Request) error {
	if req.ContentLength >= longRequest {
		x.sending()
		x.writing = make(chan error, 1)
		go func() {
			w := bufio.NewWriterSize((*outgoing)(x), 2*longRequest)
			err := req.Write(w)
			if err == nil {
				err = w.Flush()
			}
			if err == nil {
				x.sent()
			}
			x.writing <- err
		}()
		return nil
	}
	buf, _ := requests.Get().(*bytes.Buffer)
	buf.Reset()
	var err error
	if head, ok := appendHead(buf.AvailableBuffer(), req); ok {
		buf.Write(head)
	} else {
		err = req.Write(buf)
	}
	if err == nil {
		x.sending()
		_, err = (*outgoing)(x).Write(buf.Bytes())
	}
	if buf.Cap() <= 2*longRequest {
		requests.Put(buf)
	}
	if err == nil {
		x.sent()
	}
	return err
}

// outgoing writes the request of an exchange.
type outgoing Exchange

// Write implements io.Writer.
func (out *outgoing) Write(p []byte) (int, error) {
	x := (*Exchange)(out)
	if tap := x.settings.Tap; tap != nil {
		if err := tap.Sent(p); err != nil {
			x.Cancel(err)
			return 0, err
		}
	}
	var n int
	var err error
	if through := x.conn.through; through != nil && x.startsRequest() {
		n, err = through.write(x.conn.nc, p)
	} else {
		n, err = x.conn.nc.Write(p)
	}
	x.touched = x.touched || n > 0
	return n, err
}

// startsRequest reports whether nothing of the request was written before. It is true once.
func (x *Exchange) startsRequest() bool {
	first := !x.wroteLine
	x.wroteLine = true
	return first
}

// incoming reads the response of an exchange.
type incoming Exchange

// Read implements io.Reader. It limits and charges the head, which http.ReadResponse keeps in memory
// from its first line.
func (in *incoming) Read(p []byte) (int, error) {
	x := (*Exchange)(in)
	n, err := x.conn.nc.Read(p)
	x.filled = n == len(p)
	if n <= 0 {
		return n, err
	}
	if tap := x.settings.Tap; tap != nil {
		if err := tap.Received(p[:n]); err != nil {
			x.Cancel(err)
			return 0, err
		}
	}
	if !x.head.complete {
		if err := x.head.read(p[:n]); err != nil {
			x.reject(err) // http.ReadResponse would wrap it in an error without its type
			return 0, err
		}
	}
	return n, err
}

// body is the body of a response. Its reader uses a buffer that is another exchange's after End.
type body struct {
	x       *Exchange
	from    io.ReadCloser // read over HTTP/2 only; nil: the exchange has ended
	left    int64         // bytes that are missing over HTTP/1.1; negative: until the connection ends
	chunks  chunks        // if there is a trailer
	trailer *http.Header  // what follows the last chunk; nil: no chunks over HTTP/1.1
	failed  error         // of the chunks or of the trailer
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.from == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.read(p)
	ended := errors.Is(err, io.EOF)
	switch x := b.x; {
	case err == nil || x.whole:
	case x.conn.h2 != nil && !ended:
		err = x.explain(err)
	case x.conn.h2 != nil:
	case ended:
		x.complete()
	default:
		if cause := x.Cause(); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (b *body) read(p []byte) (n int, err error) {
	if b.trailer == nil {
		return b.readLength(p)
	}
	if b.failed != nil || b.x.whole {
		return 0, cmp.Or(b.failed, io.EOF)
	}
	n, err = b.chunks.Read(p)
	if errors.Is(err, io.EOF) { // of the chunks: an early end is another error
		b.x.mayReuse = b.x.mayReuse && !b.chunks.bare
		err = cmp.Or(b.x.readTrailer(b.trailer), io.EOF)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

// readLength reads a body that is not in chunks.
func (b *body) readLength(p []byte) (n int, err error) {
	if b.x.conn.h2 != nil {
		return b.from.Read(p)
	}
	if b.left < 0 {
		return b.x.in.Read(p)
	}
	if b.left > 0 {
		n, err = b.x.in.Read(p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
	}
	if b.left == 0 {
		return n, io.EOF
	}
	return n, noEOF(err)
}

// readTrailer reads what follows the last chunk, with the limits of a head. Nothing of it decides.
func (x *Exchange) readTrailer(into *http.Header) error {
	head := partialHead{memory: x.settings.Memory, lines: 1} // as if the status line had been read
	defer head.drop()
	var text []byte
	for !head.complete {
		piece, err := x.in.ReadSlice('\n')
		if limit := head.read(piece); limit != nil {
			return limit
		}
		text = append(text, piece...)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return noEOF(err)
		}
	}
	if len(text) <= len("\r\n") { // the common case
		return nil
	}
	for line := range bytes.Lines(text) {
		x.mayReuse = x.mayReuse && bytes.HasSuffix(line, []byte("\r\n"))
		repairField(line)
	}
	fields, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(text))).ReadMIMEHeader()
	if err != nil {
		return err
	}
	if *into == nil {
		*into = make(http.Header, len(fields))
	}
	maps.Copy(*into, http.Header(fields))
	return nil
}

// Close implements io.Closer. The exchange closes the body.
func (b *body) Close() error { return nil }

// complete records that the response was read to its end.
func (x *Exchange) complete() {
	x.whole = true
	if (x.mayReuse || x.report.Reused) && x.hasMore() {
		x.surplus, x.mayReuse = true, false
		x.pool.distrust(x.conn)
	}
}

// Buffered returns the number of bytes of the body that are in memory. It is for HTTP/1.1; over HTTP/2 it
// returns 0.
func (x *Exchange) Buffered() int {
	if x.in == nil {
		return 0
	}
	return x.in.Buffered()
}

// hasMore reports whether bytes are there behind the response. If the last read got as much as it asked
// for, they may still be in the connection.
func (x *Exchange) hasMore() bool {
	return x.in.Buffered() > 0 || x.filled && x.conn.state() == spoke
}

// end1 gives a connection of HTTP/1.1 back, or closes it if it carries anything that is not over.
func (x *Exchange) end1(c *conn) {
	x.body.from = nil
	if x.began && !x.unused {
		if !x.whole || !x.wroteAll() || x.closeWith(nil) != nil {
			_ = c.socket.Close()
			x.mayReuse = false
		}
		if x.writing != nil {
			x.mayReuse = <-x.writing == nil && x.mayReuse // at once, because the socket is closed
		}
		if !x.mayReuse {
			x.pool.retire(c)
		}
	}
	if x.in != nil {
		x.in.Reset(nil)
		readers.Put(x.in)
		x.in = nil
	}
	x.pool.release(c, x.started)
}

// wroteAll reports whether the whole request was written. It waits a moment, because an origin answers
// as soon as it has the last byte.
func (x *Exchange) wroteAll() bool {
	if x.writing == nil {
		return true
	}
	s := x.conn.socket // the function may run when the exchange has no connection any more
	late := time.AfterFunc(writerTime, func() { _ = s.Close() })
	err := <-x.writing
	x.writing = nil
	return late.Stop() && err == nil
}
