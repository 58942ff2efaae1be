package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/door"
)

// Limits on the connections of callers. They limit memory and time, and do not affect callers that
// behave well.
const (
	maxMetadataBytes = 16 << 10
	maxStreams       = 1000             // calls in flight on one connection
	callWorkers      = 128              // goroutines that run calls one after another, so that stacks do not grow for each call
	handshakeTime    = 10 * time.Second // from accept to a connection that can carry calls
	firstMessageTime = 10 * time.Second // from the head of a call to its request
	reflectionTime   = time.Minute      // of a whole reflection call
	idleTime         = 15 * time.Minute // of a connection without calls
	pingAfter        = 30 * time.Second // of silence, to notice a caller that is gone
	pingTimeout      = 20 * time.Second
	minPingInterval  = 10 * time.Second // between pings of a caller
	streamWindow     = 64 << 10         // of data that no handler has read yet; by default gRPC's window grows to 16 MiB
	connWindow       = 1 << 20          // of a connection
)

// transportOptions returns the limits as options of gRPC.
func (s *Server) transportOptions(cfg *Config) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequestBytes), // of calls that [receiving] does not receive
		grpc.MaxHeaderListSize(maxMetadataBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(callWorkers),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			return s.tapped(ctx, info)
		}),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(cfg.Handshakes.Credentials(door.Credentials(cfg.TLS, s.service.callers.byCertificate))))
	}
	return options
}

// tapped returns the context of a call when its headers have arrived, before gRPC calls
// the handler. Callers that are not allowed are refused here, before the request is read.
func (s *Server) tapped(ctx context.Context, info *tap.Info) (context.Context, error) {
	from := connOf(ctx)
	if !door.FromContext(ctx).MayCall() {
		go from.drop() // gRPC holds a lock here
		return ctx, errNoCalls
	}
	named, err := s.service.callers.identify(ctx, shownIn(ctx, info.Header))
	if err != nil && !public(info.FullMethodName) {
		return ctx, err
	}
	later := handled[info.FullMethodName] && !from.isBlocked()
	if !later {
		memory := s.budget.Lease(callerOf(named))
		if !from.charge(info.Header, memory) && (!public(info.FullMethodName) || from.isBlocked()) { // a probe is always answered
			return ctx, s.service.admission.noMemory(ctx, "calls")
		}
		context.AfterFunc(named, func() { from.callOver(memory) })
	}
	if public(info.FullMethodName) { // its request is not read
		return named, nil
	}
	ctx, cancel := cancellable(named)
	c := &call{Context: ctx, cancel: cancel, caller: callerOf(ctx), charged: !later}
	if strings.HasPrefix(info.FullMethodName, "/grpc.reflection.") { // any of its messages may be the last one
		time.AfterFunc(reflectionTime, func() { cancel(context.Canceled) })
	}
	s.receiving.expect(c)
	return c, nil // the timer has no effect on a call that has ended
}

// handled are the methods whose calls are charged when their handlers start, unless the
// connection is blocked. Handlers report the end of a call at a lower cost than ten
// thousand contexts would. A call that gRPC ends before its handler starts leaves nothing
// behind then.
var handled = map[string]bool{
	pb.FetchService_Fetch_FullMethodName: true, pb.FetchService_FetchUnary_FullMethodName: true,
	pb.FetchService_FetchMany_FullMethodName: true, pb.FetchService_Explain_FullMethodName: true,
}

// begin counts a call whose handler starts and charges it, unless it is charged already.
// It returns a function that undoes both.
func (s *Server) begin(ctx context.Context) (over func(), err error) {
	calls, counts := &s.service.calls, int64(0)
	if method, _ := grpc.Method(ctx); handled[method] { // a drain does not wait for other calls
		counts = 1
	}
	calls.Add(counts)
	c := callOf(ctx)
	if c == nil || c.charged {
		return func() { calls.Add(-counts) }, nil
	}
	from, memory := connOf(ctx), s.budget.Lease(c.caller)
	md, _ := metadata.FromIncomingContext(ctx)
	if !from.charge(md, memory) {
		calls.Add(-counts)
		return nil, s.service.admission.noMemory(ctx, "calls")
	}
	return func() { from.callOver(memory); calls.Add(-counts) }, nil
}
