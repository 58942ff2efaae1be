package origin

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2wire is one exchange on an h2conn.
type h2wire struct {
	conn      *h2conn
	stream    *h2stream
	ended     bool
	abortCode http2.ErrCode
}

func (w *h2wire) major() int { return 2 }

func (w *h2wire) flush() error { return nil }

func (w *h2wire) interim(status int, fields []Field) error {
	return w.headers(&head{status: strconv.Itoa(status), fields: fields, length: unset}, false)
}

func (w *h2wire) begin(h *head) error {
	w.ended = h.bodyless
	return w.headers(h, h.bodyless)
}

// headers sends a header block. Blocks over 16 KiB are split into CONTINUATION
// frames. A block that drips has frames of one byte each.
func (w *h2wire) headers(h *head, end bool) error {
	size, c := h2FrameBytes, w.conn
	if h.drip > 0 {
		size = 1
	}
	return c.write(func() error {
		block := c.encode(h)
		for first := true; ; first = false {
			chunk := block[:min(size, len(block))]
			block = block[len(chunk):]
			last := len(block) == 0
			var err error
			if first {
				err = c.framer.WriteHeaders(http2.HeadersFrameParam{
					StreamID: w.stream.id, BlockFragment: chunk, EndHeaders: last, EndStream: end,
				})
			} else {
				err = c.framer.WriteContinuation(w.stream.id, last, chunk)
			}
			if err != nil || last {
				return err
			}
			if h.drip > 0 {
				if err := wait(w.stream.ctx, h.drip); err != nil {
					return err
				}
			}
		}
	})
}

// encode returns the header block of h. The caller holds writing.
func (c *h2conn) encode(h *head) []byte {
	c.block.Reset()
	if h.status != "" {
		c.encodeField(":status", h.status)
	}
	for _, f := range h.fields {
		if !isConnectionField(f.Name) {
			c.encodeField(f.Name, f.Value)
		}
	}
	if h.length != unset {
		c.encodeField("content-length", strconv.FormatInt(h.length, 10))
	}
	return slices.Clone(c.block.Bytes())
}

func (c *h2conn) encodeField(name, value string) {
	// Writing to a bytes.Buffer does not fail.
	_ = c.encoder.WriteField(hpack.HeaderField{Name: strings.ToLower(name), Value: value})
}

func (w *h2wire) body(p []byte) error {
	for len(p) > 0 {
		n, err := w.conn.reserve(w.stream, int64(len(p)))
		if err != nil {
			return err
		}
		err = w.conn.write(func() error { return w.conn.framer.WriteData(w.stream.id, false, p[:n]) })
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (w *h2wire) end(trailers []Field) error {
	switch {
	case w.ended:
		return nil
	case len(trailers) > 0:
		return w.headers(&head{fields: trailers, length: unset}, true)
	}
	return w.conn.write(func() error { return w.conn.framer.WriteData(w.stream.id, true, nil) })
}

func (w *h2wire) abort() error {
	if err := w.conn.resetStream(w.stream.id, w.abortCode); err != nil {
		return err
	}
	return errBroken
}

func (w *h2wire) sever(how string) error {
	w.conn.conn.sever(how)
	return errBroken
}

func (w *h2wire) raw(p []byte) error {
	return w.conn.write(func() error {
		_, err := w.conn.conn.Write(p)
		return err
	})
}

// isConnectionField reports whether HTTP/2 forbids the field (RFC 9113 §8.2.2).
func isConnectionField(name string) bool {
	switch strings.ToLower(name) {
	case "connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection":
		return true
	}
	return false
}
