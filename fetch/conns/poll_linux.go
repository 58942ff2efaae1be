package conns

import "golang.org/x/sys/unix"

// hungUp reports whether the peer has closed the connection, even if bytes are still to be
// read. If silent is set, bytes that are waiting count as well: over HTTP/1 an idle peer has
// nothing to say. net/http notices both a millisecond later (RFC 9112 §9.5).
func (s *socket) hungUp(silent bool) bool {
	if s.raw == nil {
		return false
	}
	fds := [1]unix.PollFd{{Events: unix.POLLRDHUP}}
	if silent {
		fds[0].Events |= unix.POLLIN
	}
	n := 0
	err := s.raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd) //nolint:gosec // a descriptor is small
		n, _ = unix.Poll(fds[:], 0)
	})
	return err != nil || n > 0
}
