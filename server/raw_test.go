package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawClient is a client that sends raw HTTP/2 frames.
type rawClient struct {
	*testing.T
	net.Conn
	framer *http2.Framer
	fields *hpack.Encoder
	buffer bytes.Buffer // of fields
}

// window sets the initial window of streams. A client with 0 receives no message.
func window(n uint32) http2.Setting {
	return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}
}

// dialFrom connects from the address 127.0.0.last.
func (r *rig) dialFrom(last byte) net.Conn {
	r.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
	return r.dial(func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", r.Addr) })
}

// dial returns a connection that is closed at the end of the test.
func (r *rig) dial(dial func(context.Context) (net.Conn, error)) net.Conn {
	r.Helper()
	conn, err := dial(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hostile returns a raw client whose reads and writes end after 20 s, which is longer than any
// test.
func (r *rig) hostile(settings ...http2.Setting) *rawClient {
	r.Helper()
	c := r.raw(r.dialFrom(2), settings...)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// raw starts HTTP/2 on a connection.
func (r *rig) raw(conn net.Conn, settings ...http2.Setting) *rawClient {
	r.Helper()
	c := &rawClient{T: r.T, Conn: conn, framer: http2.NewFramer(conn, conn)}
	c.fields = hpack.NewEncoder(&c.buffer)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := io.WriteString(conn, http2.ClientPreface)
	c.must(errors.Join(err, c.framer.WriteSettings(settings...)))
	return c
}

func (c *rawClient) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// open sends the headers of a call, with additional fields.
func (c *rawClient) open(stream uint32, method string, more ...[2]string) {
	c.Helper()
	c.must(c.head(stream, false, append([][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method},
		{":authority", "fetchd"}, {"content-type", "application/grpc"}, {"te", "trailers"}}, more...)...))
}

// head sends header fields.
func (c *rawClient) head(stream uint32, end bool, fields ...[2]string) error {
	c.buffer.Reset()
	for _, f := range fields {
		if err := c.fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.buffer.Bytes(), EndHeaders: true, EndStream: end})
}

// send sends the bytes of a framed message between two offsets. If to is negative, it sends the rest
// and ends the stream.
func (c *rawClient) send(stream uint32, message []byte, from, to int) {
	c.Helper()
	framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...) //nolint:gosec // a short message
	if to < 0 {
		to = len(framed)
	}
	for ; from < to; from += 16 << 10 {
		c.must(c.framer.WriteData(stream, to == len(framed) && from+16<<10 >= to, framed[from:min(from+16<<10, to)]))
	}
}

// next reads until a stream ends, and returns it with its headers and trailers.
func (c *rawClient) next() (stream uint32, fields map[string]string) {
	c.Helper()
	stream, _, fields, err := c.read(0)
	c.must(err)
	return stream, fields
}

// read reads until a stream ends, or any stream if it is 0. It returns its data and its headers and
// trailers.
func (c *rawClient) read(stream uint32) (ended uint32, data []byte, fields map[string]string, err error) {
	fields = make(map[string]string)
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return 0, data, fields, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.framer.WriteSettingsAck() // the next read returns the error
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = c.framer.WritePing(true, f.Data)
			}
		case *http2.DataFrame:
			if stream == 0 || f.StreamID == stream {
				data = append(data, f.Data()...)
			}
		case *http2.MetaHeadersFrame:
			if stream != 0 && f.StreamID != stream {
				continue
			}
			for _, field := range f.Fields {
				fields[field.Name] = field.Value
			}
			if f.StreamEnded() {
				return f.StreamID, data, fields, nil
			}
		}
	}
}
