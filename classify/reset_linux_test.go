package classify_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// connectReset returns the error of a dial that the peer resets while it connects. The peer has accepted
// and reset the connection before the dialer looks at it.
func connectReset(t *testing.T) error {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("listens on %v", l.Addr())
	}
	target := &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if control := c.Control(func(fd uintptr) { err = resetBy(l, int(fd), target) }); control != nil {
			return control
		}
		return err
	}}
	return connectError(t, &d, address.String())
}

// resetBy starts to connect a socket to l, and returns when l has accepted and reset the connection.
func resetBy(l *net.TCPListener, socket int, target unix.Sockaddr) error {
	switch err := unix.Connect(socket, target); {
	case err == nil:
		return errors.New("the socket is connected at once, so the dialer does not wait")
	case !errors.Is(err, unix.EINPROGRESS):
		return err
	}
	peer, err := l.AcceptTCP()
	if err != nil {
		return err
	}
	if err := errors.Join(peer.SetLinger(0), peer.Close()); err != nil {
		return err
	}
	for {
		// Without events it waits for an error or the end of the connection.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(socket)}}, -1); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
