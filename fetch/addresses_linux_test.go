package fetch_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"fetchd/classify"
	"fetchd/fetch"
)

// TestDeadAddress checks that the second address of a name is tried if nothing answers at the
// first one. Each address gets a share of the time to connect.
func TestDeadAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.9.2:0")
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(ok)}
	go func() { _ = server.Serve(l) }() // ends with Close
	defer func() { _ = server.Close() }()
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	swallow(t, [4]byte{127, 0, 9, 1}, port)
	c := newClient(t, fetch.Config{
		Resolver: newNames(map[string][][]string{"dead.test": {{"127.0.9.1", "127.0.9.2"}}}).resolver(t),
		Egress:   fetch.Egress{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPorts: []uint16{port}},
	})
	r := get(t, fmt.Sprintf("http://dead.test:%d/", port))
	r.Policy.MaxAttempts = 1
	r.ConnectTimeout = 5 * time.Second
	out := c.Fetch(t.Context(), r, nil)
	if out.Kind != classify.Success || out.Hops[0].Exchange.RemoteAddress != l.Addr().String() {
		t.Errorf("%s of %s: %+v, want success of %s", out.Kind, out.Hops[0].Exchange.RemoteAddress, out.Failure, l.Addr())
	}
}

// swallow makes connections to an address time out. The queue of its listener is full, so the
// kernel does not answer.
func swallow(t *testing.T, addr [4]byte, port uint16) {
	t.Helper()
	at := &syscall.SockaddrInet4{Port: int(port), Addr: addr}
	open := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
		must(t, err)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		return fd
	}
	listener := open()
	must(t, syscall.Bind(listener, at))
	must(t, syscall.Listen(listener, 0))
	for range 3 {
		_ = syscall.Connect(open(), at) // in progress, and so for good once the room is taken
	}
}
