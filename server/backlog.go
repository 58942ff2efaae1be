package server

import (
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"fetchd/internal/budget"
)

// If a client does not read, gRPC keeps the trailers and the state of its ended calls for
// as long as the connection is open. So each call is charged until it ends, and if the
// connection is blocked then, until some of its bytes have been read.
const (
	// callBytes is the memory that gRPC keeps for a call, in flight or not yet written.
	callBytes = 8 << 10
	// metadataField is the memory of a field of a call's metadata without its text.
	// usualMetadata bytes of the metadata are part of callBytes.
	metadataField, usualMetadata = 144, 2 << 10
	// blockedAfter is how long a write may take before the connection counts as blocked.
	blockedAfter = 20 * time.Millisecond
	// endBytes is approximately the minimum that gRPC writes at the end of a call.
	endBytes = 32
	// A blocked connection is closed after maxRefused refused calls, or after
	// refusedTime, because what gRPC keeps for a refusal is not charged.
	maxRefused  = 512
	refusedTime = 500 * time.Millisecond
	// writeTime is how long one write may take before the connection is closed.
	writeTime = 30 * time.Second
	// fewCalls is how many charges [conn.written] releases together.
	fewCalls = 64
)

// errNoCalls is returned to unauthenticated clients that make too many calls.
var errNoCalls = status.Error(codes.ResourceExhausted, "this connection has made too many calls without credentials")

// charge charges a call with the metadata md until [conn.callOver]. If there is no memory
// left and the connection does not read, it is closed.
func (c *conn) charge(md metadata.MD, memory *budget.Lease) bool {
	if !memory.Grow(budget.Receiving, callBytes+max(fieldBytes(md, metadataField)-usualMetadata, 0)) {
		memory.Close()
		if c.isBlocked() && c.refused.Add(1) >= maxRefused || c.blockedFor() >= refusedTime {
			go c.drop() // gRPC holds a lock here
		}
		return false
	}
	return true
}

// fieldBytes returns the memory of headers or metadata, with the overhead of each field.
func fieldBytes(fields map[string][]string, overhead int) (n int64) {
	for name, values := range fields {
		for _, value := range values {
			n += int64(len(name) + len(value) + overhead)
		}
	}
	return n
}

// callOver releases the charge of a call, or keeps it while the connection is blocked.
// memory may be nil.
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

// isBlocked reports whether a write has been waiting for the reader for some time.
func (c *conn) isBlocked() bool { return c.blockedFor() > blockedAfter }

// blockedFor returns how long the current write has been waiting; zero means no write.
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
	_ = c.SetWriteDeadline(now.Add(writeTime)) // an error here is harmless: other limits apply
	c.writing.Store(now.UnixNano())
	n, err := c.Conn.Write(p)
	c.refused.Store(0)
	if c.writing.Store(0); err == nil {
		c.written(n) // also if this write was not blocked: calls may be left from one that was
	}
	return n, err
}

// written releases the charges of as many calls as may have ended in n bytes. It may
// release the last few too early, which does not matter.
func (c *conn) written(n int) {
	c.mu.Lock()
	ended := min(len(c.over), n/endBytes)
	if len(c.over)-ended <= fewCalls {
		ended = len(c.over)
	}
	over := c.over[:ended]
	if c.over = c.over[ended:]; len(c.over) == 0 {
		c.over = nil
	}
	c.mu.Unlock()
	closeAll(over)
}
