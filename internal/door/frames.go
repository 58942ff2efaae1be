package door

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"
)

// A client that opens calls and cancels them at once makes the service work for nothing. gRPC neither
// counts nor limits such calls, so the frames of HTTP/2 are counted here. A cancelled call is paid by
// one that the service has ended, with an answer, an error or a deadline, or that lasted for
// [longCall]. What is not paid is the debt of the connection, and of all connections of its caller, or
// else of its address. A connection is closed if it owes more than connDebt, and its caller more than
// callerDebt.
//
// Others limit different things. net/http runs as many handlers as a connection may have streams, and
// closes a connection for which four times as many wait. nginx limits how many streams a connection
// opens while it is read once, and in all. Envoy closes a connection after 500 streams if half of them were
// reset within a second. All of them judge one connection, so a client can come back with a new one.
const (
	longCall   = time.Second
	connDebt   = 16
	callerDebt = 256
	// debtRate is how many cancelled calls of a caller are forgotten each second.
	debtRate = 16
)

// A call that is refused by its headers, or ends without a request, costs little, but a client can make hundreds of
// thousands a second. So each caller, or else each address, may have refusalRate of them a second. What is beyond
// that makes its connections wait before they are read again, at most for maxRest, and then they are read in pieces
// of restedBytes: what comes with one read is accepted at once, and there may be hundreds of connections.
const (
	refusalRate  = 1000
	freeRefusals = 100
	maxRest      = 5 * time.Second
	restedBytes  = 512
)

var errCancels = fmt.Errorf("the client cancels most of its calls: %w", net.ErrClosed)

// Types and flags of frames (RFC 9113, section 6), and the length of the client's preface and of the
// head of a frame.
const (
	headersFrame, resetFrame, goAwayFrame = 1, 3, 7
	endStream                             = 1
	prefaceBytes, headBytes               = 24, 9
	calmDown                              = 11 // ENHANCE_YOUR_CALM
)

// framed is a connection whose frames are counted, without TLS. Its methods are as safe for concurrent
// use as those of the inner one.
type framed struct {
	net.Conn
	door *Conn

	in    frames // used only by the reading goroutine
	last  uint32 // the last stream that the client has opened
	mu    sync.Mutex
	out   frames // guarded by mu
	ended uint32 // the last stream that the service has ended; guarded by mu
}

func newFramed(c net.Conn, at *Conn) *framed {
	return &framed{Conn: c, door: at, in: frames{rest: prefaceBytes}}
}

// frames finds the heads of frames in the bytes of a connection.
type frames struct {
	head [headBytes]byte
	have int // bytes of head
	rest int // bytes until the next head
}

// next skips p until the end of the next head of a frame, and returns what follows. It returns false if p ends before.
func (f *frames) next(p []byte) ([]byte, bool) {
	skipped := min(f.rest, len(p))
	f.rest -= skipped
	p = p[skipped:]
	n := copy(f.head[f.have:], p)
	if f.have += n; f.have < headBytes {
		return nil, false
	}
	f.have, f.rest = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
	return p[n:], true
}

func (f *frames) kind() byte     { return f.head[3] }
func (f *frames) endsCall() bool { return f.head[4]&endStream != 0 }
func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31) }

// isBetween reports whether a frame may be written now.
func (f *frames) isBetween() bool { return f.have == 0 && f.rest == 0 }

// Read implements net.Conn. It closes the connection of a client that cancels too many calls, and waits if too
// many of its calls are refused.
func (f *framed) Read(p []byte) (int, error) {
	if f.door.rest() {
		p = p[:min(len(p), restedBytes)]
	}
	n, err := f.Conn.Read(p)
	cancelled := 0
	for rest, ok := f.in.next(p[:n]); ok; rest, ok = f.in.next(rest) {
		switch f.in.kind() {
		case headersFrame:
			f.last = max(f.last, f.in.stream())
		case resetFrame:
			cancelled++
		}
	}
	if cancelled > 0 && f.door.owes(cancelled) {
		f.calm()
		return 0, errCancels // the reader closes it
	}
	return n, err
}

// Write implements net.Conn.
func (f *framed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := int64(0)
	for rest, ok := f.out.next(p); ok; rest, ok = f.out.next(rest) {
		kind, stream := f.out.kind(), f.out.stream()
		if (kind == headersFrame && f.out.endsCall() || kind == resetFrame) && stream != f.ended { // a reset may follow the end
			f.ended = stream
			ended++
		}
	}
	if ended > 0 {
		f.door.paid.Add(ended)
	}
	return f.Conn.Write(p)
}

// calmTime is how long the last frame of a connection may take to be written.
const calmTime = 100 * time.Millisecond

// calm writes GOAWAY, unless a frame is being written.
func (f *framed) calm() {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if !f.out.isBetween() {
		return
	}
	const why = "too many cancelled calls"
	frame := []byte{0, 0, 8 + byte(len(why)), goAwayFrame, 0, 0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint32(frame, f.last)
	frame = append(binary.BigEndian.AppendUint32(frame, calmDown), why...)
	_ = f.SetWriteDeadline(time.Now().Add(calmTime)) // if it fails, so does the write
	_, _ = f.Conn.Write(frame)                       // the connection is closed next
}

// owes adds cancelled calls to the debts, and reports whether the connection must be closed. Only the
// goroutine that reads from the connection calls it.
func (c *Conn) owes(cancelled int) bool {
	owed := int64(cancelled)
	if paid := min(owed, c.paid.Load()); paid > 0 {
		c.paid.Add(-paid)
		owed -= paid
	}
	if owed == 0 {
		return false
	}
	c.debt += owed
	if all := c.listener.debts.add(c.Payer(), owed, time.Now()); c.debt <= connDebt || all <= callerDebt {
		return false
	}
	c.listener.dropped(c, CancelledCalls)
	return true
}

// Refused records that a call is refused by its headers, or has ended without its request. A nil Conn has no limit
// of refusals.
func (c *Conn) Refused() {
	if c != nil {
		c.refusals.Add(1)
	}
}

// rest waits if too many calls of the caller are refused, or until the connection is closed. It reports whether
// it has waited: then it waits before each read until the caller has no more than it may.
func (c *Conn) rest() bool {
	n := c.refusals.Swap(0)
	if n == 0 && !c.rests {
		return false
	}
	over := c.listener.refusals.add(c.Payer(), n, time.Now()) - freeRefusals
	if c.rests = over > 0; !c.rests {
		return false
	}
	timer := time.NewTimer(min(time.Duration(over/refusalRate*float64(time.Second)), maxRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
	return true
}

// Payer returns the caller of the last authenticated call of the connection, or else its address.
func (c *Conn) Payer() string {
	if caller := c.caller.Load(); caller != nil {
		return *caller
	}
	return c.address.name
}

// maxDebts limits the callers and addresses whose debts are known.
const maxDebts = 4096

// debts are the debts of callers and addresses, of which rate is forgotten each second. They are safe for
// concurrent use.
type debts struct {
	rate float64
	mu   sync.Mutex
	of   map[string]debt
}

// debt is what was owed at a time.
type debt struct {
	calls float64
	at    time.Time
}

// left returns what of a debt is not forgotten yet.
func (d *debts) left(of debt, now time.Time) float64 {
	return max(of.calls-now.Sub(of.at).Seconds()*d.rate, 0)
}

// add adds calls to a debt, and returns the sum. Without calls it only looks.
func (d *debts) add(to string, calls int64, now time.Time) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, known := d.of[to]
	if !known && calls == 0 {
		return 0
	}
	if !known && len(d.of) >= maxDebts {
		d.forgetLocked(now)
	}
	all := d.left(was, now) + float64(calls)
	d.of[to] = debt{all, now}
	return all
}

// forgetLocked forgets a small debt.
func (d *debts) forgetLocked(now time.Time) {
	const compared = 8 // of a map that begins anywhere
	least, which, n := 0.0, "", 0
	for name, other := range d.of {
		if left := d.left(other, now); n == 0 || left < least {
			least, which = left, name
		}
		if n++; n == compared {
			break
		}
	}
	delete(d.of, which)
}
