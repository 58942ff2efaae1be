package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/frontier/v1"
	"fetchd/internal/door"
	"fetchd/internal/secure"
)

const (
	// maxMessageBytes limits a request.
	maxMessageBytes = 4 << 20
	// maxFields limits the fields of a request, because an empty one of two bytes uses a hundred times as
	// much memory.
	maxFields = 2 * maxBatch
	// shortMessage is the length up to which a request no longer counts as arriving when it has
	// arrived.
	shortMessage = 64 << 10
	// arrivalTime is how long a request may take to arrive.
	arrivalTime = 10 * time.Second
	maxStreams  = 256 // of one connection
	maxHead     = 16 << 10
	readBuffer  = 8 << 10 // of a connection; it also limits how many calls arrive at once
	idleTime    = 2 * time.Minute
)

// options returns the limits, and the interceptors, outermost first. All methods are streams here, so
// the interceptors run before a request is read.
func (s *Server) options() []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(encodingproto.Name)}),
		door.Tap(s.tapped),
		grpc.ReadBufferSize(readBuffer),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHead),
		grpc.ConnectionTimeout(arrivalTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: time.Minute, Timeout: arrivalTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(
			s.admit,
			s.logged,
			recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(s.panicked))),
	}
	identity := door.Credentials(s.config.TLS, s.byCertificate)
	if s.config.TLS != nil {
		identity = s.config.Handshakes.Credentials(identity)
	}
	return append(options, grpc.Creds(identity))
}

// panicked logs a panic. It ends only its call, which does not get the value.
func (s *Server) panicked(ctx context.Context, p any) error {
	s.logger.ErrorContext(ctx, "panic in a call", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	return status.Error(codes.Internal, "internal error")
}

// call is the context of a gRPC call. It has its slot from its headers until its handler has returned.
type call struct {
	door.Call
	cancel context.CancelFunc // ends reads and writes that wait for the client
	caller *caller            // nil: a health check
	probe  *door.Probe        // nil: not a health check
	leave  func()             // releases the slot
	clock  *time.Timer        // until the handler starts
}

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Call.Value(key)
}

// callOf returns the call of a context. tapped has made it.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// tapped returns the call of a context when its headers have arrived, before gRPC starts a goroutine for its
// handler. What is refused here costs no more than the refusal. It must not wait, because gRPC holds locks.
func (s *Server) tapped(ctx context.Context, info *tap.Info) (_ context.Context, err error) {
	conn := door.FromContext(ctx)
	name, unknown := s.identify(ctx, info.Header.Get("authorization"), tlsOf(ctx))
	defer func() {
		if err != nil && (name != "" || unknown != nil) { // other strangers are not logged
			s.refused(ctx, name, info.FullMethodName, status.Convert(err))
		}
	}()
	isHealth := strings.HasPrefix(info.FullMethodName, "/"+healthpb.Health_ServiceDesc.ServiceName+"/") // orchestrators have no credentials
	tooMany := conn.MayCall()
	switch {
	case tooMany != nil:
		go func() { _ = conn.Close() }() // it waits for locks
		return ctx, status.Errorf(codes.ResourceExhausted, "%v", tooMany)
	case unknown != nil && !isHealth:
		return ctx, unknown
	case !s.methods[info.FullMethodName]:
		return ctx, status.Errorf(codes.Unimplemented, "there is no method %.100q", info.FullMethodName)
	case ctx.Err() != nil:
		return ctx, status.FromContextError(ctx.Err()).Err()
	}
	c := new(call)
	if err = s.enter(ctx, c, name, info.FullMethodName, isHealth); err != nil {
		return ctx, err
	}
	ctx, c.cancel = context.WithCancel(ctx) // it ends with the stream
	c.Tapped(ctx)
	c.clock = time.AfterFunc(arrivalTime, func() {
		if c.GiveUp() {
			c.leave()
		}
	})
	return c, nil
}

// enter gives a call its slot, or refuses it.
func (s *Server) enter(ctx context.Context, c *call, name, method string, isHealth bool) (err error) {
	if isHealth {
		probe, crowd := s.probes.Enter(door.FromContext(ctx), addressOf(ctx), method == healthpb.Health_Watch_FullMethodName)
		if crowd != door.NoCrowd {
			return status.Error(codes.ResourceExhausted, "too many health calls are in flight; retry later")
		}
		c.probe, c.leave = probe, probe.Leave
		return nil
	}
	l := s.gate.calls
	if strings.HasPrefix(method, "/grpc.reflection.") {
		l = reflectionLimit
	}
	c.caller, c.leave, err = s.gate.enter(name, l)
	return err
}

// cancelAfter cancels a call unless stop is called in time.
func cancelAfter(ctx context.Context, d time.Duration) (stop func() bool) {
	return time.AfterFunc(d, callOf(ctx).cancel).Stop
}

// admit is the outermost interceptor. It runs the handler of a call, and releases its slot.
func (s *Server) admit(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := callOf(stream.Context())
	c.clock.Stop()
	if !c.Start() {
		return status.Error(codes.Unavailable, "the service was too busy to start the call")
	}
	defer func() {
		c.End()
		c.leave()
	}()
	if c.caller == nil {
		return handler(srv, stream)
	}
	admitted := middleware.WrapServerStream(stream)
	admitted.WrappedContext = withCaller(stream.Context(), c.caller)
	return handler(srv, admitted)
}

// identify returns the name of the caller with these Authorization headers, or its IP address. Its
// connection is then authenticated.
func (s *Server) identify(ctx context.Context, authorization []string, state *tls.ConnectionState) (name string, err error) {
	if s.config.Authenticate == nil {
		name = addressOf(ctx)
	} else if name, err = s.config.Authenticate(secure.Bearer(authorization), state); err != nil {
		return "", status.Error(codes.Unauthenticated, fmt.Sprint(err))
	}
	door.FromContext(ctx).Authenticated(name)
	return name, nil
}

// tlsOf returns the TLS state of the connection of a call, or nil.
func tlsOf(ctx context.Context) *tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return &info.State
		}
	}
	return nil
}

// byCertificate reports whether a client certificate alone identifies a caller.
func (s *Server) byCertificate(state *tls.ConnectionState) bool {
	if s.config.Authenticate == nil {
		return false
	}
	_, err := s.config.Authenticate("", state)
	return err == nil
}

// addressOf returns the IP address of a caller; see [door.Address].
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return door.Address(p.Addr)
	}
	return ""
}

// description returns the methods as streams, whatever they are in the contract. gRPC would read the
// request of a unary method before any interceptor runs.
func (s *Server) description() *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{ServiceName: pb.FrontierService_ServiceDesc.ServiceName, HandlerType: (*any)(nil), Metadata: pb.FrontierService_ServiceDesc.Metadata}
	for _, m := range methods {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: m.name, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			return s.answer(m, stream)
		}})
	}
	return desc
}

// healthDescription returns the methods of grpc.health.v1.Health. They do not read requests, which
// unauthenticated clients send, and answer for the whole server.
func (s *Server) healthDescription() *grpc.ServiceDesc {
	check := func(_ any, stream grpc.ServerStream) error {
		out, err := s.health.Check(stream.Context(), new(healthpb.HealthCheckRequest))
		if err != nil {
			return err
		}
		return stream.SendMsg(out)
	}
	watch := func(_ any, stream grpc.ServerStream) error {
		defer context.AfterFunc(callOf(stream.Context()).probe.Ended(), callOf(stream.Context()).cancel)()
		return s.health.Watch(new(healthpb.HealthCheckRequest), &grpc.GenericServerStream[healthpb.HealthCheckRequest, healthpb.HealthCheckResponse]{ServerStream: stream})
	}
	return &grpc.ServiceDesc{ServiceName: healthpb.Health_ServiceDesc.ServiceName, HandlerType: (*any)(nil), Metadata: healthpb.Health_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{{StreamName: "Check", ServerStreams: true, Handler: check}, {StreamName: "Watch", ServerStreams: true, Handler: watch}}}
}

// answer carries out a call.
func (s *Server) answer(m method, stream grpc.ServerStream) error {
	ctx := stream.Context()
	in := m.request()
	free, err := s.receive(stream, in)
	if err != nil {
		door.FromContext(ctx).Refused() // without a request a call costs its client nothing
		return err
	}
	defer free()
	return s.service.run(ctx, m, in, func(out proto.Message) error {
		stop := cancelAfter(ctx, s.config.Stall)
		defer stop()
		if err := stream.SendMsg(out); err != nil {
			return s.stalledError()
		}
		return nil
	})
}

// receive reads a request. free must be called when it is not needed any more.
func (s *Server) receive(stream grpc.ServerStream, in proto.Message) (free func(), err error) {
	ctx := stream.Context()
	stop := cancelAfter(ctx, arrivalTime)
	defer stop()
	free, err = callerOf(ctx).receive(ctx)
	if err != nil {
		return nil, err
	}
	var sent raw
	if err := stream.RecvMsg(&sent); err != nil {
		free()
		return nil, arrivalError(err)
	}
	if err := decode(sent.bytes, in); err != nil {
		free()
		return nil, err
	}
	if len(sent.bytes) <= shortMessage {
		free()
	}
	return free, nil
}

// arrivalError returns the status of a request that did not arrive.
func arrivalError(err error) error {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
		return err
	}
	return status.Errorf(codes.Internal, "the request is not complete: %.200s", fmt.Sprint(err))
}

// decode decodes a request.
func decode(data []byte, in proto.Message) error {
	fields := 0
	for rest := data; len(rest) > 0; fields++ {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return status.Errorf(codes.InvalidArgument, "the request is not a %s", in.ProtoReflect().Descriptor().Name())
		}
		rest = rest[n:]
	}
	if fields > maxFields {
		return status.Errorf(codes.InvalidArgument, "the request has %d fields: send at most %d entries", fields, maxBatch)
	}
	if err := proto.Unmarshal(data, in); err != nil {
		return status.Errorf(codes.InvalidArgument, "the request is not a %s: %.200s", in.ProtoReflect().Descriptor().Name(), fmt.Sprint(err))
	}
	return nil
}

// raw is a request that is not decoded yet.
type raw struct{ bytes []byte }

// codec is the usual codec, but does not decode into a raw.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*raw); ok {
		r.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
