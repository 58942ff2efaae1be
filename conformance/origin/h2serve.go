package origin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
)

// serveH2 hands the connection to net/http's HTTP/2 server, which gets every
// frame right, and waits until it is closed.
func (o *Origin) serveH2(ctx context.Context, c *connection) {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	closed := make(chan struct{})
	server := &http.Server{
		Handler:        http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serveStream(c, w, r) }),
		Protocols:      protocols,
		MaxHeaderBytes: maxHeadBytes,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		// Faults are wanted here; nobody needs to read of them.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(closed)
			}
		},
	}
	_ = server.Serve(&oneConn{conn: c.Conn}) // io.EOF of the second Accept
	<-closed
}

// serveH2 goes on with HTTP/2 after the head of its preface was read.
func (c *h1conn) serveH2(ctx context.Context) {
	replay := io.MultiReader(strings.NewReader(prefaceHead), c.br)
	c.origin.serveH2(ctx, &connection{
		Conn: &replayConn{Conn: c.conn.Conn, r: replay}, id: c.conn.id, listener: c.conn.listener,
	})
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn net.Conn
	done bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if l.done {
		return nil, io.EOF
	}
	l.done = true
	return l.conn, nil
}

func (l *oneConn) Close() error { return nil }

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// replayConn is a connection of which some was read already.
type replayConn struct {
	net.Conn
	r io.Reader
}

func (c *replayConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// NetConn returns the connection below, as [crypto/tls.Conn.NetConn] does.
func (c *replayConn) NetConn() net.Conn { return c.Conn }
