package door

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// port is a listener in memory, with a server that reads what its clients send.
type port struct {
	*testing.T
	listener *Listener
	queue    queue
	ended    chan error // receives the error of Accept
	clients  atomic.Int32
	told     []string // of connections that were closed
}

// wantTold checks of which closed connections the listener has told.
func (p *port) wantTold(want ...string) {
	p.Helper()
	if synctest.Wait(); !slices.Equal(p.told, want) {
		p.Errorf("told of %q, want %q", p.told, want)
	}
}

// queue is the queue of the kernel.
type queue struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func (q queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q queue) Close() error {
	q.close()
	return nil
}

func (queue) Addr() net.Addr { return &net.TCPAddr{} }

// end is the server's end of a connection.
type end struct {
	net.Conn
	from   net.Addr
	client *client
}

func (e end) RemoteAddr() net.Addr { return e.from }

// client is a client of a port.
type client struct {
	net.Conn
	port *port
	conn *Conn // set by wait
	lost atomic.Bool
}

// onPort runs f with a port, in a bubble.
func onPort(t *testing.T, limits Limits, f func(*port)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		p := &port{T: t, queue: queue{make(chan net.Conn, 1<<16), closed, sync.OnceFunc(func() { close(closed) })}, ended: make(chan error, 1)}
		p.listener = Listen(p.queue, limits)
		p.listener.Dropped = func(payer string, cause Cause) { p.told = append(p.told, payer+" "+string(cause)) }
		go p.serve()
		f(p)
		_ = p.listener.Close()
		p.listener.DropAll()
		synctest.Wait()
		for len(p.queue.conns) > 0 {
			_ = (<-p.queue.conns).Close()
		}
	})
}

func (p *port) serve() {
	for {
		c, err := p.listener.AcceptConn()
		if err != nil {
			p.ended <- err
			return
		}
		go func() {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}()
	}
}

// dial opens a connection from an address.
func (p *port) dial(ip string) *client {
	p.Helper()
	here, there := net.Pipe()
	c := &client{Conn: here, port: p}
	from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(1+p.clients.Add(1)%60000)))
	p.queue.conns <- end{there, from, c}
	go func() {
		_, _ = io.Copy(io.Discard, here) // until the server closes it
		c.lost.Store(true)
		_ = here.Close()
	}()
	return c
}

// in dials, and fails the test unless the connection is accepted at once.
func (p *port) in(ip string) *client {
	p.Helper()
	c := p.dial(ip)
	if !c.wait() {
		p.Fatalf("a connection from %s is not accepted", ip)
	}
	return c
}

// wait reports whether the connection has a slot now.
func (c *client) wait() bool {
	synctest.Wait()
	l := c.port.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		if e, ok := conn.Conn.(end); ok && e.client == c {
			c.conn = conn
		}
	}
	return c.conn != nil && !c.lost.Load()
}

// say sends a byte.
func (c *client) say() {
	c.port.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		c.port.Fatal(err)
	}
	synctest.Wait()
}

// want checks which connections are open.
func (p *port) want(open bool, clients ...*client) {
	p.Helper()
	synctest.Wait()
	for i, c := range clients {
		if c.wait() != open {
			p.Errorf("connection %d is open: %t, want %t", i+1, !open, open)
		}
	}
}

// The addresses of the tests.
const a, b, c, d, e = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"

// TestRules checks each rule of the package.
func TestRules(t *testing.T) {
	t.Parallel()
	limits := Limits{Total: 100, PerAddress: 50, Strangers: 4}
	for _, row := range []struct {
		name   string
		limits Limits
		rule   func(*port)
	}{
		{"the address with most strangers loses its oldest", limits, func(p *port) {
			first, other := p.in(a), p.in(b)
			second, third := p.in(a), p.in(a)
			caller := p.in(c)
			p.want(false, first)
			p.want(true, other, second, third, caller)
		}},
		{"the address itself, if it has as many as any other", limits, func(p *port) {
			first, second, other, another := p.in(a), p.in(b), p.in(a), p.in(b)
			third := p.in(b)
			p.want(false, second)
			p.want(true, first, other, another, third)
		}},
		{"one that has sent nothing goes before one that has", limits, func(p *port) {
			first, second, third := p.in(a), p.in(a), p.in(a)
			first.say()
			caller, other := p.in(b), p.in(c)
			p.want(false, second)
			p.want(true, first, third, caller, other)
		}},
		{"the idlest goes if all have sent something", limits, func(p *port) {
			first, second, third, last := p.in(a), p.in(a), p.in(a), p.in(a)
			for _, c := range []*client{second, first, third, last, second} {
				c.say()
			}
			caller := p.in(b)
			p.want(false, first)
			p.want(true, second, third, last, caller)
		}},
		{"one with a call in flight goes last", limits, func(p *port) {
			first, second := p.in(a), p.in(a)
			for _, c := range []*client{first, second} {
				c.say()
			}
			first.conn.Enter()
			caller, other := p.in(b), p.in(b)
			third := p.in(a)
			p.want(false, second)
			first.conn.Leave()
			third.say()
			fourth := p.in(a)
			p.want(false, first)
			p.want(true, caller, other, third, fourth)
		}},
		{"an address with its share loses none, whatever the rate of others", limits, func(p *port) {
			caller, same := p.in(c), p.in(c)
			for i := range 10_000 {
				p.in([]string{a, b}[i%2])
				if i == 5000 {
					p.want(true, caller, same)
					_ = same.Close()
				}
			}
			p.want(true, caller)
			p.in(d)
		}},
		{"with an address more than there are slots, the next waits until the oldest has had a second", limits, func(p *port) {
			first := p.in(a)
			<-time.After(100 * time.Millisecond)
			others := []*client{p.in(b), p.in(c), p.in(d)}
			late, later := p.dial(e), p.dial("192.0.2.6")
			<-time.After(900*time.Millisecond - 1)
			p.want(false, late)
			p.want(true, append(others, first)...)
			<-time.After(time.Nanosecond)
			p.want(true, append(others[1:], late)...)
			p.want(false, first, later)
			<-time.After(100 * time.Millisecond)
			p.want(true, late, later)
			p.want(false, others[0])
		}},
		{"it does not wait for a client that watches health", limits, func(p *port) {
			watch, talks := p.in(a), p.in(b)
			for _, c := range []*client{watch, talks} {
				c.say()
			}
			watch.conn.Enter()
			<-time.After(time.Minute)
			silent := []*client{p.in(c), p.in(d)}
			late := p.in(e) // at once: the idlest has had its second
			p.want(false, talks)
			p.want(true, append(silent, late, watch)...)
			next := p.dial(b)
			p.want(false, next)
			<-time.After(time.Second)
			p.want(true, next, watch)
		}},
		{"it waits no longer than for a free slot", limits, func(p *port) {
			first := p.in(a)
			p.in(b)
			p.in(c)
			p.in(d)
			late := p.dial(e)
			p.want(false, late)
			_ = first.Close()
			p.want(true, late)
		}},
		{"it waits no longer than until the listener is closed", limits, func(p *port) {
			for _, ip := range []string{a, b, c, d, e} {
				p.dial(ip)
			}
			synctest.Wait()
			_ = p.listener.Close()
			if err := <-p.ended; !errors.Is(err, net.ErrClosed) {
				p.Errorf("Accept = %v, want net.ErrClosed", err)
			}
		}},
		{"a caller is no stranger", limits, func(p *port) {
			callers := make([]*client, 60)
			for i := range callers {
				callers[i] = p.in([]string{a, b}[i%2])
				callers[i].conn.Authenticated("")
				callers[i].conn.Authenticated("")
			}
			for range 100 {
				p.in(a)
			}
			p.want(true, callers...)
		}},
		{"over the total, a stranger goes", Limits{Total: 4, PerAddress: 4, Strangers: 4}, func(p *port) {
			callers := []*client{p.in(a), p.in(a), p.in(b)}
			for _, c := range callers {
				c.say()
				c.conn.Authenticated("")
			}
			first := p.in(c)
			second := p.in(c)
			p.want(false, first)
			second.say()
			second.conn.Authenticated("")
			late := p.dial(d)
			<-time.After(time.Minute)
			p.want(false, late)
			_ = callers[0].Close()
			p.want(true, late)
			p.want(true, callers[1:]...)
		}},
		{"over the limit of an address, its own stranger goes, or the new one", Limits{Total: 10, PerAddress: 2, Strangers: 10}, func(p *port) {
			first, second := p.in(a), p.in(a)
			third := p.in(a)
			p.want(false, first)
			second.conn.Authenticated("")
			third.conn.Authenticated("")
			last := p.dial(a)
			p.want(false, last)
			if !last.lost.Load() {
				p.Error("a connection over the limit of its address waits, want it closed")
			}
			p.wantTold(a+" too_many_conns", a+" too_many_conns")
			p.in(b)
		}},
		{"an address of IPv6 is a network of 64 bits", limits, func(p *port) {
			other := p.in("2001:db8:0:1::1")
			first := p.in("2001:db8::1")
			all := []*client{p.in("2001:db8::2"), p.in("2001:db8::3"), p.in("2001:db8::4"), other}
			p.want(false, first)
			p.want(true, all...)
		}},
		{"a silent connection ends after 10 s", limits, func(p *port) {
			first, second := p.in(a), p.in(a)
			second.say()
			<-time.After(10*time.Second - 1)
			p.want(true, first)
			<-time.After(time.Nanosecond)
			p.want(false, first)
			p.want(true, second)
		}},
		{"a silent connection ends with the listener", limits, func(p *port) {
			first, second := p.in(a), p.in(a)
			second.say()
			_ = p.listener.Close()
			p.want(false, first)
			p.want(true, second)
		}},
		{"a stranger may send so much", Limits{Total: 4, PerAddress: 4, Strangers: 4, StrangerBytes: 1000}, func(p *port) {
			one, caller := p.in(a), p.in(a)
			caller.conn.Authenticated("")
			<-time.After(2 * time.Second)
			for range 3048 {
				one.say()
			}
			p.want(true, one)
			one.say()
			p.want(false, one)
			for range 4000 {
				caller.say()
			}
			p.want(true, caller)
		}},
		{"a stranger may make so many calls", limits, func(p *port) {
			one, caller := p.in(a), p.in(a)
			caller.conn.Authenticated("")
			one.say()
			<-time.After(10 * time.Second)
			n := 0
			for one.conn.MayCall() == nil {
				n++
			}
			if n != 64+10 {
				p.Errorf("%d calls in 10 s, want 74", n)
			}
			for range 1000 {
				if err := caller.conn.MayCall(); err != nil {
					p.Fatal(err)
				}
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			onPort(t, row.limits, row.rule)
		})
	}
}

// TestAddress checks the name of each kind of address.
func TestAddress(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ addr, want string }{
		{"192.0.2.1:5", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:5", "192.0.2.1"},
		{"[2001:db8:1:2::3]:5", "2001:db8:1:2::/64"},
		{"[2001:db8:1:2:ffff::]:6", "2001:db8:1:2::/64"},
		{"[2001:db8:1:3::3]:5", "2001:db8:1:3::/64"},
		{"[fe80::1%lo]:5", "fe80::/64"},
	} {
		if got := Address(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(row.addr))); got != row.want {
			t.Errorf("Address(%s) = %s, want %s", row.addr, got, row.want)
		}
	}
	if got := Address(&net.UnixAddr{Name: "/run/x", Net: "unix"}); got != "/run/x" {
		t.Errorf("a socket of this machine: %q", got)
	}
}

// TestNoConn checks that a connection that no listener has accepted has no limits.
func TestNoConn(t *testing.T) {
	t.Parallel()
	var none *Conn
	none.Authenticated("")
	if none.IsStranger() || none.MayCall() != nil || none.Enter() != 0 || FromContext(t.Context()) != nil {
		t.Error("a nil connection is limited")
	}
	none.Leave()
	var l *Listener
	l.DropAll()
}
