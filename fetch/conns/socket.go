package conns

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fetchd/classify"
	"fetchd/fetch/fault"
)

// Limits on what an HTTP/2 origin sends. Without them it could send frames for streams that are
// over, or frames that change nothing, as fast as the network allows.
const (
	// idleBytes is the limit while no request is open: PING, SETTINGS, and what was on
	// the way when a stream was reset, at most the window of a stream. Frames without data count
	// too, with their headers and TLS: 6,700 in records of their own, 29,000 in shared ones.
	idleBytes = 256 << 10
	// StreamBytes is the limit for each open request between two steps of any of them: a
	// head or body bytes that are read. 17 heads of 64 KiB need a little more than 1 MiB. The
	// window of a stream needs 5 MiB if each byte comes in a separate frame and TLS record,
	// and the caller may read none of it for a while.
	StreamBytes = 8 << 20
	// MaxWrites limits what this side writes between two such steps. An origin asks for a write with each
	// PING and SETTINGS, which have less than 20 bytes and cost far more than reading them. The longest
	// request needs 64 writes, if the windows are not tiny.
	MaxWrites = 4096
)

var errUnasked = fault.New(classify.Protocol, classify.PhaseProcessing, "unrequested_data")

// socket is the TCP connection to an origin or a proxy, below TLS.
type socket struct {
	net.Conn
	raw    syscall.RawConn // nil: not of the operating system
	fd     int             // of raw; it is not used when the socket may be closed
	kernel *kernel
	open   *atomic.Int64  // counts the open sockets
	remote string         // address of the peer; empty if it is a proxy
	peer   netip.AddrPort // the same; not valid if it is a proxy or not known
	// failed is the error that ended reading. net/http reports some of them without a
	// type, for example within a response head.
	failed atomic.Pointer[error]
	meter  *handshakeMeter // of the TLS handshake in progress
	lastly atomic.Int64    // time of the last read, in nanoseconds since 1970
	bytes  atomic.Int64    // received
	most   atomic.Int64    // limit of bytes; zero: none
	writes atomic.Int64    // since bytes were permitted
	close  sync.Once
}

func newSocket(raw net.Conn, toProxy bool, open *atomic.Int64) *socket {
	s := &socket{Conn: raw, open: open}
	if system, ok := raw.(syscall.Conn); ok {
		if s.raw, _ = system.SyscallConn(); s.raw != nil {
			_ = s.raw.Control(func(fd uintptr) { s.fd = int(fd) }) //nolint:gosec // a descriptor is small
		}
	}
	if addr := raw.RemoteAddr(); addr != nil && !toProxy {
		s.remote = addr.String()
		s.peer, _ = netip.ParseAddrPort(s.remote)
	}
	open.Add(1)
	return s
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.lastly.Store(time.Now().UnixNano())
		if most := s.most.Load(); s.bytes.Add(int64(n)) > most && most > 0 {
			_ = s.Close()
			err = errUnasked
		}
	}
	if s.meter != nil {
		if fault := s.meter.count(n); fault != nil {
			return 0, fault
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) && !timedOut(err) { // ErrClosed: this side closed it
		first := err // otherwise each read would allocate err
		s.failed.CompareAndSwap(nil, &first)
	}
	return n, err
}

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) {
	if s.writes.Add(1) > MaxWrites && s.most.Load() > 0 {
		s.failed.CompareAndSwap(nil, new(error(errUnasked)))
		_ = s.Close()
		return 0, errUnasked
	}
	return s.Conn.Write(p)
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.close.Do(func() { s.open.Add(-1) })
	return s.Conn.Close()
}

// permit allows the origin n bytes from now on, and what it may ask to be written.
func (s *socket) permit(n int64) {
	s.most.Store(s.bytes.Load() + n)
	s.writes.Store(0)
}

// readError returns the error that ended reading, or nil.
func (s *socket) readError() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// readSince reports whether anything was received after t.
func (s *socket) readSince(t time.Time) bool { return s.lastly.Load() > t.UnixNano() }

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// idleState is what an idle connection of HTTP/1.1 does.
type idleState uint8

const (
	quiet      idleState = iota // The peer has said nothing.
	spoke                       // It has sent bytes that no request asked for.
	gone                        // It has closed the connection.
	cannotTell                  // The kernel cannot be asked.
)
