package wire

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/budget"
	"fetchd/internal/door"
)

// TestCallsOfAClientThatDoesNotRead checks that calls stay charged until their ends can
// have been read, and no longer. A connection is closed if it has no more memory or makes
// no progress.
func TestCallsOfAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		b := budget.New(9 << 20)
		closed := make(chan struct{})
		c := accepted(t, closing{here, sync.OnceFunc(func() { close(closed) })})
		call := func() (over func()) {
			t.Helper()
			memory := b.Lease("caller")
			if !c.Charge(nil, memory) {
				t.Fatal("a call is refused")
			}
			return func() { c.CallOver(memory) }
		}
		held := func(want int) {
			t.Helper()
			if got := b.Usage().Total(); got != int64(want)*(CallBytes+StreamWindow) {
				t.Errorf("%d bytes are charged, want %d calls", got, want)
			}
		}
		first := call()
		held(1)
		first()
		held(0)

		go func() { _, _ = c.Write(make([]byte, 100*endBytes)) }()
		<-time.After(blockedAfter + 1)
		for range 80 {
			call()()
		}
		held(80)
		_, _ = io.CopyN(io.Discard, there, 100*endBytes)
		synctest.Wait()
		held(0)

		go func() { _, _ = c.Write(make([]byte, 10*endBytes)) }()
		<-time.After(blockedAfter + 1)
		for range 90 {
			call()()
		}
		_, _ = io.CopyN(io.Discard, there, 10*endBytes)
		synctest.Wait()
		held(80)

		c.dropAnswers()
		_ = there.Close()
	})
}

// TestRefusals checks that calls may be refused while their connections are blocked, as long as all their ends together
// are small and no write takes long.
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 2000
		refusals := &Refusals{limit: most * refusalBytes}
		full := budget.New(1)
		open := func() (c *Conn, there net.Conn, closed chan struct{}) {
			there, here := net.Pipe()
			closed = make(chan struct{})
			c = accepted(t, closing{here, sync.OnceFunc(func() { close(closed) })})
			c.refusals = refusals
			return c, there, closed
		}
		block := func(c *Conn, n int) {
			go func() { _, _ = c.Write(make([]byte, n)) }()
			<-time.After(blockedAfter + 1)
		}
		refuse := func(c *Conn, calls int) {
			t.Helper()
			for range calls {
				if c.Charge(nil, full.Lease("caller")) {
					t.Fatal("a call is admitted")
				}
			}
			synctest.Wait()
		}
		held := func(want int64) {
			t.Helper()
			synctest.Wait()
			if got := refusals.held.Load() / refusalBytes; got != want {
				t.Errorf("the ends of %d refused calls are held, want %d", got, want)
			}
		}
		isOpen := func(closed chan struct{}) {
			t.Helper()
			select {
			case <-closed:
				t.Error("the connection is closed too early")
			default:
			}
		}

		a, thereA, closedA := open()
		refuse(a, 5000) // nothing is kept while it reads
		held(0)
		block(a, 100*endBytes)
		refuse(a, 1000) // a client with as many streams as it may have
		held(1000)
		_, _ = io.CopyN(io.Discard, thereA, 100*endBytes)
		held(900)
		block(a, 850*endBytes)
		<-time.After(refusedTime / 2)
		refuse(a, 100)
		held(1000)
		isOpen(closedA)
		_, _ = io.CopyN(io.Discard, thereA, 850*endBytes)
		held(150)

		b, thereB, closedB := open()
		block(b, 1)
		refuse(b, most-150)
		held(most)
		isOpen(closedB)
		refuse(b, 1)
		<-closedB
		held(150)

		block(a, 1)
		<-time.After(refusedTime)
		refuse(a, 1)
		<-closedA
		held(0)
		refuse(a, 1)
		held(0)
		_, _ = thereA.Close(), thereB.Close()
	})
}

// TestWriteThatMakesNoProgress checks that a write fails after writeTime, and not before.
func TestWriteThatMakesNoProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		defer func() { _ = there.Close() }()
		c := accepted(t, here)
		began := time.Now()
		if _, err := c.Write([]byte("x")); err == nil || time.Since(began) != writeTime {
			t.Errorf("Write = %v after %s, want an error after %s", err, time.Since(began), writeTime)
		}
	})
}

// TestCallsAfterABlockedWrite checks that the charges of calls that ended during a blocked
// write are released when the connection reads again, even if it then reads everything.
func TestCallsAfterABlockedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		defer func() { _ = there.Close() }()
		b := budget.New(32 << 20)
		c := accepted(t, here)
		go func() { _, _ = c.Write(make([]byte, 10*endBytes)) }()
		<-time.After(blockedAfter + 1)
		for range 200 {
			memory := b.Lease("caller")
			if !c.Charge(nil, memory) {
				t.Fatal("a call is refused")
			}
			c.CallOver(memory)
		}
		go func() { _, _ = io.Copy(io.Discard, there) }() // reads from now on
		synctest.Wait()
		for range 200 {
			if _, err := c.Write(make([]byte, 10*endBytes)); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.Usage().Total(); got != 0 {
			t.Errorf("%d bytes are charged for calls whose ends have been read", got)
		}
	})
}

// one is a listener that accepts one connection.
type one struct {
	net.Listener
	conns chan net.Conn
}

func (l one) Accept() (net.Conn, error) {
	if c, open := <-l.conns; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l one) Close() error {
	close(l.conns)
	return nil
}

// started is a connection that has sent a byte.
type started struct {
	net.Conn
	read atomic.Bool
}

// Read implements net.Conn.
func (s *started) Read(p []byte) (int, error) {
	if !s.read.Swap(true) {
		return 1, nil
	}
	return s.Conn.Read(p)
}

// accepted returns a connection of a caller.
func accepted(t *testing.T, raw net.Conn) *Conn {
	t.Helper()
	conns := make(chan net.Conn, 1)
	conns <- &started{Conn: raw}
	l := door.Listen(one{conns: conns}, door.Limits{Total: 1, PerAddress: 1, Strangers: 1})
	t.Cleanup(func() { _ = l.Close() })
	accepted, err := Listener{Listener: l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, _ := accepted.(*Conn)
	c.Authenticated("")
	return c
}

// closing calls a function when the connection is closed for the first time.
type closing struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c closing) Close() error {
	c.closed()
	return c.Conn.Close()
}
