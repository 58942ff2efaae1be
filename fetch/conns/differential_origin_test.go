package conns

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// scripted is an origin that runs the script of a row.
type scripted struct {
	*differential
	net.Listener
	url      *url.URL
	over     chan struct{} // the client has ended
	ended    sync.WaitGroup
	received atomic.Pointer[string]
}

// testCertificate returns a certificate for 127.0.0.1, and the pool that trusts it.
var testCertificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.TLS.Certificates[0], roots
})

func newScripted(t testing.TB, d *differential) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &scripted{differential: d, Listener: l, url: &url.URL{Scheme: "http", Host: l.Addr().String()}, over: make(chan struct{})}
	if d.secure {
		o.url.Scheme = "https"
	}
	o.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if tcp, ok := c.(*net.TCPConn); ok && d.early {
				_ = tcp.SetReadBuffer(16 << 10)
			}
			o.ended.Go(func() { o.serve(c) })
		}
	})
	return o
}

// dialSmall makes a connection whose socket has room for less than a long body.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(16 << 10)
	}
	return c, err
}

// end ends the origin. The client must have closed its connections.
func (o *scripted) end() {
	close(o.over)
	_ = o.Close()
	o.ended.Wait()
}

func (o *scripted) serve(raw net.Conn) {
	defer raw.Close()
	c := raw
	if o.secure {
		certificate, _ := testCertificate()
		// Without tickets an idle connection is readable only if it is over.
		c = tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true})
	}
	var all bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &all))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.URL.Path == "/next" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")
			continue
		}
		if !o.early {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			text := strings.ReplaceAll(all.String(), o.url.Host, "origin")
			o.received.Store(&text)
		}
		if !o.answer(raw, c) {
			return
		}
	}
}

// answer reports whether the origin reads the next request.
func (o *scripted) answer(raw, c net.Conn) bool {
	text := o.head
	if o.shape.method != http.MethodHead {
		text += o.body
	}
	_, _ = io.WriteString(c, text)
	switch o.then {
	case keep:
		return true
	case shut:
		_ = c.Close()
	case snap:
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	case stay:
		<-o.over
	case drain:
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, raw)
	}
	return false
}

func (o *scripted) request() string {
	if text := o.received.Load(); text != nil {
		return *text
	}
	return ""
}
