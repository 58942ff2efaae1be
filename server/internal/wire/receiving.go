package wire

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fetchd/fetch"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/badrequest"
	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/server/internal/admission"
)

const (
	// slowAfter is how long a handler may wait for its request before the request needs a
	// slot of [Receiving]. Most requests arrive sooner.
	slowAfter = 50 * time.Millisecond
	// MaxRequestBytes limits a message: it fits three tasks of FetchMany with bodies of 1 MiB.
	MaxRequestBytes = 4 << 20
	// ReservedBytes is the memory that a stream of many messages reserves for the one that it may hold. A
	// longer message is charged by its length. A valid request of one fetch is shorter.
	ReservedBytes = 2 << 20
	// HandshakeTime is the time from accept to a connection that can carry calls.
	HandshakeTime = 10 * time.Second
	// FirstMessageTime is the time from the head of a call to its request.
	FirstMessageTime = 10 * time.Second
	// StreamWindow is the data of a stream that no handler has read yet. By default gRPC's window
	// grows to 16 MiB.
	StreamWindow = 64 << 10
	// receivingShare is the divisor of the budget that gives the memory of these slots.
	receivingShare = 4
)

// callKey is the context key of the [Call].
type callKey struct{}

// Call is the context of a gRPC call, with its state.
type Call struct {
	door.Call
	Delayed[*Call]
	receiving *Receiving // nil: a health call
	awaits    bool       // its request, until it has arrived
	caller    string
	stream    transportStream // since the handler started
	memory    budget.Lease    // since its headers arrived; empty: a health call
	request   requestStream   // of a call that is not unary
	extra     int64           // of memory, until the request has arrived
	probe     *door.Probe     // nil: not a health call
	clock     *time.Timer     // gives up a health call

	// Guarded by Receiving.mu.
	arrived bool        // or ended
	slot    *time.Timer // ends the call; nil: it has no slot

	head     [5]byte           // of the message that is read
	Ticket   *admission.Ticket // of FetchUnary, between the handler and the answer
	size     int               // of that answer
	Reserved *budget.Lease     // of a long stream: ReservedBytes, and the rest of its last message
}

// transportStream is gRPC's stream below its messages. If a message is too long,
// [grpc.ServerStream] ends the call with RESOURCE_EXHAUSTED before it returns the error.
// If a call is only cancelled while it waits for a message, gRPC answers CANCELLED.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	WriteStatus(st *status.Status) error
}

// Value implements context.Context.
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// CallOf returns the call of a context, or nil if gRPC did not make it.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Receiving holds the requests that take long to arrive. A call is charged the window of its stream until
// its request has arrived, and the rest of a longer request as it arrives. What is only announced costs
// no more. Those that take long share a quarter of the budget: each has a slot, and if there is none, the oldest
// request of the caller with the most of them ends.
type Receiving struct {
	budget  *budget.Budget
	refused admission.Refusals

	expected, slow *Delays[*Call] // calls whose handlers do not wait for the request yet, and those whose do

	mu      sync.Mutex
	calls   []*Call // oldest first
	callers map[string]int
}

// NewReceiving returns a Receiving that charges memory.
func NewReceiving(memory *budget.Budget, refused admission.Refusals) *Receiving {
	r := &Receiving{budget: memory, refused: refused, callers: make(map[string]int)}
	r.expected = NewDelays(FirstMessageTime, func(c *Call) {
		if !c.giveUp() {
			c.Cancel(errCancelled)
		}
	})
	r.slow = NewDelays(slowAfter, r.late)
	return r
}

// Expect returns the call of a context with that metadata, charges it, and limits the time until its request arrives. If
// there is no memory, it calls refuse with the lease of the call.
func (r *Receiving) Expect(ctx context.Context, md metadata.MD, refuse func(*budget.Lease) error) (*Call, error) {
	c := &Call{receiving: r, awaits: true, caller: admission.Caller(ctx), extra: StreamWindow}
	r.budget.Open(&c.memory, c.caller)
	if !ConnOf(ctx).Charge(md, &c.memory) {
		defer c.memory.Close()
		return nil, refuse(&c.memory)
	}
	c.Tapped(ctx)
	r.expected.Add(&c.Delayed, c)
	return c, nil
}

// errCancelled is the status of a call whose request did not arrive in time.
var errCancelled = status.FromContextError(context.Canceled).Err()

// Cancel ends the stream of a call with the status of err. So it cancels the context, for which another context in
// between would need five objects for each call. It has no effect on a call that has ended or that gRPC did not
// make, which is nil.
func (c *Call) Cancel(err error) {
	if c != nil && c.stream != nil {
		_ = c.stream.WriteStatus(status.Convert(err))
	}
}

// Probe returns the call of a context for a health check, whose request is not read.
func Probe(ctx context.Context, probe *door.Probe) *Call {
	c := &Call{probe: probe}
	c.Tapped(ctx)
	c.clock = time.AfterFunc(FirstMessageTime, func() { c.giveUp() })
	return c
}

// Probe returns what admits the health check.
func (c *Call) Probe() *door.Probe { return c.probe }

// giveUp releases a call for which gRPC has started no handler, and reports whether that is so.
func (c *Call) giveUp() bool {
	given := c.GiveUp()
	if given {
		c.release()
	}
	return given
}

// Start records that the handler of the call has started, with its context. It returns false if the call was given up.
func (c *Call) Start(ctx context.Context) bool {
	if c.probe != nil {
		c.clock.Stop()
	}
	c.stream, _ = grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	return c.Call.Start()
}

// End releases what the call holds. One that ends without its request counts as refused: it costs its client
// nothing.
func (c *Call) End() {
	if c.awaits {
		c.receiving.received(c)
		door.FromContext(c.Context).Refused()
	}
	c.Call.End()
	c.release()
}

func (c *Call) release() {
	if c.probe != nil {
		c.probe.Leave()
		return
	}
	ConnOf(c.Context).CallOver(&c.memory)
}

// read records that a handler now waits for its request. Before that gRPC buffers no more of it than the
// stream's window.
func (c *Call) read() {
	if c.receiving.expected.Remove(&c.Delayed) {
		c.receiving.slow.Add(&c.Delayed, c)
	}
}

// noMemory refuses a message of n bytes.
func (r *Receiving) noMemory(ctx context.Context, n int) error {
	return r.refused.Refuse(ctx, admission.ReasonMemory, fmt.Sprintf("there is no memory for a message of %d bytes", n))
}

// Received records that the request of a call has arrived. Only the goroutine that reads requests
// calls it.
func (r *Receiving) Received(ctx context.Context) {
	if c := CallOf(ctx); c != nil && c.awaits {
		r.received(c)
		c.awaits = false
		c.memory.Shrink(budget.Receiving, c.extra)
	}
}

// received ends what limits the time of a request.
func (r *Receiving) received(c *Call) {
	if !r.slow.Remove(&c.Delayed) && !r.expected.Remove(&c.Delayed) {
		r.arrived(c)
	}
}

// arrived releases the slot of a call that has its request or has ended, or prevents it from getting
// one.
func (r *Receiving) arrived(c *Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.arrived = true
	r.leaveLocked(c)
}

// late gives the call a slot, or ends it if there is none.
func (r *Receiving) late(c *Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.arrived || c.Err() != nil {
		return
	}
	for limit := max(r.budget.Limit()/receivingShare/(CallBytes+StreamWindow), 1); int64(len(r.calls)) >= limit; {
		if !r.evictLocked() {
			r.endLocked(c)
			return
		}
	}
	c.slot = time.AfterFunc(time.Until(c.Began().Add(FirstMessageTime)), func() { c.Cancel(errCancelled) })
	r.calls = append(r.calls, c)
	r.callers[c.caller]++
	context.AfterFunc(c, func() { r.arrived(c) })
}

// evictLocked ends the oldest call of the caller with the most, and reports whether there was one.
func (r *Receiving) evictLocked() bool {
	most := 0
	for _, n := range r.callers {
		most = max(most, n)
	}
	for _, c := range r.calls {
		if r.callers[c.caller] == most {
			r.leaveLocked(c)
			r.endLocked(c)
			return true
		}
	}
	return false
}

// endLocked ends a call with the error that there was no memory for its request.
func (r *Receiving) endLocked(c *Call) {
	c.Cancel(r.refused.Refusal(c.caller, admission.ReasonMemory, "the request took long to arrive, and the memory for such requests is used up"))
}

func (r *Receiving) leaveLocked(c *Call) {
	if c.slot == nil {
		return
	}
	c.slot.Stop()
	c.slot = nil
	at := slices.Index(r.calls, c)
	r.calls = slices.Delete(r.calls, at, at+1)
	if r.callers[c.caller]--; r.callers[c.caller] == 0 {
		delete(r.callers, c.caller)
	}
}

// requestStream is a stream whose requests are received by [Receiving].
type requestStream struct {
	grpc.ServerStream
	receiving *Receiving
	only      bool // it has one request
}

// Stream is a [grpc.StreamServerInterceptor].
func (r *Receiving) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s := new(requestStream)
	if c := CallOf(stream.Context()); c != nil {
		s = &c.request
	}
	*s = requestStream{stream, r, !info.IsClientStream}
	return handler(srv, s)
}

// RecvMsg implements grpc.ServerStream.
func (s *requestStream) RecvMsg(m any) error {
	return s.receiving.Message(s.Context(), m, s.only)
}

// Message receives a message as [grpc.ServerStream] does. A message that is too long is
// not read but marked as refused: see [transportStream]. only says that the call has no
// other message.
func (r *Receiving) Message(ctx context.Context, m any, only bool) error {
	c := CallOf(ctx)
	request, isProto := m.(proto.Message)
	if c == nil || c.stream == nil || !isProto {
		return status.Error(codes.Internal, "internal error")
	}
	s := c.stream
	if c.Reserved != nil { // the message before this one has been handled
		c.Reserved.Shrink(budget.Receiving, c.Reserved.Held(budget.Receiving)-ReservedBytes)
	}
	n, err := c.nextMessage(s)
	if errors.Is(err, io.EOF) && only {
		return status.Error(codes.Internal, "the call ended without a request")
	}
	if err != nil {
		return err
	}
	if n > MaxRequestBytes || only && n > ReservedBytes { // no valid request of one fetch is that long
		return refuseRequest(request, tooLong(request, n))
	}
	if only {
		c.read()
	}
	data, err := r.arrive(ctx, c, s, n)
	defer data.Free()
	if err != nil {
		return err
	}
	if err := NewCodec().Unmarshal(data, m); err != nil {
		return status.Errorf(codes.Internal, "the message cannot be decoded: %v", err)
	}
	if !only {
		return nil
	}
	if _, err := c.nextMessage(s); !errors.Is(err, io.EOF) {
		return cmp.Or(err, status.Error(codes.Internal, "the call has a second request: send one"))
	}
	return nil
}

// pieceBytes is how much of a message is charged and read at a time.
const pieceBytes = StreamWindow

// arrive reads a message of n bytes. What exceeds the window of the stream, or what the stream reserves, is charged as it
// arrives, until the call has been admitted or its next message is read. The data must be freed, also after an error.
func (r *Receiving) arrive(ctx context.Context, c *Call, s transportStream, n int) (data mem.BufferSlice, err error) {
	paid, memory := pieceBytes, &c.memory
	if c.Reserved != nil {
		paid, memory = ReservedBytes, c.Reserved
	}
	for have := 0; have < n; {
		piece := min(n-have, pieceBytes)
		if more := int64(min(have+piece-paid, piece)); more > 0 {
			if !memory.Grow(budget.Receiving, more) {
				return data, r.noMemory(ctx, n)
			}
			if memory == &c.memory {
				c.extra += more
			}
		}
		part, err := s.Read(piece)
		if data == nil {
			data = part
		} else {
			data = append(data, part...)
		}
		if err != nil {
			return data, receiveError(err)
		}
		have += piece
	}
	return data, nil
}

// nextMessage returns the length of the next message. The error is io.EOF if none follows.
func (c *Call) nextMessage(s transportStream) (int, error) {
	switch err := s.ReadMessageHeader(c.head[:]); {
	case errors.Is(err, io.EOF):
		return 0, err
	case err != nil:
		return 0, receiveError(err)
	case c.head[0] != 0:
		return 0, status.Error(codes.Internal, "the message is marked as compressed, but the call has no grpc-encoding")
	}
	return int(binary.BigEndian.Uint32(c.head[1:])), nil
}

// receiveError returns the status of a call whose request did not arrive.
func receiveError(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Errorf(codes.Internal, "the request is not complete: %v", err)
}

// tooLong returns the violation of a message of n bytes, which is not read. It names the
// field that makes a request so long: the body, or the tasks of FetchMany.
func tooLong(m proto.Message, n int) *errdetails.BadRequest_FieldViolation {
	wrong := &errdetails.BadRequest_FieldViolation{Field: "message", Reason: badrequest.TooLarge,
		Description: fmt.Sprintf("has %d bytes: send at most %d", n, ReservedBytes)}
	body := fmt.Sprintf("is in a message of %d bytes: give at most %d", n, fetch.MaxRequestBodyBytes)
	switch m.(type) {
	case *pb.FetchRequest:
		wrong.Field, wrong.Description = "body", body
	case *pb.FetchManyRequest:
		wrong.Field = "tasks"
		wrong.Description = fmt.Sprintf("have %d bytes: send at most %d in a message, and the other tasks in more messages", n, MaxRequestBytes)
	}
	return wrong
}
