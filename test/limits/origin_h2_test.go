//go:build linux

package limits

import (
	"io"
	"net"
	"net/url"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// streamsPerConnection is the hostile origin's limit over HTTP/2. It is one, so that each
// fetch needs its own TLS connection, and an unfinished head blocks no other.
const streamsPerConnection = 1

// serveHTTP2 answers requests frame by frame: net/http's server would not leave a head
// unfinished.
func (h *hostile) serveHTTP2(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	x := &h2conn{hostile: h, conn: c, framer: http2.NewFramer(c, c)}
	x.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	defer x.answers.Wait()
	if x.write(func() error {
		return x.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: streamsPerConnection})
	}) != nil {
		return
	}
	for {
		frame, err := x.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = x.write(x.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = x.write(func() error { return x.framer.WritePing(true, f.Data) })
			}
		case *http2.MetaHeadersFrame:
			id, target := f.StreamID, f.PseudoValue("path")
			x.answers.Go(func() { x.answer(id, target) })
		}
		if err != nil {
			return
		}
	}
}

// h2conn is one connection of the origin.
type h2conn struct {
	hostile *hostile
	conn    net.Conn
	answers sync.WaitGroup

	mu      sync.Mutex // guards the framer's writes
	framer  *http2.Framer
	stopped bool // a header block is unfinished: nothing else may be written
}

func (x *h2conn) write(frame func() error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stopped {
		return nil
	}
	return frame()
}

// answer sends a head. The reading goroutine notices errors.
func (x *h2conn) answer(stream uint32, target string) {
	u, err := url.Parse(target)
	if err != nil {
		return
	}
	if u.Path == "/gate" {
		x.hostile.wait()
	}
	block := x.hostile.http2Head(u)
	stop := u.Path == "/stop"
	_ = x.write(func() error {
		x.stopped = stop
		return x.writeBlock(stream, block)
	})
	if stop {
		<-x.hostile.siegeEnd()
		x.conn.Close()
	}
}

// writeBlock writes a header block in frames of 16 KiB.
func (x *h2conn) writeBlock(stream uint32, block []byte) error {
	const frame = 16 << 10
	first := true
	for first || len(block) > 0 {
		part := block[:min(len(block), frame)]
		block = block[len(part):]
		end := len(block) == 0 && !x.stopped
		var err error
		if first {
			err = x.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndStream: true, EndHeaders: end})
		} else {
			err = x.framer.WriteContinuation(stream, end, part)
		}
		if err != nil {
			return err
		}
		first = false
	}
	return nil
}

// http2Head returns the header block that u requests.
func (h *hostile) http2Head(u *url.URL) []byte {
	asked := h.asked(u)
	made, ok := h.http2.Load(asked)
	if !ok {
		made, _ = h.http2.LoadOrStore(asked, asked.http2())
	}
	block, _ := made.([]byte)
	return block
}
