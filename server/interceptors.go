package server

import (
	"context"
	"log/slog"
	"runtime/debug"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// maxRequestBytes is the longest message taken: a body of 1 MiB, the headers
// and room for the rest.
const maxRequestBytes = 2 << 20

// options are the interceptors, outermost first, and the limits.
func options(logger *slog.Logger, watching context.Context) []grpc.ServerOption {
	lines := logging.LoggerFunc(func(ctx context.Context, level logging.Level, text string, fields ...any) {
		logger.Log(ctx, slog.Level(level), text, fields...)
	})
	calls := []logging.Option{logging.WithLogOnEvents(logging.FinishCall), logging.WithLevels(callLevel)}
	// The default handler would send the panic's value to the caller.
	panics := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		logger.ErrorContext(ctx, "panic in a call", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		return status.Error(codes.Internal, "internal error")
	})
	return append(transportOptions(),
		grpc.ChainUnaryInterceptor(unaryCame, logging.UnaryServerInterceptor(lines, calls...), recovery.UnaryServerInterceptor(panics)),
		grpc.ChainStreamInterceptor(streamComes, logging.StreamServerInterceptor(lines, calls...), recovery.StreamServerInterceptor(panics),
			endWatches(watching)),
	)
}

// unaryCame notes that the request of a unary call is in hand.
func unaryCame(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	requestCame(ctx)
	return handler(ctx, req)
}

// streamComes notes when the first request of a stream is in hand.
func streamComes(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &firstRequest{stream})
}

// firstRequest is a stream that stops the clock with each message it receives.
type firstRequest struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s *firstRequest) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		requestCame(s.Context())
	}
	return err
}

// endWatches ends what is no fetch when watching is done: a health watch stays
// open until its caller leaves, and would hold up a graceful stop.
func endWatches(watching context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if info.FullMethod != healthpb.Health_Watch_FullMethodName {
			return handler(srv, stream)
		}
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(watching, cancel)()
		wrapped := middleware.WrapServerStream(stream)
		wrapped.WrappedContext = ctx
		return handler(srv, wrapped)
	}
}

// callLevel is the level of a call's line. A call that went well has its line
// from the fetch.
func callLevel(code codes.Code) logging.Level {
	switch code {
	case codes.OK:
		return logging.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	}
	return logging.LevelInfo
}
