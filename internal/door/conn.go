package door

import (
	"container/list"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// Conn is a connection that has a slot until it is closed. Its methods are safe for concurrent use,
// except Read. Those with a result work on a nil Conn, which stands for a connection that no
// [Listener] has accepted: it is not a stranger.
type Conn struct {
	net.Conn
	// State is what the program keeps for the connection. It must be set before the connection is
	// used.
	State any

	listener *Listener
	address  *address
	remote   remote
	closed   chan struct{}
	close    sync.Once // closes closed
	opened   time.Time
	first    [3]byte      // what it has sent first
	ahead    int          // bytes of first that the program has not read yet
	read     int64        // bytes while it is a stranger; used only by the reading goroutine
	made     atomic.Int64 // calls while it is a stranger
	refusals atomic.Int64 // calls that were refused since the last read
	rests    bool         // before each read, see rest; used only by the reading goroutine
	paid     atomic.Int64 // calls that pay for cancelled ones, see [framed]
	debt     int64        // cancelled calls that are not paid; used only by the reading goroutine
	caller   atomic.Pointer[string]
	lost     atomic.Pointer[Cause] // why it is closed

	stranger  atomic.Bool
	shaking   atomic.Bool // its TLS handshake is not over
	computing atomic.Bool // it has a turn

	// Guarded by listener.mu.
	class   class
	inClass *list.Element // of address.strangers
	calls   int           // in flight, see Enter
	granted chan error    // for the wait for a turn; nil: it does not wait
}

// IsStranger reports whether no call on the connection is authenticated yet.
func (c *Conn) IsStranger() bool { return c != nil && c.stranger.Load() }

// Authenticated records that a call on the connection is authenticated, or that its client
// certificate identifies a caller. caller is its name, or empty if it is known by its address. A caller with
// more connections than one may have loses this one. A nil Conn has no effect.
func (c *Conn) Authenticated(caller string) {
	if c == nil {
		return
	}
	if was := c.caller.Load(); !c.stranger.Load() && (caller == "" || was != nil && *was == caller) {
		return
	}
	c.listener.mu.Lock()
	c.listener.proveLocked(c)
	fits := c.listener.nameLocked(c, caller)
	c.listener.mu.Unlock()
	if !fits {
		c.listener.dropped(c, ConnsOfCaller)
		go func() { _ = c.Close() }() // the caller may hold locks of gRPC
	}
}

// strangerCalls is the number of gRPC calls that a stranger may make. It may make one more for each
// second that it is open.
const strangerCalls = 64

// MayCall counts a gRPC call. It returns an error if the connection may not make it: then the connection should be
// closed. The calls of strangers are limited. With the last read before a connection is closed, more calls may have
// arrived.
func (c *Conn) MayCall() error {
	if c == nil {
		return nil
	}
	if c.stranger.Load() && c.made.Add(1) > strangerCalls+int64(time.Since(c.opened).Seconds()) && c.lost.Load() == nil {
		c.listener.dropped(c, StrangersCalls)
	}
	if cause := c.lost.Load(); cause != nil {
		return fmt.Errorf("the connection is closed: %s", cause.Text())
	}
	return nil
}

// Enter counts a call that may be in flight for long, until Leave. It returns how many there are now. A
// stranger with such a call is closed after those without. A nil Conn has none.
func (c *Conn) Enter() int { return c.count(1) }

// Leave records that a call has ended.
func (c *Conn) Leave() { c.count(-1) }

func (c *Conn) count(n int) int {
	if c == nil {
		return 0
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.calls += n
	if c.calls > 0 {
		c.moveLocked(busy)
	} else {
		c.moveLocked(spoken)
	}
	return c.calls
}

// moveLocked makes a stranger the youngest of a class.
func (c *Conn) moveLocked(to class) {
	if !c.stranger.Load() {
		return
	}
	if c.class == to && c.inClass.Next() == nil && (c.address.at == nil || c.address.inRank.Next() == nil) {
		return
	}
	c.address.remove(c)
	c.class = to
	c.address.add(c)
	c.listener.place(c.address)
}

// awaitFirst waits until the connection has sent something, and passes it to the program.
func (c *Conn) awaitFirst() {
	_ = c.Conn.SetReadDeadline(c.opened.Add(silentTime)) // if it fails, so does the read
	n, err := c.Conn.Read(c.first[:])
	_ = c.Conn.SetReadDeadline(time.Time{}) // as above
	if n == 0 || err != nil {
		_ = c.Close() // nothing was served on it
		return
	}
	c.ahead, c.read = n, int64(n)
	if c.refuse() {
		return
	}
	c.heard()
	select {
	case c.listener.spoke <- c:
	case <-c.listener.closed.Done():
		_ = c.Close() // as above
	}
}

// heard records that a stranger has sent something.
func (c *Conn) heard() {
	c.listener.mu.Lock()
	c.moveLocked(max(c.class, spoken))
	c.listener.mu.Unlock()
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.ahead > 0 && len(p) > 0 {
		n := copy(p, c.first[:c.ahead])
		c.ahead = copy(c.first[:], c.first[n:c.ahead])
		return n, nil
	}
	c.endTurn()
	n, err := c.Conn.Read(p)
	if n > 0 && c.shaking.Load() {
		if late := c.awaitTurn(context.Background()); late != nil {
			return 0, late
		}
	}
	if n > 0 && c.stranger.Load() {
		c.heard()
		c.read += int64(n)
		if most := c.listener.limits.StrangerBytes; most > 0 && c.read > most+int64(time.Since(c.opened).Seconds())*strangerRate {
			return 0, net.ErrClosed // the reader closes it
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.endTurn()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.close.Do(func() { close(c.closed) })
	c.listener.mu.Lock()
	c.listener.leaveLocked(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the writing direction of a TCP connection. net/http calls it before it closes a
// connection whose request it did not read to its end: a client that still sends can then read the
// answer, such as 413 or 431, before its connection is reset.
func (c *Conn) CloseWrite() error {
	if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// hangUp closes a connection that has lost its slot. Its reader gets an error, and closes it too.
func (c *Conn) hangUp() {
	c.listener.mu.Lock()
	heard := c.class != silent
	c.listener.mu.Unlock()
	if !heard {
		abort(c.Conn)
		return
	}
	_ = c.Conn.Close() // it is no longer served
}

// abort resets a connection on which nothing was received. Otherwise the kernel would keep its state
// for a minute, and there may be thousands a second.
func abort(raw net.Conn) {
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // an error here means that it is closed already
	}
	_ = raw.Close() // as above
}

// RemoteAddr implements net.Conn. See [FromContext].
func (c *Conn) RemoteAddr() net.Addr { return &c.remote }

// remote is the address of a connection's client. It refers to the connection, because gRPC and
// net/http pass on only the address.
type remote struct {
	net.Addr
	conn *Conn
}

// FromContext returns the connection of a call of gRPC, or of a request of a server with [ConnContext].
// It returns nil if no [Listener] has accepted it.
func FromContext(ctx context.Context) *Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.Addr.(*remote); ok {
			return at.conn
		}
	}
	return nil
}

// ConnContext is the ConnContext of an [net/http.Server]. It stores the address as gRPC does.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr()})
}

// Address returns the name of an address: the IP without the port. For IPv6 it is the network of 64
// bits, because one host usually has a whole one.
func Address(addr net.Addr) string {
	if at, ok := addr.(*remote); ok {
		return at.conn.address.name
	}
	var at netip.AddrPort
	if tcp, ok := addr.(*net.TCPAddr); ok {
		at = tcp.AddrPort()
	} else if parsed, err := netip.ParseAddrPort(addr.String()); err == nil {
		at = parsed
	}
	if !at.IsValid() {
		return addr.String()
	}
	ip := at.Addr().Unmap()
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}
