package origin

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// The values of fault in h2-bad-frame.
const (
	frameStream0  = "stream0"
	frameSettings = "settings"
	frameOversize = "oversize"
	frameHPACK    = "hpack"
)

func runH2Reset(x *exchange, s *step) error {
	w, ok := x.wire.(*h2wire)
	if !ok { // only the listener h2fault writes single frames
		return errUnsupported
	}
	w.abortCode = http2.ErrCode(s.code)
	if s.at == atInBody {
		return x.respond("200", brokenBody(s.after, ""))
	}
	return w.abort()
}

// disclaims reports whether the step answers a stream of HTTP/2 by saying that its request was not
// processed (RFC 9113 §8.7). The stream is 0 where no single frames are written.
func (s *step) disclaims(stream uint32) bool {
	switch {
	case stream == 0:
		return false
	case s.kind.name == "h2-rst":
		return http2.ErrCode(s.code) == http2.ErrCodeRefusedStream && s.at != atInBody
	}
	return strings.HasPrefix(s.kind.name, "h2-goaway") && s.lastStream(stream) < stream
}

// lastStream returns the last stream that a GOAWAY includes.
func (s *step) lastStream(stream uint32) uint32 {
	if s.last == lastThis {
		return stream
	}
	n, _ := strconv.ParseUint(s.last, 10, 31) // checked by setLast; absent is 0
	return uint32(n)
}

func runH2GoAway(x *exchange, s *step) error {
	w, ok := x.wire.(*h2wire)
	if !ok { // only the listener h2fault writes single frames
		return errUnsupported
	}
	last := s.lastStream(w.stream.id)
	if err := w.conn.goAway(last, http2.ErrCode(s.code)); err != nil {
		return err
	}
	if last >= w.stream.id {
		plain := newStep()
		plain.status = "200"
		return runStatus(x, &plain)
	}
	return x.waitBroken()
}

// goAway sends GOAWAY. Streams above last are ignored from then on.
func (c *h2conn) goAway(last uint32, code http2.ErrCode) error {
	c.mu.Lock()
	c.lastID = last
	c.mu.Unlock()
	return c.write(func() error { return c.framer.WriteGoAway(last, code, nil) })
}

// waitBroken waits until the client closes the stream or the connection.
func (x *exchange) waitBroken() error {
	<-x.ctx.Done()
	return errBroken
}

func runH2BadFrame(x *exchange, s *step) error {
	w, ok := x.wire.(*h2wire)
	if !ok { // only the listener h2fault writes single frames
		return errUnsupported
	}
	if err := w.conn.write(func() error { return w.badFrame(s.fault) }); err != nil {
		return err
	}
	return x.waitBroken()
}

func (w *h2wire) badFrame(fault string) error {
	framer := w.conn.framer
	switch fault {
	case frameSettings: // length not a multiple of 6 (RFC 9113 §6.5)
		return framer.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5))
	case frameOversize: // a length of 16 MiB - 1 (§4.2)
		_, err := w.conn.conn.Write([]byte{0xff, 0xff, 0xff, byte(http2.FrameData), 0, 0, 0, 0, 1})
		return err
	case frameHPACK: // index 0 (RFC 7541 §6.1)
		return framer.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, w.stream.id, []byte{0x80})
	}
	return framer.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) // §6.1
}

// hugeHeadBytes exceeds the default limit of net/http clients.
const hugeHeadBytes = 16 << 20

func runH2HugeHead(x *exchange, s *step) error {
	w, ok := x.wire.(*h2wire)
	if !ok { // only the listener h2fault writes single frames
		return errUnsupported
	}
	size := s.size
	if size == unset {
		size = hugeHeadBytes
	}
	h := &head{status: "200", fields: []Field{{"Date", formatDate(time.Now(), "")}}, length: 0}
	value := strings.Repeat("a", h2FrameBytes)
	for left := size; left > 0; left -= h2FrameBytes {
		h.fields = append(h.fields, Field{"X-Filler", value[:min(left, h2FrameBytes)]})
	}
	if err := w.begin(h); err != nil {
		return err
	}
	return w.end(nil)
}
