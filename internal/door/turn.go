package door

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// turnTime is how long a handshake may wait for its turn.
const turnTime = 5 * time.Second

var errBusy = fmt.Errorf("too many handshakes are waiting: %w", net.ErrClosed)

// turns limits the TLS handshakes that compute at the same time, so that calls get the other cores, or
// on a single core their part of it. Addresses take turns. Its fields are guarded by Listener.mu.
type turns struct {
	free  int
	queue []*address // with connections that wait
}

func newTurns() turns { return turns{free: max(1, runtime.GOMAXPROCS(0)/2)} }

// TLS returns a configuration whose handshakes compute in turn, if a [Listener] has accepted their
// connections. An HTTP server must use [Limit], and a gRPC server [Credentials], which report the end
// of a handshake. Nil stays nil.
func TLS(config *tls.Config) *tls.Config {
	if config == nil {
		return nil
	}
	inner := config.GetConfigForClient
	config = config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { // it is called before the handshake computes
		if c := connOf(hello.Conn); c != nil {
			c.shaking.Store(true) // what the client sends next makes it compute, too
			if err := c.awaitTurn(hello.Context()); err != nil {
				return nil, err
			}
		}
		if inner == nil {
			return nil, nil //nolint:nilnil // it means that config is used
		}
		return inner(hello)
	}
	return config
}

// connOf returns the connection that a program may have embedded in its own, or nil.
func connOf(c net.Conn) *Conn {
	if at, ok := c.RemoteAddr().(*remote); ok {
		return at.conn
	}
	return nil
}

// endHandshake records that the handshake of a connection is over, if it has one.
func (c *Conn) endHandshake() {
	if c != nil && c.shaking.Swap(false) {
		c.endTurn()
	}
}

// awaitTurn waits until the handshake may compute. Its turn ends when it next reads or writes: it has
// nothing to compute while it waits for the client.
func (c *Conn) awaitTurn(ctx context.Context) error {
	granted := c.listener.askTurn(c)
	if granted == nil {
		return nil
	}
	timer := time.NewTimer(turnTime)
	defer timer.Stop()
	select {
	case err := <-granted:
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	c.listener.mu.Lock()
	c.listener.turns.leave(c)
	c.listener.mu.Unlock()
	return errBusy
}

// askTurn gives a connection a turn. If there is none, it returns a channel that reports the turn, or
// that the connection is closed.
func (l *Listener) askTurn(c *Conn) <-chan error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.conns[c]; !open || c.computing.Load() {
		return nil // its next read fails, or a second ClientHello
	}
	t := &l.turns
	if t.free > 0 {
		t.free--
		c.computing.Store(true)
		return nil
	}
	c.granted = make(chan error, 1)
	if a := c.address; len(a.waiting) == 0 {
		t.queue = append(t.queue, a)
	}
	c.address.waiting = append(c.address.waiting, c)
	return c.granted
}

// endTurn ends the turn of a connection, if it has one.
func (c *Conn) endTurn() {
	if c.computing.Load() {
		c.listener.mu.Lock()
		c.listener.turns.leave(c)
		c.listener.mu.Unlock()
	}
}

// leave ends the turn of a connection, or its wait for one.
func (t *turns) leave(c *Conn) {
	if c.computing.Swap(false) {
		t.free++
		t.next()
		return
	}
	if c.granted == nil {
		return
	}
	c.granted <- net.ErrClosed
	c.granted = nil
	a := c.address
	a.waiting = slices.DeleteFunc(a.waiting, func(other *Conn) bool { return other == c })
	if len(a.waiting) == 0 {
		t.queue = slices.DeleteFunc(t.queue, func(other *address) bool { return other == a })
	}
}

// next gives the free turn to the next address.
func (t *turns) next() {
	if len(t.queue) == 0 {
		return
	}
	a := t.queue[0]
	t.queue = t.queue[1:]
	c := a.waiting[0]
	if a.waiting = a.waiting[1:]; len(a.waiting) > 0 {
		t.queue = append(t.queue, a)
	}
	t.free--
	c.computing.Store(true)
	c.granted <- nil
	c.granted = nil
}

// Credentials returns the credentials of a gRPC server, with TLS unless config is nil. After a handshake
// with a client certificate it asks whether the certificate alone identifies a caller; then the
// connection is authenticated. identifies may be nil. A connection whose client cancels most of its calls is closed.
func Credentials(config *tls.Config, identifies func(*tls.ConnectionState) bool) credentials.TransportCredentials {
	if config == nil {
		return certified{insecure.NewCredentials(), nil}
	}
	return certified{credentials.NewTLS(TLS(config)), identifies}
}

type certified struct {
	credentials.TransportCredentials
	identifies func(*tls.ConnectionState) bool
}

// ServerHandshake implements credentials.TransportCredentials.
func (s certified) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := s.TransportCredentials.ServerHandshake(raw)
	c := connOf(raw)
	c.endHandshake()
	if c == nil || err != nil {
		return secured, info, err
	}
	if state, ok := info.(credentials.TLSInfo); ok && s.identifies != nil && len(state.State.VerifiedChains) > 0 && s.identifies(&state.State) {
		c.Authenticated("")
	}
	return newFramed(secured, c), info, nil
}

// Clone implements credentials.TransportCredentials.
func (s certified) Clone() credentials.TransportCredentials {
	return certified{s.TransportCredentials.Clone(), s.identifies}
}
