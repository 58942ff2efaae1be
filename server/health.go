package server

import (
	"context"
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
	"fetchd/server/internal/wire"
)

// healthWriteTime is how long a health answer may take to reach the connection.
const healthWriteTime = 5 * time.Second

// healthService implements grpc.health.v1.Health without reading the requests, since
// unauthenticated clients send them. It answers every request for the whole server,
// whatever service the request names.
type healthService struct {
	states   *health.Server
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
		return h.send(stream, resp)
	}
}

// watch sends the state whenever it changes.
func (h *healthService) watch(ctx context.Context, stream grpc.ServerStream) error {
	ended := probeOf(ctx).Ended()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.watching, cancel)()
	defer context.AfterFunc(ended, cancel)()
	err := h.states.Watch(new(healthpb.HealthCheckRequest), &healthWatch{ServerStream: stream, ctx: ctx, service: h})
	if ended.Err() != nil {
		return errReplaced
	}
	return err
}

// probeOf returns what admits a health call. The gate has set it.
func probeOf(ctx context.Context) *door.Probe { return wire.CallOf(ctx).Probe() }

// errReplaced is the status of a call that was ended for a newer one.
var errReplaced = status.Error(codes.ResourceExhausted, "too many health calls are in flight: this one was ended for a newer one")

// healthWatch is the stream of a watch.
type healthWatch struct {
	grpc.ServerStream
	ctx     context.Context
	service *healthService
}

// Context implements grpc.ServerStream.
func (w *healthWatch) Context() context.Context { return w.ctx }

// Send implements healthpb.Health_WatchServer.
func (w *healthWatch) Send(resp *healthpb.HealthCheckResponse) error {
	return w.service.send(w.ServerStream, resp)
}

// send returns once the message is written to the connection. The stream cannot end
// before that, not even with an error. If the client prevents the write, its connection
// is closed.
func (h *healthService) send(stream grpc.ServerStream, resp proto.Message) error {
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
	case <-probeOf(stream.Context()).Ended().Done():
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
