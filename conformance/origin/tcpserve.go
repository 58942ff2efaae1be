package origin

import (
	"bufio"
	"context"
	"io"
	"net"
)

// The listeners that break before HTTP begins.

// recordHeader is the size of a TLS record header (RFC 8446 §5.1): type,
// version, length.
const recordHeader = 5

// recordHandshake is the type of a record with a hello in it.
const recordHandshake = 22

// readHello reads the record in which the client says hello.
func readHello(r io.Reader) error {
	header := make([]byte, recordHeader)
	if _, err := io.ReadFull(r, header); err != nil {
		return err
	}
	length := int64(header[3])<<8 | int64(header[4])
	_, err := io.CopyN(io.Discard, r, length)
	return err
}

// serveCut begins a ServerHello, ends it early, and closes.
func serveCut(_ *Origin, _ context.Context, c *connection) {
	if readHello(c) != nil {
		return
	}
	// A record of 122 bytes, a ServerHello of 118, and only two of them.
	_, _ = c.Write([]byte{recordHandshake, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3})
}

func serveTLSReset(_ *Origin, _ context.Context, c *connection) {
	if readHello(c) == nil {
		c.sever(howRst)
	}
}

func serveGarbage(o *Origin, _ context.Context, c *connection) {
	if readHello(c) == nil {
		_, _ = c.Write(o.Body(64))
	}
}

// servePlain answers a hello in plain HTTP, and serves those who do not say
// hello.
func servePlain(o *Origin, ctx context.Context, c *connection) {
	h1 := newH1Conn(o, c)
	first, err := h1.br.Peek(1)
	if err != nil {
		return
	}
	if first[0] != recordHandshake {
		h1.serve(ctx)
		return
	}
	if readHello(h1.br) == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 6\r\n\r\nplain\n")
		_, _ = io.Copy(io.Discard, bufio.NewReader(c)) // let it be read
	}
}

func serveSilent(_ *Origin, _ context.Context, c *connection) {
	_, _ = io.Copy(io.Discard, c) // until the client leaves
}

func serveNoRead(_ *Origin, ctx context.Context, c *connection) {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetReadBuffer(4 << 10) // a hint: full sooner
	}
	<-ctx.Done() // without reading there is no noticing that the client left
}

func serveReset(_ *Origin, _ context.Context, c *connection) { c.sever(howRst) }

// serveClose closes the writing side and reads on: closing both while bytes
// are unread would reset.
func serveClose(_ *Origin, _ context.Context, c *connection) {
	c.closeWrite()
	_, _ = io.Copy(io.Discard, c)
}
