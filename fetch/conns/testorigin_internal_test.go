package conns

import (
	"bufio"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"fetchd/fetch/egress"
	"fetchd/fetch/timers"
)

// testOrigin is an origin whose connections a test reads and writes itself.
type testOrigin struct {
	*testing.T
	ctx      context.Context
	pool     *Pool
	target   Target
	accepted chan net.Conn
	all      []net.Conn     // that were accepted
	scripts  sync.WaitGroup // what the origin does
}

// newTestOrigin starts an origin on loopback. wrap, if it is not nil, wraps the connections of the pool.
func newTestOrigin(t *testing.T, wrap func(*net.TCPConn) net.Conn) *testOrigin {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	s, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &testOrigin{T: t, ctx: ctx, accepted: make(chan net.Conn, 8), target: Target{URL: &url.URL{Scheme: "http", Host: s.Addr().String(), Path: "/"}}}
	_, roots := testCertificate()
	o.pool = New(Config{Guard: egress.New(egress.Policy{Unrestricted: true}), RootCAs: roots,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialSmall(ctx, network, address)
			if tcp, ok := c.(*net.TCPConn); ok && wrap != nil {
				return wrap(tcp), err
			}
			return c, err
		}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := s.Accept()
			if err != nil {
				close(o.accepted)
				return
			}
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(16 << 10)
			}
			o.all = append(o.all, c)
			o.accepted <- c
		}
	}()
	t.Cleanup(func() {
		o.pool.Close()
		_ = s.Close()
		<-done
		for _, c := range o.all {
			_ = c.Close()
		}
		o.scripts.Wait()
	})
	return o
}

// encrypt makes the pool use TLS, to the origin, or to a proxy that the test plays.
func (o *testOrigin) encrypt(on, proxied bool) {
	switch {
	case on && proxied:
		o.pool.config.Proxy = &url.URL{Scheme: "https", Host: o.target.URL.Host}
	case on:
		o.target.URL.Scheme = "https"
	}
}

// accept returns the next connection with a reader. It is closed when the test ends, or already if none
// comes until then.
func (o *testOrigin) accept() (net.Conn, *bufio.Reader) {
	c, ok := <-o.accepted
	if !ok {
		c, _ = net.Pipe()
		_ = c.Close()
	}
	return c, bufio.NewReader(c)
}

// readHead reads the head of a request.
func readHead(in *bufio.Reader) {
	for {
		if line, err := in.ReadString('\n'); err != nil || line == "\r\n" {
			return
		}
	}
}

// open returns a connected exchange that is not over before the test.
func (o *testOrigin) open(s Settings) *Exchange {
	o.Helper()
	x := o.pool.NewExchange(o.ctx, new(timers.Clock), s)
	o.Cleanup(x.End)
	if err := x.Connect(o.target); err != nil {
		o.Fatal(err)
	}
	return x
}
