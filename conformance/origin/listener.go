package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// listenerKind is one named listener: how its connections are treated.
type listenerKind struct {
	name  string
	doc   string
	tls   bool // its URLs begin with https
	serve func(o *Origin, ctx context.Context, c *connection)
}

// refusedName is the address on which nothing listens.
const refusedName = "refused"

// listenerKinds returns every listener, "refused" apart, in the order of the
// index.
func listenerKinds() []listenerKind {
	return []listenerKind{
		{"http", "HTTP/1.1, and HTTP/2 with prior knowledge", false, serveHTTP1},
		{"http-other", "the same on another port", false, serveHTTP1},
		{"https", "good certificate, HTTP/2 and HTTP/1.1", true, serveGood},
		{"https1", "good certificate, HTTP/1.1 only", true, serveGood1},
		{"h2fault", "good certificate, HTTP/2 frame by frame: the h2- steps", true, serveFrames},
		{"tls-expired", "certificate past its date", true, serveExpired},
		{"tls-wrong-name", "certificate for another name", true, serveWrongName},
		{"tls-unknown-ca", "certificate of an authority that nobody knows", true, serveUnknownCA},
		{"tls-old", "TLS 1.0 only", true, serveOld},
		{"mtls", "demands a client certificate (GET /_client.pem elsewhere)", true, serveMutual},
		{"tls-cut", "closes in the middle of the handshake", true, serveCut},
		{"tls-reset", "resets in the middle of the handshake", true, serveTLSReset},
		{"tls-plain", "answers the hello in plain HTTP", true, servePlain},
		{"tls-garbage", "answers the hello with garbage", true, serveGarbage},
		{"tls-silent", "never answers the hello", true, serveSilent},
		{"tcp-reset", "resets on accept, which a client may meet while it connects", false, serveReset},
		{"tcp-close", "closes on accept", false, serveClose},
		{"tcp-silent", "reads and says nothing", false, serveSilent},
		{"tcp-noread", "neither reads nor says anything", false, serveNoRead},
	}
}

// Listeners returns the names of all listeners. "refused" is not among them: it is an address
// on which nothing listens.
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

// Serve answers plain HTTP/1.1, and HTTP/2 with prior knowledge, on l until
// [Origin.Close], and then returns nil; any other end is an error of Accept.
// It closes l. It is ServeAs("http", l).
func (o *Origin) Serve(l net.Listener) error { return o.ServeAs("http", l) }

// ServeAs is [Origin.Serve] in the manner of the named listener, for instance
// "h2fault" or "tls-cut". An unknown name is an error.
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
		if o.tracker.isClosed() {
			if err == nil {
				_ = conn.Close() // nobody will serve it
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept on %s: %w", kind.name, err)
		}
		if !o.tracker.add(conn) {
			return nil
		}
		go o.serveConn(kind, conn)
	}
}

func (o *Origin) serveConn(kind listenerKind, conn net.Conn) {
	defer o.tracker.remove(conn)
	kind.serve(o, o.ctx, o.tracker.connect(kind.name, conn))
}

// open binds the named listener and serves it.
func (o *Origin) open(name, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	o.setAddr(name, l.Addr())
	kind, ok := kindOf(name)
	if !ok || !o.tracker.add(l) {
		return errors.Join(net.ErrClosed, l.Close())
	}
	go func() {
		defer o.tracker.remove(l)
		if err := o.accept(kind, l); err != nil {
			o.logger.Error("listener ended", "listener", name, "error", err)
		}
	}()
	return nil
}

func (o *Origin) setAddr(name string, addr net.Addr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addresses[name] = addr.String()
}

// holdRefused finds a port on which nothing listens and keeps it so: it is the
// client's end of a connection that stays open, and so nobody else's.
func (o *Origin) holdRefused() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("hold a refused port: %w", err)
	}
	defer l.Close() // nothing is lost with it
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return fmt.Errorf("hold a refused port: %w", err)
	}
	server, err := l.Accept()
	if err != nil {
		return errors.Join(fmt.Errorf("hold a refused port: %w", err), client.Close())
	}
	o.setAddr(refusedName, client.LocalAddr())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = append(o.held, client, server)
	return nil
}

func serveHTTP1(o *Origin, ctx context.Context, c *connection) { newH1Conn(o, c).serve(ctx) }

// serveTLS finishes the handshake and speaks what was negotiated; h2 serves
// HTTP/2.
func (o *Origin) serveTLS(ctx context.Context, c *connection, cfg *tls.Config, h2 func()) {
	under := c.Conn
	conn := tls.Server(under, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return
	}
	c.Conn = conn
	defer conn.Close() // with close_notify, if the connection still stands
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		h2()
		return
	}
	newH1Conn(o, c).serve(ctx)
}
