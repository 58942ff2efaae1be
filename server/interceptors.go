package server

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "fetchd/gen/fetchd/v1"
)

// maxRequestBytes is the longest message taken: a body of 1 MiB, the headers
// and room for the rest.
const maxRequestBytes = 2 << 20

// maxWatches and maxWatchesOfCaller bound the streams that may stay open for ever:
// FetchMany, health watches and reflection.
const maxWatches, maxWatchesOfCaller = 1024, 64

// options are the interceptors, outermost first, and the limits.
func (s *Server) options(cfg *Config) []grpc.ServerOption {
	return slices.Concat(cfg.Observe.ServerOptions(), interception(cfg.Logger, cfg.Authenticate, s.unread), transportOptions(cfg.TLS))
}

func interception(logger *slog.Logger, auth Authenticator, unread *answers) []grpc.ServerOption {
	// The default handler would send the panic's value to the caller.
	panics := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		logger.ErrorContext(ctx, "panic in a call", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		return status.Error(codes.Internal, "internal error")
	})
	seen := calls{logger}
	watches := newAdmission(&Limits{MaxFetches: maxWatches, MaxFetchesPerCaller: maxWatchesOfCaller}, "TOO_MANY_STREAMS", "long streams", unread.refused)
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ChainUnaryInterceptor(interceptors.UnaryServerInterceptor(seen), auth.unary, unread.unary, recovery.UnaryServerInterceptor(panics)),
		grpc.ChainStreamInterceptor(interceptors.StreamServerInterceptor(seen), auth.stream, unread.stream, recovery.StreamServerInterceptor(panics), watches.stream),
	}
}

// stream admits the streams that are not one fetch: such a one is admitted once
// its request is read.
func (a *admission) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.FullMethod == pb.FetchService_Fetch_FullMethodName {
		return handler(srv, stream)
	}
	leave, err := a.enter(stream.Context())
	if err != nil {
		return err
	}
	defer leave()
	return handler(srv, stream)
}

// calls notes when a call's request is in hand, and writes a line at its end.
// The middleware's own logging keeps a kilobyte of fields for each call, however
// long it waits.
type calls struct{ logger *slog.Logger }

// ServerReporter implements interceptors.ServerReportable.
func (c calls) ServerReporter(ctx context.Context, meta interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	return &call{ctx: ctx, logger: c.logger, service: meta.Service, method: meta.Method}, ctx
}

// call is one of them.
type call struct {
	interceptors.NoopReporter
	ctx             context.Context
	logger          *slog.Logger
	service, method string
}

// PostMsgReceive implements interceptors.Reporter.
func (c *call) PostMsgReceive(_ any, err error, _ time.Duration) {
	if err == nil {
		requestCame(c.ctx)
	}
}

// PostCall implements interceptors.Reporter.
func (c *call) PostCall(err error, took time.Duration) {
	st := status.Convert(err)
	level := callLevel(st.Code())
	if !c.logger.Enabled(c.ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("grpc.service", c.service), slog.String("grpc.method", c.method),
		slog.String("grpc.code", st.Code().String()), slog.Duration("duration", took.Round(time.Microsecond)),
	}
	if p, ok := peer.FromContext(c.ctx); ok && p.Addr != nil {
		attrs = append(attrs, slog.String("peer.address", p.Addr.String()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("grpc.error", st.Message()))
	}
	c.logger.LogAttrs(c.ctx, level, "finished call", attrs...)
}

// callLevel is the level of a call's line. A call that went well has its line
// from the fetch.
func callLevel(code codes.Code) slog.Level {
	switch code {
	case codes.OK:
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelInfo
}
