package conns

import "golang.org/x/sys/unix"

// hungUp reports whether the peer has closed the connection, even if bytes are still to be
// read. If silent is set, bytes that are waiting count as well: over HTTP/1 an idle peer has
// nothing to say. net/http notices both a millisecond later (RFC 9112 §9.5). Only the
// exchange that takes an idle connection may call it.
func (s *socket) hungUp(silent bool) bool {
	if s.raw == nil {
		return false
	}
	if s.poll == nil { // kept, because each would be on the heap
		s.poll = new(poll)
		s.poll.call = s.poll.ask
	}
	s.poll.fds[0].Events = unix.POLLRDHUP
	if silent {
		s.poll.fds[0].Events |= unix.POLLIN
	}
	err := s.raw.Control(s.poll.call)
	return err != nil || s.poll.n > 0
}

// poll is one call of poll(2) that does not wait.
type poll struct {
	fds  [1]unix.PollFd
	n    int // sockets that have something to report
	call func(uintptr)
}

func (p *poll) ask(fd uintptr) {
	p.fds[0].Fd = int32(fd) //nolint:gosec // a descriptor is small
	p.n, _ = unix.Poll(p.fds[:], 0)
}
