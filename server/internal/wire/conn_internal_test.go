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

		go func() { _, _ = c.Write(make([]byte, 1)) }()
		<-time.After(blockedAfter + 1)
		for c.Charge(nil, b.Lease("caller")) {
		}
		for range maxRefused - 2 {
			c.Charge(nil, b.Lease("caller"))
		}
		synctest.Wait()
		select {
		case <-closed:
			t.Error("the connection is closed too early")
		default:
		}
		c.Charge(nil, b.Lease("caller"))
		<-closed
		c.dropAnswers()
		_ = there.Close()
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
