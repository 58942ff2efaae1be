package conns

import (
	"crypto/tls"
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// frames is the TLS connection below an HTTP/2 connection. It reads the heads of the frames that pass,
// because net/http exports neither the number of a stream nor an error for one that a GOAWAY excludes.
type frames struct {
	*tls.Conn
	in, out frameHeads // in is used by the reader alone, out and opened under the write lock of HTTP/2
	opened  uint32     // the stream of the last HEADERS that were written; 0: none since takeOpened
	last    atomic.Uint32
}

// noGoAway is the value of frames.last before a GOAWAY.
const noGoAway = math.MaxUint32

func newFrames(c *tls.Conn) *frames {
	f := &frames{Conn: c, out: frameHeads{skip: len(http2.ClientPreface)}}
	f.last.Store(noGoAway)
	return f
}

// Read implements net.Conn.
func (f *frames) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	for rest := p[:n]; f.in.next(&rest); {
		if f.in.isGoAway() {
			last := binary.BigEndian.Uint32(f.in.head[frameHeadBytes:]) &^ (1 << 31)
			f.last.Store(min(last, f.last.Load())) // it must not grow (RFC 9113 §6.8)
		}
	}
	return n, err
}

// Write implements net.Conn. TLS writes whole records, so what it did not write the origin cannot read. If the
// connection has ended, Write reports success: HTTP/2 would close it, and lose responses that were received but
// not read. The reader reports the end behind them.
func (f *frames) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	for rest := p[:n]; f.out.next(&rest); {
		if f.out.kind() == http2.FrameHeaders {
			f.opened = binary.BigEndian.Uint32(f.out.head[5:])
		}
	}
	if err != nil && !timedOut(err) {
		return len(p), nil
	}
	return n, err
}

// Close implements net.Conn. TLS says goodbye, for which a peer that does not read gets a moment. HTTP/2 does
// the same for a [tls.Conn].
func (f *frames) Close() error {
	late := time.AfterFunc(250*time.Millisecond, func() { _ = f.NetConn().Close() })
	defer late.Stop()
	return f.Conn.Close()
}

// takeOpened returns the stream of the request whose headers were written just now, under the write lock
// of HTTP/2. It returns 0 if nothing of them was written.
func (f *frames) takeOpened() uint32 {
	stream := f.opened
	f.opened = 0
	return stream
}

// saidGoAway reports whether the origin has sent a GOAWAY.
func (f *frames) saidGoAway() bool { return f.last.Load() != noGoAway }

// excludes reports whether the origin has said in a GOAWAY that it does not process a stream.
func (f *frames) excludes(stream uint32) bool { return f.saidGoAway() && stream > f.last.Load() }

const (
	frameHeadBytes  = 9
	goAwayHeadBytes = frameHeadBytes + 4 // with the last stream
)

// frameHeads finds the heads of frames in the bytes that pass.
type frameHeads struct {
	skip int // bytes before the next head
	head [goAwayHeadBytes]byte
	size int // bytes of head, until it is complete
}

// next removes the bytes up to the end of the next head from p. It reports whether that head is complete.
func (h *frameHeads) next(p *[]byte) bool {
	for len(*p) > 0 {
		n := min(h.skip, len(*p))
		h.skip -= n
		*p = (*p)[n:]
		n = copy(h.head[h.size:h.want()], *p)
		h.size += n
		*p = (*p)[n:]
		if h.size >= frameHeadBytes && h.size == h.want() {
			h.skip = h.length() - (h.size - frameHeadBytes)
			h.size = 0
			return true
		}
	}
	return false
}

// want returns the size at which the head is complete, as far as that is known.
func (h *frameHeads) want() int {
	if h.size >= frameHeadBytes && h.isGoAway() {
		return goAwayHeadBytes
	}
	return frameHeadBytes
}

func (h *frameHeads) length() int { return int(h.head[0])<<16 | int(h.head[1])<<8 | int(h.head[2]) }

func (h *frameHeads) kind() http2.FrameType { return http2.FrameType(h.head[3]) }

// isGoAway reports whether the frame is a GOAWAY that is long enough for its last stream.
func (h *frameHeads) isGoAway() bool {
	return h.kind() == http2.FrameGoAway && h.length() >= goAwayHeadBytes-frameHeadBytes
}
