package server

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

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
	return slices.Concat(cfg.Observe.ServerOptions(), interception(cfg.Logger, s.unread), transportOptions(cfg.TLS, cfg.Authenticate))
}

func interception(logger *slog.Logger, unread *answers) []grpc.ServerOption {
	// The default handler would send the panic's value to the caller.
	panics := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		logger.ErrorContext(ctx, "panic in a call", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		return status.Error(codes.Internal, "internal error")
	})
	streams := func() *admission {
		return newAdmission(&Limits{MaxFetches: maxWatches, MaxFetchesPerCaller: maxWatchesOfCaller}, "TOO_MANY_STREAMS", "long streams", unread.refused)
	}
	g := &gate{logger: logger, unread: unread, streams: streams(), watches: streams()}
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ChainUnaryInterceptor(g.unary(recovery.UnaryServerInterceptor(panics))),
		grpc.ChainStreamInterceptor(g.stream(recovery.StreamServerInterceptor(panics))),
	}
}

// gate is what every call passes: who calls, what it may, and a line at its end. It
// is one interceptor and not five, for ten thousand calls may wait, each with the
// stack that its interceptors take.
type gate struct {
	logger  *slog.Logger
	unread  *answers
	streams *admission // of those that are not one fetch: such a one is admitted once its request is read
	watches *admission // of the public ones, which strangers may have
}

// unary passes a call on to guarded, which calls the handler.
func (g *gate) unary(guarded grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		began := time.Now()
		requestCame(ctx)
		err = g.enter(ctx, info.FullMethod)
		if err == nil {
			err = checkElements(req)
		}
		if err == nil {
			resp, err = guarded(ctx, req, info, handler)
		}
		g.line(ctx, info.FullMethod, began, err)
		if err != nil {
			return nil, err
		}
		return g.unread.watched(ctx, resp), nil
	}
}

// stream passes a call on to guarded, which calls the handler.
func (g *gate) stream(guarded grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		began := time.Now()
		ctx := stream.Context()
		err := g.enter(ctx, info.FullMethod)
		if err == nil && info.FullMethod != pb.FetchService_Fetch_FullMethodName {
			var caller string
			of := g.streams
			if public(info.FullMethod) {
				of = g.watches
			}
			if caller, err = of.enter(ctx); err == nil {
				defer of.leave(caller)
			}
		}
		if err == nil {
			err = guarded(srv, &callStream{stream, g.unread}, info, handler)
		}
		g.line(ctx, info.FullMethod, began, err)
		return err
	}
}

// enter refuses who does not read. Health is told all the same: an orchestrator
// would end the service for what its callers do.
func (g *gate) enter(ctx context.Context, method string) error {
	if public(method) {
		return nil
	}
	return g.unread.enter(ctx)
}

// callStream is a stream whose requests are bounded, and whose long messages are
// counted.
type callStream struct {
	grpc.ServerStream
	unread *answers
}

// RecvMsg implements grpc.ServerStream.
func (s *callStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	requestCame(s.Context())
	return checkElements(m)
}

// SendMsg implements grpc.ServerStream.
func (s *callStream) SendMsg(m any) error {
	return s.ServerStream.SendMsg(s.unread.watched(s.Context(), m))
}

// line tells of the end of a call. The middleware's logging would keep a kilobyte
// of fields for each from its begin.
func (g *gate) line(ctx context.Context, method string, began time.Time, err error) {
	st := status.Convert(err)
	level := callLevel(st.Code())
	if !g.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("grpc.method", method), slog.String("grpc.code", st.Code().String()),
		slog.Duration("duration", time.Since(began).Round(time.Microsecond))}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		attrs = append(attrs, slog.String("peer.address", p.Addr.String()))
	}
	if name, ok := ctx.Value(callerName{}).(string); ok {
		attrs = append(attrs, slog.String("caller", name))
	}
	if err != nil {
		attrs = append(attrs, slog.String("grpc.error", st.Message()))
	}
	g.logger.LogAttrs(ctx, level, "finished call", attrs...)
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
