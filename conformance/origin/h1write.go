package origin

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
