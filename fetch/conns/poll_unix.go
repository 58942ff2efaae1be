//go:build unix

package conns

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// peek asks the kernel what is there to read, and reads nothing. Only the exchange that takes an idle
// connection may call it.
func (s *socket) peek() idleState {
	if s.raw == nil {
		return cannotTell
	}
	if s.raw.Control(s.calls().peek) != nil {
		return gone
	}
	return s.kernel.state
}

// hungUp reports whether the peer has closed the connection, even if bytes are still to be read.
// net/http notices it a millisecond later. Only the exchange that takes an idle connection may call it.
func (s *socket) hungUp() bool {
	if s.raw == nil {
		return false
	}
	return s.raw.Control(s.calls().poll) != nil || s.kernel.n > 0
}

// kernel has the memory of system calls that do not wait.
type kernel struct {
	peek, poll func(uintptr)
	byte       [1]byte
	state      idleState
	fds        [1]unix.PollFd
	n          int // sockets that have something to report
}

// calls returns the memory of the socket, which it keeps, because each call would need it on the heap.
func (s *socket) calls() *kernel {
	if s.kernel == nil {
		s.kernel = new(kernel)
		s.kernel.peek, s.kernel.poll = s.kernel.doPeek, s.kernel.doPoll
	}
	return s.kernel
}

func (k *kernel) doPeek(fd uintptr) {
	if k.look(fd, unix.POLLIN|hungUpEvents()); k.n == 0 { // the usual case, which allocates nothing
		k.state = quiet
		return
	}
	n, _, err := unix.Recvfrom(int(fd), k.byte[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case n > 0:
		k.state = spoke
	case errors.Is(err, unix.EAGAIN):
		k.state = quiet
	default:
		k.state = gone
	}
}

func (k *kernel) doPoll(fd uintptr) { k.look(fd, hungUpEvents()) }

// look asks for events, and does not wait for them.
func (k *kernel) look(fd uintptr, events int16) {
	k.fds[0] = unix.PollFd{Fd: int32(fd), Events: events} //nolint:gosec // a descriptor is small
	k.n, _ = unix.Poll(k.fds[:], 0)
}

// hungUpEvents returns POLLRDHUP, which only Linux has. Elsewhere poll reports POLLHUP alone, when both
// sides have closed.
func hungUpEvents() int16 {
	if runtime.GOOS == "linux" {
		return 0x2000
	}
	return 0
}

// waiting returns which of the sockets have something to read or are closed, in one call for all. Their
// connections must be idle, and stay so.
func waiting(idle []*conn) (found []*conn) {
	fds := make([]unix.PollFd, 0, len(idle))
	of := make([]*conn, 0, len(idle))
	for _, c := range idle {
		if c.socket.raw != nil {
			fds = append(fds, unix.PollFd{Fd: int32(c.socket.fd), Events: unix.POLLIN | hungUpEvents()}) //nolint:gosec // a descriptor is small
			of = append(of, c)
		}
	}
	if n, err := unix.Poll(fds, 0); n <= 0 || err != nil {
		return nil
	}
	for i := range fds {
		if fds[i].Revents != 0 {
			found = append(found, of[i])
		}
	}
	return found
}
