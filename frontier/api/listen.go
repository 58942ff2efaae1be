package api

import (
	"net"
	"sync"
)

// Maximum numbers of open connections of a port. Over the total, the next one waits. Over that of its
// address, it is closed.
const maxConns, maxConnsOfAddress = 1024, 256

// listener limits connections.
type listener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	end    func()

	mu   sync.Mutex
	from map[string]int
}

func newListener(l net.Listener) *listener {
	closed := make(chan struct{})
	return &listener{Listener: l, slots: make(chan struct{}, maxConns), closed: closed, end: sync.OnceFunc(func() { close(closed) }), from: make(map[string]int)}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		address := addressOf(c.RemoteAddr())
		if l.enter(address) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
		}
		<-l.slots
		_ = c.Close() // one address must not use all slots
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.end()
	return l.Listener.Close()
}

func (l *listener) enter(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[address] >= maxConnsOfAddress {
		return false
	}
	l.from[address]++
	return true
}

func (l *listener) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[address]--; l.from[address] == 0 {
		delete(l.from, address)
	}
	<-l.slots
}

// conn is a connection that frees its slot when it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
