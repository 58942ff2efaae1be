package transmissions

import (
	"io"
	"net"

	"golang.org/x/net/http2"
)

// The functions that commit faults report whether to keep the connection.

func close1(net.Conn) bool              { return false }
func answer204(c net.Conn) bool         { return say(c, "HTTP/1.1 204 No Content\r\n\r\n") }
func silent1(net.Conn) bool             { return true }
func silent2(f *frames, _ request) bool { f.silent = true; return true }
func reset1(c net.Conn) bool            { reset(c); return false }
func reset2(f *frames, _ request) bool  { reset(f); return false }
func close2(*frames, request) bool      { return false }

// goAway refuses the request and all later ones of the connection.
func goAway(code http2.ErrCode) func(*frames, request) bool {
	return func(f *frames, r request) bool {
		return f.write(func() error { return f.WriteGoAway(r.stream-1, code, nil) }) == nil
	}
}

// resetStream breaks the stream of a request.
func resetStream(code http2.ErrCode) func(*frames, request) bool {
	return func(f *frames, r request) bool {
		return f.write(func() error { return f.WriteRSTStream(r.stream, code) }) == nil
	}
}

// lastStream sends a GOAWAY whose last stream is that of the request.
func lastStream(then func(*frames, request) bool) func(*frames, request) bool {
	return func(f *frames, r request) bool {
		return f.write(func() error { return f.WriteGoAway(r.stream, http2.ErrCodeNo, nil) }) == nil && then(f, r)
	}
}

// headers writes a header block.
func headers(end bool, pairs ...string) func(*frames, request) error {
	return func(f *frames, r request) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: r.stream, BlockFragment: f.encode(pairs...), EndHeaders: end})
	}
}

// halfHead sends a header block without its end.
func halfHead(f *frames, r request) bool {
	_ = f.write(func() error { return headers(false, ":status", "200")(f, r) })
	return false
}

// leave ends its side of a connection, and waits until the client has ended the other side.
func leave(c net.Conn) bool {
	if f, ok := c.(*frames); ok {
		c = f.Conn
	}
	closeWrite(c)
	_, _ = io.Copy(io.Discard, c)
	return false
}

// closeWrite ends this side of a connection.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// late408 answers a request that the client has not sent.
func late408(c net.Conn) bool {
	return say(c, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n") && leave(c)
}

// dismiss says that the connection takes no more requests. The answer to the PING shows that the client
// has read it.
func dismiss(f *frames, r request) bool {
	return f.write(func() error { return f.WriteGoAway(r.stream, http2.ErrCodeNo, nil) }) == nil &&
		f.write(func() error { return f.WritePing(false, [8]byte{1}) }) == nil
}
