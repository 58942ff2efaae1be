package origin

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// serveFunc serves one accepted connection. ctx ends when the origin is closed.
type serveFunc func(o *Origin, ctx context.Context, c *connection)

// listenerKind is a named listener: how it treats its connections.
type listenerKind struct {
	name  string
	doc   string
	tls   bool // its URLs start with https
	serve serveFunc
}

// refusedName is the name of the address on which nothing listens.
const refusedName = "refused"

// listenerKinds returns every listener except "refused", in the order of the index.
func listenerKinds() []listenerKind {
	return []listenerKind{
		{"http", "HTTP/1.1, and HTTP/2 with prior knowledge", false, serveHTTP1},
		{"http-other", "the same on another port", false, serveHTTP1},
		{"https", "good certificate, HTTP/2 and HTTP/1.1", true, serveTLS(goodConfig)},
		{"https1", "good certificate, HTTP/1.1 only", true, serveTLS(http1Config)},
		{"h2fault", "good certificate, HTTP/2 frame by frame: the h2- steps", true, serveFrames},
		{"tls-expired", "expired certificate", true,
			serveTLS(func(a *authority) *tls.Config { return configFor(a.expired, "h2", "http/1.1") })},
		{"tls-wrong-name", "certificate for another name", true,
			serveTLS(func(a *authority) *tls.Config { return configFor(a.wrongName, "h2", "http/1.1") })},
		{"tls-unknown-ca", "certificate of an authority that no client trusts", true,
			serveTLS(func(a *authority) *tls.Config { return configFor(a.unknown, "h2", "http/1.1") })},
		{"tls-old", "TLS 1.0 only", true, serveTLS(oldConfig)},
		{"mtls", "requires a client certificate (GET /_client.pem elsewhere)", true, serveTLS(mutualConfig)},
		{"tls-cut", "closes in the middle of the handshake", true, serveCut},
		{"tls-reset", "resets in the middle of the handshake", true, serveTLSReset},
		{"tls-plain", "answers the ClientHello with plain HTTP", true, servePlain},
		{"tls-garbage", "answers the ClientHello with garbage", true, serveGarbage},
		{"tls-silent", "never answers the ClientHello", true, serveSilent},
		{"tcp-reset", "resets on accept; the client may see it while it connects", false, serveReset},
		{"tcp-close", "closes on accept", false, serveClose},
		{"tcp-silent", "reads and never answers", false, serveSilent},
		{"tcp-noread", "neither reads nor answers", false, serveNoRead},
	}
}

// Listeners returns the names of all listeners. "refused" is not among them: it is
// an address on which nothing listens.
func Listeners() []string {
	var names []string
	for _, k := range listenerKinds() {
		names = append(names, k.name)
	}
	return names
}

func kindOf(name string) (listenerKind, bool) {
	for _, k := range listenerKinds() {
		if k.name == name {
			return k, true
		}
	}
	return listenerKind{}, false
}

// Serve answers plain HTTP/1.1, and HTTP/2 with prior knowledge, on l. It returns
// nil after [Origin.Close], and an error if Accept fails. It closes l. It is the
// same as ServeAs("http", l).
func (o *Origin) Serve(l net.Listener) error { return o.ServeAs("http", l) }

// ServeAs is like [Origin.Serve], but treats connections as the named listener
// does, for example "h2fault" or "tls-cut". An unknown name is an error.
func (o *Origin) ServeAs(name string, l net.Listener) error {
	kind, ok := kindOf(name)
	if !ok {
		return fmt.Errorf("serve: no listener %q", name)
	}
	if !o.tracker.add(l) {
		return nil
	}
	defer o.tracker.remove(l)
	return o.accept(kind, l)
}

func (o *Origin) accept(kind listenerKind, l net.Listener) error {
	for {
		conn, err := l.Accept()
		switch {
		case err != nil && o.ctx.Err() != nil: // the origin is closed
			return nil
		case err != nil:
			return fmt.Errorf("accept on %s: %w", kind.name, err)
		case !o.tracker.add(conn):
			return nil
		}
		go func() {
			defer o.tracker.remove(conn)
			kind.serve(o, o.ctx, o.tracker.connect(kind.name, conn))
		}()
	}
}

// open binds a listener and serves it.
func (o *Origin) open(kind listenerKind, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	o.setAddr(kind.name, l.Addr())
	if !o.tracker.add(l) {
		return net.ErrClosed
	}
	go func() {
		defer o.tracker.remove(l)
		if err := o.accept(kind, l); err != nil {
			o.logger.Error("listener ended", "listener", kind.name, "error", err)
		}
	}()
	return nil
}

func (o *Origin) setAddr(name string, addr net.Addr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addresses[name] = addr.String()
}

// holdRefused reserves a port on which nothing listens: the client's end of a
// connection that stays open, so that no other program can bind it.
func (o *Origin) holdRefused() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("reserve a refused port: %w", err)
	}
	defer l.Close() // the accepted connection stays open
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return fmt.Errorf("reserve a refused port: %w", err)
	}
	server, err := l.Accept()
	if err != nil {
		return errors.Join(fmt.Errorf("reserve a refused port: %w", err), client.Close())
	}
	o.setAddr(refusedName, client.LocalAddr())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = append(o.held, client, server)
	return nil
}

func serveHTTP1(o *Origin, ctx context.Context, c *connection) { newH1Conn(o, c).serve(ctx) }

// serveTLS returns a function that serves HTTP/1.1 or HTTP/2 over TLS, whichever
// the handshake negotiates.
func serveTLS(config func(*authority) *tls.Config) serveFunc {
	return func(o *Origin, ctx context.Context, c *connection) {
		o.handshake(ctx, c, config, o.serveH2)
	}
}

func serveFrames(o *Origin, ctx context.Context, c *connection) {
	o.handshake(ctx, c, goodConfig, func(ctx context.Context, c *connection) { newH2Conn(o, c).serve(ctx) })
}

// handshake completes the TLS handshake and serves the negotiated protocol, with
// h2 if that is HTTP/2.
func (o *Origin) handshake(
	ctx context.Context, c *connection, config func(*authority) *tls.Config, h2 func(context.Context, *connection),
) {
	a, err := o.authority()
	if err != nil {
		o.logger.Error("make certificates", "error", err)
		return
	}
	conn := tls.Server(c.Conn, config(a))
	if err := conn.HandshakeContext(ctx); err != nil {
		return
	}
	c.Conn = conn
	defer conn.Close() // sends close_notify if the connection is still open
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		h2(ctx, c)
		return
	}
	newH1Conn(o, c).serve(ctx)
}

func configFor(cert tls.Certificate, protocols ...string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protocols}
}

func goodConfig(a *authority) *tls.Config { return configFor(a.good, "h2", "http/1.1") }

func http1Config(a *authority) *tls.Config { return configFor(a.good, "http/1.1") }

func oldConfig(a *authority) *tls.Config {
	cfg := http1Config(a)
	cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	return cfg
}

func mutualConfig(a *authority) *tls.Config {
	cfg := goodConfig(a)
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, a.pool()
	return cfg
}

// The listeners that break before HTTP starts.

const (
	recordHeader    = 5  // size of a TLS record header (RFC 8446 §5.1): type, version, length
	recordHandshake = 22 // type of a TLS record that has a ClientHello
)

// readHello reads the TLS record with the ClientHello.
func readHello(r io.Reader) error {
	header := make([]byte, recordHeader)
	if _, err := io.ReadFull(r, header); err != nil {
		return err
	}
	length := int64(header[3])<<8 | int64(header[4])
	_, err := io.CopyN(io.Discard, r, length)
	return err
}

// serveCut sends the start of a ServerHello and closes.
func serveCut(_ *Origin, _ context.Context, c *connection) {
	if readHello(c) != nil {
		return
	}
	// The headers announce a record of 122 bytes with a ServerHello of 118. Two follow.
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

// servePlain answers a ClientHello with plain HTTP, and serves clients that speak
// plain HTTP.
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
		_, _ = io.Copy(io.Discard, bufio.NewReader(c)) // an early close could reset before the client has read
	}
}

func serveSilent(_ *Origin, _ context.Context, c *connection) {
	_, _ = io.Copy(io.Discard, c) // until the client leaves
}

func serveNoRead(_ *Origin, ctx context.Context, c *connection) {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetReadBuffer(4 << 10) // a hint, so that the buffer is full sooner
	}
	<-ctx.Done() // without a read the origin cannot notice that the client left
}

func serveReset(_ *Origin, _ context.Context, c *connection) { c.sever(howRst) }

// serveClose closes the writing side and continues to read. Closing both sides
// while bytes are unread would reset the connection.
func serveClose(_ *Origin, _ context.Context, c *connection) {
	c.closeWrite()
	_, _ = io.Copy(io.Discard, c)
}
