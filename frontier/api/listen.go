package api

import (
	"net"
	"sync"

	"golang.org/x/net/netutil"
)

// Maximum numbers of open connections of a port. Over the total, the next one waits. Over that of its
// address, it is closed.
const (
	// DefaultMaxConnections is the default of [Config].MaxConnections.
	DefaultMaxConnections = 1024
	maxConnsOfAddress     = 256
)

// listener limits connections.
type listener struct {
	net.Listener

	mu   sync.Mutex
	from map[string]int
}

func newListener(l net.Listener, maxConns int) *listener {
	return &listener{Listener: netutil.LimitListener(l, maxConns), from: make(map[string]int)}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(c.RemoteAddr().String())
		if l.enter(address) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
		}
		_ = c.Close() // one address must not use all slots
	}
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
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
