package server

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"
)

// listener bounds the connections of callers: in all, where the next waits to be
// accepted, and for one address, where it is closed.
type listener struct {
	net.Listener
	places    chan struct{}
	perCaller int
	closed    chan struct{}
	once      func()

	mu      sync.Mutex
	callers map[string]int
	open    map[string]*conn // by remote address
}

func newListener(l net.Listener, total, perCaller int) *listener {
	closed := make(chan struct{})
	return &listener{Listener: l, places: make(chan struct{}, total), perCaller: perCaller, closed: closed,
		once: sync.OnceFunc(func() { close(closed) }), callers: make(map[string]int), open: make(map[string]*conn)}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		raw, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		if c := l.admit(raw); c != nil {
			return c, nil
		}
		<-l.places
		_ = raw.Close() // one address must not have all the places
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once()
	return l.Listener.Close()
}

func (l *listener) admit(raw net.Conn) *conn {
	caller := callerAt(raw.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callers[caller] >= l.perCaller {
		return nil
	}
	l.callers[caller]++
	c := &conn{Conn: raw}
	c.release = sync.OnceFunc(func() { l.leave(caller, c) })
	l.open[raw.RemoteAddr().String()] = c
	return c
}

func (l *listener) leave(caller string, c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callers[caller]--; l.callers[caller] == 0 {
		delete(l.callers, caller)
	}
	if at := c.RemoteAddr().String(); l.open[at] == c {
		delete(l.open, at)
	}
	<-l.places
}

// hangUp closes the connection that a call came on.
func (l *listener) hangUp(ctx context.Context) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return
	}
	l.mu.Lock()
	c := l.open[p.Addr.String()]
	l.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// conn is a connection that gives its place back.
type conn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
