package server

import (
	"context"
	"log/slog"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxRequestBytes is the longest message taken: a body of 1 MiB, the headers
// and room for the rest.
const maxRequestBytes = 2 << 20

// options are the interceptors, outermost first, and the limits.
func options(logger *slog.Logger) []grpc.ServerOption {
	lines := logging.LoggerFunc(func(ctx context.Context, level logging.Level, text string, fields ...any) {
		logger.Log(ctx, slog.Level(level), text, fields...)
	})
	calls := []logging.Option{logging.WithLogOnEvents(logging.FinishCall), logging.WithLevels(callLevel)}
	// The default handler would send the panic's value to the caller.
	panics := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		logger.ErrorContext(ctx, "panic in a call", slog.Any("panic", p))
		return status.Error(codes.Internal, "internal error")
	})
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.ChainUnaryInterceptor(logging.UnaryServerInterceptor(lines, calls...), recovery.UnaryServerInterceptor(panics)),
		grpc.ChainStreamInterceptor(logging.StreamServerInterceptor(lines, calls...), recovery.StreamServerInterceptor(panics)),
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
