//go:build linux

package limits

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

const (
	unaryMethod  = "/fetchd.v1.FetchService/FetchUnary"
	streamMethod = "/fetchd.v1.FetchService/Fetch"
	manyMethod   = "/fetchd.v1.FetchService/FetchMany"
	healthMethod = "/grpc.health.v1.Health/Check"

	callsPerConnection = 999 // fetchd accepts 1,000
)

var errStreamEnded = errors.New("the service has ended the call")

// wire is a gRPC connection made of HTTP/2 frames. Unlike a gRPC library it can announce a
// window of 0 and leave a message unfinished. It respects the service's windows, so that
// the service does not end it for that.
type wire struct {
	conn  net.Conn
	ended func(code codes.Code) // called for each call that ends

	writing sync.Mutex // guards the framer's writes, the encoder and next
	framer  *http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	next    uint32

	mu      sync.Mutex // guards what follows
	moved   *sync.Cond
	closed  bool
	window  int64            // of the connection
	initial int64            // of a new stream
	streams map[uint32]*call // that have not ended
	quiet   int              // of streams, those that the service has not started to answer
	reader  sync.WaitGroup
}

// call is one call of a wire.
type call struct {
	window   int64 // granted by the service
	answered bool
}

// dialWire connects from a local address. The service may send window bytes for
// each call. The connection closes when ctx ends.
func dialWire(ctx context.Context, local, addr string, window uint32, ended func(codes.Code)) (*wire, error) {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, ended: ended, framer: http2.NewFramer(conn, conn), next: 1, window: 65_535, initial: 65_535, streams: make(map[uint32]*call)}
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.encoder = hpack.NewEncoder(&w.block)
	w.moved = sync.NewCond(&w.mu)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		conn.Close()
		return nil, err
	}
	if err := w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		conn.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	w.reader.Go(func() {
		w.read()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.closed = true
		w.moved.Broadcast()
	})
	return w, nil
}

// close closes the connection and waits for its reader.
func (w *wire) close() {
	w.conn.Close()
	w.reader.Wait()
}

// read processes the service's frames until the connection ends.
func (w *wire) read() {
	for {
		frame, err := w.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
					w.widenAll(int64(v))
				}
				_ = w.write(w.framer.WriteSettingsAck) // the next read fails too
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = w.write(func() error { return w.framer.WritePing(true, f.Data) })
			}
		case *http2.WindowUpdateFrame:
			w.widen(f.StreamID, int64(f.Increment))
		case *http2.DataFrame:
			if n := f.Header().Length; n > 0 { // the stream's own window stays as it is
				_ = w.write(func() error { return w.framer.WriteWindowUpdate(0, n) })
			}
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				w.end(f.StreamID, statusOf(f))
			} else {
				w.answered(f.StreamID)
			}
		case *http2.RSTStreamFrame:
			w.end(f.StreamID, codes.Unavailable)
		}
	}
}

// statusOf returns the gRPC status of trailers.
func statusOf(f *http2.MetaHeadersFrame) codes.Code {
	for _, field := range f.RegularFields() {
		if field.Name == "grpc-status" {
			if n, err := strconv.ParseUint(field.Value, 10, 32); err == nil {
				return codes.Code(n)
			}
		}
	}
	return codes.Unknown
}

// answered records that the service has started to answer a call.
func (w *wire) answered(stream uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.streams[stream]; c != nil && !c.answered {
		c.answered = true
		w.quiet--
		w.moved.Broadcast()
	}
}

func (w *wire) end(stream uint32, code codes.Code) {
	if w.forget(stream) {
		w.ended(code)
	}
}

// forget removes a call, and reports whether it had not ended before.
func (w *wire) forget(stream uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.streams[stream]
	if c == nil {
		return false
	}
	if !c.answered {
		w.quiet--
	}
	delete(w.streams, stream)
	w.moved.Broadcast()
	return true
}

func (w *wire) widen(stream uint32, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if stream == 0 {
		w.window += n
	} else if c := w.streams[stream]; c != nil {
		c.window += n
	}
	w.moved.Broadcast()
}

// widenAll changes the window of every stream (RFC 9113 §6.9.2).
func (w *wire) widenAll(initial int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.streams {
		c.window += initial - w.initial
	}
	w.initial = initial
	w.moved.Broadcast()
}

func (w *wire) write(frame func() error) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	return frame()
}

// start sends the head of a call and returns its stream.
func (w *wire) start(path string, headers ...string) (uint32, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	stream := w.next
	w.next += 2
	w.mu.Lock()
	w.streams[stream] = &call{window: w.initial}
	w.quiet++
	w.mu.Unlock()
	w.block.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "limits.test",
		"content-type", "application/grpc", "te", "trailers"}, headers...)
	for i := 0; i < len(fields); i += 2 {
		if err := w.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return 0, err
		}
	}
	return stream, w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: w.block.Bytes(), EndHeaders: true})
}

// send sends bytes of a call as the windows allow. It returns errStreamEnded if the service
// ends the call first.
func (w *wire) send(stream uint32, data []byte, last bool) error {
	for {
		n, err := w.grant(stream, len(data))
		if err != nil {
			return err
		}
		part := data[:n]
		data = data[n:]
		if err := w.write(func() error { return w.framer.WriteData(stream, last && len(data) == 0, part) }); err != nil {
			return err
		}
		if len(data) == 0 {
			return nil
		}
	}
}

// grant waits until something may be sent, and takes it from the windows.
func (w *wire) grant(stream uint32, want int) (int, error) {
	const frame = 16 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		c := w.streams[stream]
		if w.closed {
			return 0, net.ErrClosed
		}
		if c == nil {
			return 0, errStreamEnded
		}
		if n := min(int64(want), w.window, c.window, frame); n > 0 || want == 0 {
			w.window -= n
			c.window -= n
			return int(n), nil
		}
		w.moved.Wait()
	}
}

// reset ends a call at once.
func (w *wire) reset(stream uint32) error {
	w.forget(stream)
	return w.write(func() error { return w.framer.WriteRSTStream(stream, http2.ErrCodeCancel) })
}

// pace waits until the service has fewer than most unanswered calls.
func (w *wire) pace(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.quiet >= most && !w.closed {
		w.moved.Wait()
	}
}

// answers waits until the service has started to answer every call.
func (w *wire) answers() { w.pace(1) }

// idle waits until every call has ended. It returns how many had not when the connection
// closed.
func (w *wire) idle() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.streams) > 0 && !w.closed {
		w.moved.Wait()
	}
	return len(w.streams)
}

// framed returns a gRPC message with its prefix.
func framed(message []byte, compressed bool) []byte {
	out := make([]byte, 5, 5+len(message))
	if compressed {
		out[0] = 1
	}
	binary.BigEndian.PutUint32(out[1:], uint32(len(message)))
	return append(out, message...)
}
