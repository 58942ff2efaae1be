package server

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"fetchd/internal/budget"
)

// TestCallsOfAClientThatDoesNotRead checks that calls stay charged until their ends can
// have been read, and no longer. A connection is closed if it has no more memory or makes
// no progress.
func TestCallsOfAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		b := budget.New(1 << 20)
		closed := make(chan struct{})
		c := &conn{Conn: here, release: func() { close(closed) }}
		call := func() (over func()) {
			t.Helper()
			memory := b.Lease("caller")
			if !c.charge(nil, memory) {
				t.Fatal("a call is refused")
			}
			return func() { c.callOver(memory) }
		}
		held := func(want int) {
			t.Helper()
			if got := b.Usage().Total(); got != int64(want)*callBytes {
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
		for c.charge(nil, b.Lease("caller")) {
		}
		for range maxRefused - 2 {
			c.charge(nil, b.Lease("caller"))
		}
		synctest.Wait()
		select {
		case <-closed:
			t.Error("the connection is closed too early")
		default:
		}
		c.charge(nil, b.Lease("caller"))
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
		c := &conn{Conn: here, release: func() {}}
		began := time.Now()
		if _, err := c.Write([]byte("x")); err == nil || time.Since(began) != writeTime {
			t.Errorf("Write = %v after %s, want an error after %s", err, time.Since(began), writeTime)
		}
	})
}

// TestUnauthenticatedCalls checks that an unauthenticated connection may make only a few calls.
func TestUnauthenticatedCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		defer func() { _ = there.Close() }()
		c := &conn{Conn: here, release: func() {}, opened: time.Now()}
		for range 2 * strangerCalls {
			if !c.mayCall() {
				t.Fatal("a caller is refused")
			}
		}
		c.stranger.Store(true)
		<-time.After(10 * time.Second)
		n := 0
		for c.mayCall() {
			n++
		}
		if n != strangerCalls+10 {
			t.Errorf("%d unauthenticated calls in 10 s, want %d", n, strangerCalls+10)
		}
		synctest.Wait()
	})
}

// TestCallsAfterABlockedWrite checks that the charges of calls that ended during a blocked
// write are released when the connection reads again, even if it then reads everything.
func TestCallsAfterABlockedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there, here := net.Pipe()
		defer func() { _ = there.Close() }()
		b := budget.New(4 << 20)
		c := &conn{Conn: here, release: func() {}}
		go func() { _, _ = c.Write(make([]byte, 10*endBytes)) }()
		<-time.After(blockedAfter + 1)
		for range 200 {
			memory := b.Lease("caller")
			if !c.charge(nil, memory) {
				t.Fatal("a call is refused")
			}
			c.callOver(memory)
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
