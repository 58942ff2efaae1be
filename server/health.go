package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fetchd/internal/door"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/wire"
)

// healthWriteTime is how long a health answer may take to reach the connection.
const healthWriteTime = 5 * time.Second

// healthService implements grpc.health.v1.Health without reading the requests, since
// unauthenticated clients send them. It answers every request for the whole server,
// whatever service the request names.
type healthService struct {
	states   *health.Server
	calls    *publicCalls
	watching context.Context // done when watches must end; they would delay a graceful stop
}

// desc registers the methods as streams. gRPC reads the request of a unary method before
// it calls the handler, with one size limit for all methods.
func (h *healthService) desc() *grpc.ServiceDesc {
	method := func(name string, handle func(context.Context, grpc.ServerStream) error) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			_ = grpc.SetSendCompressor(stream.Context(), encoding.Identity) // fails only outside a call
			return handle(stream.Context(), stream)
		}}
	}
	return &grpc.ServiceDesc{ServiceName: healthpb.Health_ServiceDesc.ServiceName, HandlerType: (*any)(nil), Metadata: healthpb.Health_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{method("Check", unaryHealth(h, h.states.Check)), method("List", unaryHealth(h, h.states.List)), method("Watch", h.watch)}}
}

// unaryHealth returns the handler of a method with one answer.
func unaryHealth[Q any, R proto.Message](h *healthService, method func(context.Context, *Q) (R, error)) func(context.Context, grpc.ServerStream) error {
	return func(ctx context.Context, stream grpc.ServerStream) error {
		resp, err := method(ctx, new(Q))
		if err != nil {
			return err
		}
		call, err := h.calls.enter(ctx, false)
		if err != nil {
			return err
		}
		defer h.calls.leave(call)
		return h.send(stream, call, resp)
	}
}

// watch sends the state whenever it changes.
func (h *healthService) watch(ctx context.Context, stream grpc.ServerStream) error {
	call, err := h.calls.enter(ctx, true)
	if err != nil {
		return err
	}
	defer h.calls.leave(call)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.watching, cancel)()
	defer context.AfterFunc(call.ctx, cancel)()
	err = h.states.Watch(new(healthpb.HealthCheckRequest), &healthWatch{ServerStream: stream, ctx: ctx, service: h, call: call})
	if call.ctx.Err() != nil {
		return errReplaced
	}
	return err
}

// errReplaced is the status of a call that was ended for a newer one.
var errReplaced = status.Error(codes.ResourceExhausted, "too many health calls are in flight: this one was ended for a newer one")

// healthWatch is the stream of a watch.
type healthWatch struct {
	grpc.ServerStream
	ctx     context.Context
	service *healthService
	call    *publicCall
}

// Context implements grpc.ServerStream.
func (w *healthWatch) Context() context.Context { return w.ctx }

// Send implements healthpb.Health_WatchServer.
func (w *healthWatch) Send(resp *healthpb.HealthCheckResponse) error {
	return w.service.send(w.ServerStream, w.call, resp)
}

// send returns once the message is written to the connection. The stream cannot end
// before that, not even with an error. If the client prevents the write, its connection
// is closed.
func (h *healthService) send(stream grpc.ServerStream, call *publicCall, resp proto.Message) error {
	written := make(chan struct{})
	if err := stream.SendMsg(&healthAnswer{message: resp, written: written}); err != nil {
		return err
	}
	patience := time.NewTimer(healthWriteTime)
	defer patience.Stop()
	select {
	case <-written:
		return nil
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	case <-call.ctx.Done():
		wire.HangUp(stream.Context())
		return errReplaced
	case <-patience.C:
		wire.HangUp(stream.Context())
		return status.Errorf(codes.DeadlineExceeded, "the answer could not be sent within %s", healthWriteTime)
	}
}

// healthAnswer is a message that signals when it has been written.
type healthAnswer struct {
	mem.NopBufferPool

	message proto.Message
	written chan struct{}
}

// Encode is called by the codec of package wire.
func (a *healthAnswer) Encode() (mem.BufferSlice, error) {
	const pooled = 2 << 10 // grpc-go does not release smaller buffers explicitly
	data, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, pooled), a.message)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&data, a)}, nil
}

// Put implements mem.BufferPool.
func (a *healthAnswer) Put(*[]byte) { close(a.written) }

const (
	// maxPublic is the number of public calls that may be in flight, if the memory budget
	// allows it. Each holds at most its stream's window of unread data, and all of them an
	// eighth of the budget. They are not charged, because a probe must be answered when
	// the budget is used up. There must be one for each client that watches health: a
	// client does not call a server that refuses its watch.
	maxPublic      = 1024
	publicOfBudget = 8
	// maxPublicOfConn of them may be on one connection. A probe has one, and a client that
	// watches health has one watch.
	maxPublicOfConn = 16
)

// publicCalls holds the calls in flight that need no credentials. Their number is small, because
// anyone can make them. A new Check is always admitted, because an orchestrator must be
// able to make it; if there are too many, the oldest unauthenticated call ends.
type publicCalls struct {
	most    int
	names   bool // callers authenticate
	refused admission.Refusals

	mu    sync.Mutex
	calls []*publicCall // oldest first
	conns map[*door.Conn]int
}

// publicCall is a call without credentials.
type publicCall struct {
	conn   *door.Conn
	caller string
	ctx    context.Context // done when the call must end for a newer one
	cancel context.CancelFunc
}

// newPublicCalls returns the calls of a server with this memory budget. names reports whether callers
// authenticate.
func newPublicCalls(budget int64, names bool, refused admission.Refusals) *publicCalls {
	most := int(min(max(budget/publicOfBudget/wire.StreamWindow, maxPublicOfConn), maxPublic))
	return &publicCalls{most: most, names: names, refused: refused, conns: make(map[*door.Conn]int)}
}

// enter admits a call, or refuses it with RESOURCE_EXHAUSTED. A watch may end only a call
// of an address that has more than its own. Clients reopen a watch that has ended, and
// would otherwise end each other's forever.
func (p *publicCalls) enter(ctx context.Context, watch bool) (*publicCall, error) {
	call := &publicCall{conn: door.FromContext(ctx), caller: admission.Caller(ctx)}
	call.ctx, call.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[call.conn] >= maxPublicOfConn && (watch || p.mayEnd(call)) {
		return nil, p.refused.Refuse(ctx, "TOO_MANY_STREAMS_OF_CALLER", "this connection has as many health calls in flight as it may")
	}
	if len(p.calls) >= p.most {
		busiest, more := p.busiestLocked(call.caller)
		if watch && more <= 1 {
			return nil, p.refused.Refuse(ctx, "TOO_MANY_STREAMS", "the server has as many health calls in flight as it may")
		}
		p.endOldestLocked(busiest)
	}
	p.conns[call.conn]++
	call.conn.Enter()
	p.calls = append(p.calls, call)
	return call, nil
}

// mayEnd reports whether the call may be ended for another one. Callers that have
// authenticated must not be disturbed.
func (p *publicCalls) mayEnd(c *publicCall) bool {
	return !p.names || c.conn == nil || c.conn.IsStranger()
}

// busiestLocked returns the caller with the most calls that may be ended, and how many more it
// has than other.
func (p *publicCalls) busiestLocked(other string) (caller string, more int) {
	counts := make(map[string]int)
	for _, c := range p.calls {
		if p.mayEnd(c) {
			if counts[c.caller]++; counts[c.caller] > counts[caller] {
				caller = c.caller
			}
		}
	}
	return caller, counts[caller] - counts[other]
}

// endOldestLocked ends the caller's oldest call that may be ended.
func (p *publicCalls) endOldestLocked(caller string) {
	for _, c := range p.calls {
		if c.caller == caller && p.mayEnd(c) {
			c.cancel()
			p.removeLocked(c)
			return
		}
	}
}

// leave records that a call has ended.
func (p *publicCalls) leave(c *publicCall) {
	c.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(c)
}

// removeLocked removes a call, unless it was removed before.
func (p *publicCalls) removeLocked(c *publicCall) {
	at := slices.Index(p.calls, c)
	if at < 0 {
		return
	}
	p.calls = slices.Delete(p.calls, at, at+1)
	if p.conns[c.conn]--; p.conns[c.conn] == 0 {
		delete(p.conns, c.conn)
	}
	c.conn.Leave()
}
