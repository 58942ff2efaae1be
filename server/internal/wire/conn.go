package wire

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/list"
	"fetchd/internal/secure"
	"fetchd/server/internal/admission"
)

// Listener accepts the connections of callers.
type Listener struct {
	*door.Listener
	Refusals *Refusals // of a port with gRPC
}

// Accept implements net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	accepted, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: accepted, refusals: l.Refusals}
	accepted.State = c
	return c, nil
}

// Conn is a connection that lists its unread answers; see [answer].
type Conn struct {
	*door.Conn

	tls      atomic.Pointer[tls.ConnectionState]
	refusals *Refusals
	Free     atomic.Int32 // uncharged requests in flight on the HTTP port
	writing  atomic.Int64 // start of the current write, in Unix nanoseconds; 0: none

	mu          sync.Mutex
	refused     int                // calls in refusals
	over        []*budget.Lease    // of ended calls whose ends are not written yet
	unread      list.List[*answer] // the oldest first
	unreadTimer *time.Timer        // for the oldest answer; nil: not running
	closed      bool
}

// ConnOf returns the connection of a call, or nil.
func ConnOf(ctx context.Context) *Conn {
	if at := door.FromContext(ctx); at != nil {
		c, _ := at.State.(*Conn)
		return c
	}
	return nil
}

// ResetsOnClose makes every close of the connection a reset, also that of a process that is killed: the peer sees an
// error and not an end of file. Or it ends that.
func (c *Conn) ResetsOnClose(on bool) {
	seconds := -1
	if on {
		seconds = 0
	}
	if tcp, ok := c.Conn.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(seconds) // if it fails, the connection is closed already
	}
}

// Drop closes the connection; c may be nil.
func (c *Conn) Drop() {
	if c != nil {
		_ = c.Close() // it is no longer served
	}
}

// HangUp closes the connection of a call.
func HangUp(ctx context.Context) { ConnOf(ctx).Drop() }

// Close implements net.Conn.
func (c *Conn) Close() error {
	defer c.dropAnswers()
	return c.Conn.Close()
}

// dropAnswers releases the answers that can no longer be read.
func (c *Conn) dropAnswers() {
	c.mu.Lock()
	c.closed = true
	all, over := slices.Collect(c.unread.All()), c.over
	c.over = nil
	c.forgetLocked(c.refused)
	if c.unreadTimer != nil {
		c.unreadTimer.Stop()
	}
	c.mu.Unlock()
	closeAll(over)
	for _, a := range all {
		a.release()
	}
}

// add lists an answer. If the connection is closed, the answer is released at once.
func (c *Conn) add(a *answer) {
	if c == nil {
		return
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		a.release()
		return
	}
	defer c.mu.Unlock()
	c.unread.Add(&a.listed, a)
	if c.unreadTimer == nil {
		c.unreadTimer = time.AfterFunc(unreadTime, c.checkOldest)
	}
}

// remove removes an answer from the list.
func (c *Conn) remove(a *answer) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unread.Remove(&a.listed)
}

// checkOldest closes the connection if its oldest answer has been unread for unreadTime,
// and otherwise runs again when it will have been.
func (c *Conn) checkOldest() {
	c.mu.Lock()
	c.unreadTimer = nil
	if c.closed || c.unread.Len() == 0 {
		c.mu.Unlock()
		return
	}
	left := unreadTime - time.Since(c.unread.First().since)
	if left > 0 {
		c.unreadTimer = time.AfterFunc(left, c.checkOldest)
	}
	c.mu.Unlock()
	if left <= 0 {
		_ = c.Close()
	}
}

// CredentialsIn returns the credentials of a call with the metadata md.
func CredentialsIn(ctx context.Context, md metadata.MD) admission.Credentials {
	return admission.Credentials{Token: secure.Bearer(md.Get("authorization")), TLS: tlsOf(ctx)}
}

// tlsOf returns the TLS state of the connection of a call, or nil. The connection keeps
// it, because otherwise each call would have a copy.
func tlsOf(ctx context.Context) *tls.ConnectionState {
	conn := ConnOf(ctx)
	if conn != nil {
		if state := conn.tls.Load(); state != nil {
			return state
		}
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if _, ok := p.AuthInfo.(credentials.TLSInfo); !ok { // the copy below would be allocated before the check
		return nil
	}
	secure, _ := p.AuthInfo.(credentials.TLSInfo)
	if conn != nil {
		conn.tls.Store(&secure.State)
	}
	return &secure.State
}

// answer is an [Outgoing] message that is encoded and unread: gRPC has not written it to the connection.
// Flow control makes gRPC wait until the caller reads. The connection lists the answer, and
// releases it when it closes, because gRPC then drops buffers without releasing them.
type answer struct {
	Held  Held
	since time.Time

	conn   *Conn               // nil: unknown
	listed list.Place[*answer] // guarded by Conn.mu
	once   sync.Once
}

// release releases what the answer holds. It may be called again.
func (a *answer) release() {
	a.once.Do(func() {
		a.conn.remove(a)
		a.Held.Release()
	})
}

// Held is what an unread answer holds.
type Held struct {
	memory  []*budget.Lease     // charged for the message
	tickets []*admission.Ticket // of the fetches whose outcomes it has
}

// Add adds a charge of the message and the ticket of an outcome in it; one of them may be nil.
func (h *Held) Add(l *budget.Lease, t *admission.Ticket) {
	if l != nil {
		h.memory = append(h.memory, l)
	}
	if t != nil {
		h.tickets = append(h.tickets, t)
	}
}

// Release releases it. It may be called again.
func (h *Held) Release() {
	closeAll(h.memory)
	for _, t := range h.tickets {
		t.Release()
	}
}

func closeAll(leases []*budget.Lease) {
	for _, l := range leases {
		l.Close()
	}
}

// If a client does not read, gRPC keeps the trailers and the state of its ended calls for
// as long as the connection is open. So each call is charged until it ends, and if the
// connection is blocked then, until some of its bytes have been read.
const (
	// CallBytes is the memory that gRPC keeps for a call, in flight or not yet written.
	CallBytes = 8 << 10
	// metadataField is the memory of a field of a call's metadata without its text.
	// usualMetadata bytes of the metadata are part of CallBytes.
	metadataField, usualMetadata = 144, 2 << 10
	// blockedAfter is how long a write may take before the connection counts as blocked.
	blockedAfter = 20 * time.Millisecond
	// endBytes is approximately the minimum that gRPC writes at the end of a call.
	endBytes = 32
	// refusalBytes is the memory that gRPC keeps for a refused call until its end is written.
	refusalBytes = 2 << 10
	// refusalsShare of the memory budget is the limit of [Refusals].
	refusalsShare = 16
	// refusedTime is how long a connection on which calls are refused may be blocked. A client that is
	// short of CPU may not read for a second or two.
	refusedTime = 5 * time.Second
	// writeTime is how long one write may take before the connection is closed.
	writeTime = 30 * time.Second
	// unreadTime is how long an answer may stay unread before its connection is closed. It
	// bounds the time that a unary answer is held: no send blocks on it.
	unreadTime = 2 * time.Minute
	// fewCalls is how many charges [Conn.written] releases together.
	fewCalls = 64
)

// Refusals limits what gRPC keeps for the calls that were refused for want of memory while their connections
// were blocked. All connections of a port share it. It is safe for concurrent use.
type Refusals struct {
	limit int64
	held  atomic.Int64
}

// NewRefusals returns the Refusals of a service with that memory budget in bytes.
func NewRefusals(budget int64) *Refusals { return &Refusals{limit: budget / refusalsShare} }

// refuse counts a refused call until its end is written. It reports whether the blocked connection may go on.
func (c *Conn) refuse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return true
	}
	if c.blockedFor() >= refusedTime || c.refusals.held.Load() >= c.refusals.limit {
		return false
	}
	c.refused++
	c.refusals.held.Add(refusalBytes)
	return true
}

// forgetLocked records that the ends of n refused calls are written, or will not be.
func (c *Conn) forgetLocked(n int) {
	if n > 0 {
		c.refused -= n
		c.refusals.held.Add(-int64(n) * refusalBytes)
	}
}

// Charge charges a call with the metadata md until [Conn.CallOver], and the window of its stream until its
// request has arrived. If there is no memory left and the connection does not read, it is closed.
func (c *Conn) Charge(md metadata.MD, memory *budget.Lease) bool {
	if !memory.Grow(budget.Receiving, CallBytes+StreamWindow+max(FieldBytes(md, metadataField)-usualMetadata, 0)) {
		if c.IsBlocked() && !c.refuse() {
			go c.Drop() // gRPC holds a lock here
		}
		return false
	}
	return true
}

// FieldBytes returns the memory of headers or metadata, with the overhead of each field.
func FieldBytes(fields map[string][]string, overhead int) (n int64) {
	for name, values := range fields {
		for _, value := range values {
			n += int64(len(name) + len(value) + overhead)
		}
	}
	return n
}

// CallOver releases the charge of a call, or keeps it while the connection is blocked.
func (c *Conn) CallOver(memory *budget.Lease) {
	if c == nil || !c.IsBlocked() {
		memory.Close()
		return
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.over = append(c.over, memory)
	}
	c.mu.Unlock()
	switch {
	case closed:
		memory.Close()
	case !c.IsBlocked(): // the write has just ended
		c.written(math.MaxInt)
	}
}

// IsBlocked reports whether a write has been waiting for the reader for some time.
func (c *Conn) IsBlocked() bool { return c.blockedFor() > blockedAfter }

// blockedFor returns how long the current write has been waiting; zero means no write.
func (c *Conn) blockedFor() time.Duration {
	if c == nil {
		return 0
	}
	began := c.writing.Load()
	if began == 0 {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - began)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	now := time.Now()
	_ = c.SetWriteDeadline(now.Add(writeTime)) // an error here is harmless: other limits apply
	c.writing.Store(now.UnixNano())
	n, err := c.Conn.Write(p)
	if c.writing.Store(0); err == nil {
		c.written(n) // also if this write was not blocked: calls may be left from one that was
	}
	return n, err
}

// written releases the charges of as many calls as may have ended in n bytes.
func (c *Conn) written(n int) {
	c.mu.Lock()
	c.forgetLocked(endedIn(n, c.refused))
	ended := endedIn(n, len(c.over))
	over := c.over[:ended]
	if c.over = c.over[ended:]; len(c.over) == 0 {
		c.over = nil
	}
	c.mu.Unlock()
	closeAll(over)
}

// endedIn returns how many of the calls that are over may have ended in n bytes. It may be a few too many, which
// does not matter.
func endedIn(n, over int) int {
	if over-n/endBytes <= fewCalls {
		return over
	}
	return n / endBytes
}
