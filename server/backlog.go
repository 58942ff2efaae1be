package server

import (
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
)

// A client that does not read makes gRPC keep the trailers of calls that are over, and
// what belongs to them, for as long as the connection is open. So each call is charged
// until it is over, and while the connection takes no bytes until some of them are read.
const (
	// callBytes is what gRPC keeps of a call, in flight or not yet written.
	callBytes = 8 << 10
	// blockedAfter is how long a write must have been waiting for its reader.
	blockedAfter = 20 * time.Millisecond
	// endBytes is about the least that gRPC writes at the end of a call.
	endBytes = 32
	// A connection that is refused calls while a write waits is closed after so many, or
	// so long: what gRPC keeps of a refusal is not charged.
	mostRefused = 512
	refusedTime = 500 * time.Millisecond
	// writeTime is how long one write may take. Then the connection is closed.
	writeTime = 30 * time.Second
	// strangerCalls may be made on a stranger's connection, and one more for each second
	// that it is open.
	strangerCalls = 64
)

// errNoCalls refuses what a stranger calls too often.
var errNoCalls = status.Error(codes.ResourceExhausted, "this connection has made too many calls without credentials")

// charge takes the memory of a call from its head, md, until [conn.callOver]. A
// connection that does not read is closed if there is none.
func (c *conn) charge(md metadata.MD, memory *budget.Lease) bool {
	if !memory.Grow(budget.Receiving, callBytes+metadataBytes(md)) {
		memory.Close()
		if c.isBlocked() && c.refused.Add(1) >= mostRefused || c.blockedFor() >= refusedTime {
			go c.drop() // gRPC holds a lock here
		}
		return false
	}
	return true
}

// metadataBytes is what the metadata of a call takes beyond the usual, which callBytes
// has.
func metadataBytes(md metadata.MD) (n int64) {
	const field, usual = 144, 2 << 10
	for name, values := range md {
		for _, value := range values {
			n += int64(len(name)+len(value)) + field
		}
	}
	return max(n-usual, 0)
}

// mayCall reports whether a connection may make another call, as far as it is a
// stranger's.
func (c *conn) mayCall() bool {
	if c == nil || !c.stranger.Load() {
		return true
	}
	if c.made.Add(1) <= strangerCalls+int64(time.Since(c.opened).Seconds()) {
		return true
	}
	go c.drop() // as above
	return false
}

// callOver gives back the memory of a call, or keeps it while the connection takes no
// bytes. Nil is no memory.
func (c *conn) callOver(memory *budget.Lease) {
	if memory == nil {
		return
	}
	if c == nil || !c.isBlocked() {
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
	case !c.isBlocked(): // the write has just ended
		c.written(math.MaxInt)
	}
}

// isBlocked reports whether a write has been waiting for its reader for a while.
func (c *conn) isBlocked() bool { return c.blockedFor() > blockedAfter }

// blockedFor is how long the write in progress has been waiting; zero: there is none.
func (c *conn) blockedFor() time.Duration {
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
func (c *conn) Write(p []byte) (int, error) {
	now := time.Now()
	_ = c.SetWriteDeadline(now.Add(writeTime)) // a connection that cannot has other limits
	c.writing.Store(now.UnixNano())
	n, err := c.Conn.Write(p)
	c.refused.Store(0)
	if c.writing.Store(0); err == nil {
		c.written(n) // also of a write that was not blocked: calls may be left of one that was
	}
	return n, err
}

// written gives back the memory of as many calls as may have ended in n bytes. The last
// few may not have been in them, and are no matter.
func (c *conn) written(n int) {
	c.mu.Lock()
	ended := min(len(c.over), n/endBytes)
	if len(c.over)-ended <= strangerCalls {
		ended = len(c.over)
	}
	over := c.over[:ended]
	if c.over = c.over[ended:]; len(c.over) == 0 {
		c.over = nil
	}
	c.mu.Unlock()
	closeAll(over)
}
