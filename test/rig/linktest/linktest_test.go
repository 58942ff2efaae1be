package linktest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestHold shows that nobody gets the port of a link that has stopped listening.
func TestHold(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	l := New(t, server.Addr().String())
	l.proxy.Stop()
	other := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(l.Addr())}
	if conn, err := other.Dial("tcp", server.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a connection from the port of the link: %v, %v, want that the port is in use", conn, err)
	}
	l.Renew()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
