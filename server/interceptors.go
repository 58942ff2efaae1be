package server

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/budget"
	"fetchd/internal/rejections"
)

const (
	// maxRequestBytes limits a message: it fits three tasks of FetchMany with bodies of 1 MiB.
	maxRequestBytes = 4 << 20
	// reservedBytes is the memory reserved for an arriving request. A valid request of one
	// fetch is shorter. A longer message is charged by its length.
	reservedBytes = 2 << 20
)

// maxLongStreams and maxLongStreamsOfCaller limit the streams without a time limit:
// FetchMany and reflection.
const maxLongStreams, maxLongStreamsOfCaller = 1024, 64

// options returns the interceptors, outermost first, and the limits.
func (s *Server) options(cfg *Config) []grpc.ServerOption {
	receive := grpc.ChainStreamInterceptor(s.receiving.stream) // outermost, so that messages are counted
	return slices.Concat([]grpc.ServerOption{receive}, cfg.Observe.ServerOptions(), s.interception(cfg), s.transportOptions(cfg))
}

func (s *Server) interception(cfg *Config) []grpc.ServerOption {
	// The default handler would send the panic's value to the caller.
	panics := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		return logPanic(ctx, cfg.Logger, "panic in a call", p)
	})
	g := &gate{calls: s.service.finished, receiving: &s.receiving, begin: s.begin, auth: s.service.callers, budget: s.budget,
		streams: newAdmission(s.budget, &Limits{MaxFetches: maxLongStreams, MaxFetchesPerCaller: maxLongStreamsOfCaller}, "TOO_MANY_STREAMS", "long streams", cfg.Observe.Refused)}
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ChainUnaryInterceptor(g.unary(recovery.UnaryServerInterceptor(panics))),
		grpc.ChainStreamInterceptor(g.stream(recovery.StreamServerInterceptor(panics))),
	}
}

// logPanic logs the value and the stack of a panic. It returns the status of the call.
func logPanic(ctx context.Context, logger *slog.Logger, text string, p any) error {
	logger.ErrorContext(ctx, text, slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	return status.Error(codes.Internal, "internal error")
}

// gate is the interceptor of every call: it checks the caller and the request, charges memory and
// logs a line. It is one interceptor instead of five, because 10,000 calls may wait, each with the
// stack of its interceptors.
type gate struct {
	calls     *callLog
	receiving *receiving
	begin     func(ctx context.Context) (over func(), err error) // [Server.begin]
	auth      *authentication
	budget    *budget.Budget
	streams   *admission // for streams that are not one fetch; a single fetch is admitted after its request is read
}

// unary returns the interceptor of unary calls. guarded recovers panics and calls the handler.
func (g *gate) unary(guarded grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		began := time.Now()
		if err = g.received(ctx, req); err == nil {
			resp, err = guarded(ctx, req, info, handler)
		}
		var out *outgoing
		if err == nil {
			out, err = g.outgoing(ctx, resp)
		}
		g.auth.leave(ctx, &err)
		g.logCall(ctx, info.FullMethod, began, err)
		if err != nil {
			if c := callOf(ctx); c != nil && c.ticket != nil {
				c.ticket.release() // the answer is not sent
			}
			return nil, err
		}
		return out, nil
	}
}

// received records that a request has arrived, and checks the caller and the request.
func (g *gate) received(ctx context.Context, req any) error {
	g.receiving.received(callOf(ctx))
	if err := ctx.Err(); err != nil { // the call ended while the end of the request arrived
		return status.FromContextError(err).Err()
	}
	if err := g.auth.enter(ctx); err != nil {
		return err
	}
	return checkElements(req)
}

// outgoing returns a message to be sent to the caller. It has the ticket that the handler passed to
// [handOver], or else its own charge.
func (g *gate) outgoing(ctx context.Context, message any) (*outgoing, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, status.Error(codes.Internal, "internal error")
	}
	o := &outgoing{answer: answer{conn: connOf(ctx)}, message: m, size: sizeOf(m)}
	if c := callOf(ctx); c != nil && c.ticket != nil {
		o.owns(c.ticket)
		return o, nil
	}
	l := g.budget.Lease(callerOf(ctx))
	if !l.Grow(budget.Answer, answerBytes(o.size)) {
		l.Close()
		return nil, g.streams.noMemory(ctx, "answers")
	}
	o.charge(l)
	return o, nil
}

// stream returns the interceptor of streams. guarded recovers panics and calls the handler.
func (g *gate) stream(guarded grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		began := time.Now()
		ctx := stream.Context()
		if public(info.FullMethod) { // healthService has its own limits
			err := guarded(srv, stream, info, handler)
			g.logCall(ctx, info.FullMethod, began, err)
			return err
		}
		err := refuseCompressed(ctx)
		over := func() {}
		if err == nil {
			over, err = g.begin(ctx)
		}
		if err == nil {
			defer over()
		}
		if err == nil && info.FullMethod != pb.FetchService_Fetch_FullMethodName {
			var t *ticket
			if t, err = g.streams.enter(ctx, charge{budget.Receiving, reservedBytes}); err == nil { // for the one request that it may hold at a time
				defer t.release()
				if c := callOf(ctx); c != nil {
					c.reserved = t.memory
				}
			}
		}
		if err == nil {
			err = guarded(srv, &callStream{stream, g}, info, handler)
		}
		g.auth.leave(ctx, &err)
		g.logCall(ctx, info.FullMethod, began, err)
		return err
	}
}

// refuseCompressed refuses a call with compressed requests by its headers. A few bytes
// could become megabytes. gRPC would also compress the answers, into a copy that cannot
// be charged.
func refuseCompressed(ctx context.Context) error {
	s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok {
		return status.Error(codes.Internal, "internal error")
	}
	if name := s.RecvCompress(); name != "" && name != encoding.Identity {
		return status.Errorf(codes.Unimplemented, "the request is compressed with %.20q: send it without grpc-encoding", name)
	}
	return nil
}

// description returns the service's description, with unary methods that check the
// headers of a call before its request is read.
func (s *Server) description() *grpc.ServiceDesc {
	desc := pb.FetchService_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		handler := desc.Methods[i].Handler
		desc.Methods[i].Handler = func(srv any, ctx context.Context, _ func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			if err := refuseCompressed(ctx); err != nil {
				return nil, err
			}
			over, err := s.begin(ctx)
			if err != nil {
				return nil, err
			}
			defer over()
			return handler(srv, ctx, func(m any) error { return s.receiving.message(ctx, m, true) }, interceptor)
		}
	}
	return &desc
}

// callStream limits the requests of a stream, and charges its messages.
type callStream struct {
	grpc.ServerStream
	gate *gate
}

// RecvMsg implements grpc.ServerStream.
func (s *callStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.gate.received(s.Context(), m)
}

// SendMsg implements grpc.ServerStream.
func (s *callStream) SendMsg(m any) error {
	o, ok := m.(*outgoing)
	if !ok {
		var err error
		if o, err = s.gate.outgoing(s.Context(), m); err != nil {
			return err
		}
	}
	o.conn = connOf(s.Context())
	defer o.release() // if it was not encoded
	return s.ServerStream.SendMsg(o)
}

// logCall logs the end of a gRPC call. The logging interceptor of the middleware would hold a
// kilobyte of fields for each call in flight.
func (g *gate) logCall(ctx context.Context, method string, began time.Time, err error) {
	st := status.Convert(err)
	level := callLevel(st.Code())
	if public(method) && level < slog.LevelError { // anyone may call it as often as they like
		level = slog.LevelDebug
	}
	g.calls.finished(ctx, level, slog.String("grpc.method", method), nameOf(ctx), began, st, st.Message())
}

// callLog logs the ends of calls.
type callLog struct {
	logger   *slog.Logger
	rejected *rejections.Log
}

// finished logs the end of a call. caller is its name, or empty, and text the text of its error. A call
// that was rejected has its own line at DEBUG only, because a caller can make thousands a second.
func (l *callLog) finished(ctx context.Context, level slog.Level, method slog.Attr, caller string, began time.Time, st *status.Status, text string) {
	if level == slog.LevelInfo && isRejection(st.Code()) {
		if l.logger.Enabled(ctx, level) {
			l.rejected.Add(rejections.Call{Caller: cmp.Or(caller, callerOf(ctx)), Reason: reasonOf(st), Method: method.Value.String(), Error: text})
		}
		level = slog.LevelDebug
	}
	if !l.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{method, slog.String("grpc.code", st.Code().String()),
		slog.Float64("duration_seconds", time.Since(began).Round(time.Microsecond).Seconds())}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		attrs = append(attrs, slog.String("peer.address", p.Addr.String()))
	}
	if caller != "" {
		attrs = append(attrs, slog.String("caller", caller))
	}
	if text != "" {
		attrs = append(attrs, slog.String("grpc.error", text))
	}
	l.logger.LogAttrs(ctx, level, "finished call", attrs...)
}

// isRejection reports whether a call with this status was rejected before it fetched anything.
func isRejection(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Unavailable:
		return true
	}
	return false
}

// reasonOf returns the ErrorInfo reason of a status, or else its code.
func reasonOf(st *status.Status) string {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return st.Code().String()
}

// callLevel returns the level of the line of a call. A successful call has a line from its fetch
// already.
func callLevel(code codes.Code) slog.Level {
	switch code {
	case codes.OK, codes.Unauthenticated: // unauthenticated clients must not fill the log
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelInfo
}
