package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"fetchd/internal/door"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/wire"
)

// Limits on the connections of callers. They limit memory and time, and do not affect callers that
// behave well.
const (
	maxMetadataBytes = 16 << 10
	maxStreams       = 1000             // calls in flight on one connection
	callWorkers      = 128              // goroutines that run calls one after another, so that stacks do not grow for each call
	reflectionTime   = time.Minute      // of a whole reflection call
	idleTime         = 15 * time.Minute // of a connection without calls
	pingAfter        = 30 * time.Second // of silence, to notice a caller that is gone
	pingTimeout      = 20 * time.Second
	minPingInterval  = 10 * time.Second // between pings of a caller
	connWindow       = 1 << 20          // of a connection
)

// errNoCalls is returned to unauthenticated clients that make too many calls.
var errNoCalls = status.Error(codes.ResourceExhausted, "this connection has made too many calls without credentials")

// options returns the options of gRPC: the interceptors, outermost first, and the limits.
func (g *gate) options(cfg *Config) []grpc.ServerOption {
	receive := grpc.ChainStreamInterceptor(g.receiving.Stream) // outermost, so that messages are counted
	limits := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(wire.MaxRequestBytes), // of calls that [wire.Receiving] does not receive
		grpc.MaxHeaderListSize(maxMetadataBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(callWorkers),
		grpc.StaticStreamWindowSize(wire.StreamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(wire.HandshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			return g.tapped(ctx, info)
		}),
	}
	if cfg.TLS != nil {
		limits = append(limits, grpc.Creds(cfg.Handshakes.Credentials(door.Credentials(cfg.TLS, g.Callers.ByCertificate))))
	}
	return slices.Concat([]grpc.ServerOption{receive}, cfg.Observe.ServerOptions(), g.interceptors(), limits)
}

// tapped returns the context of a call when its headers have arrived, before gRPC calls
// the handler. Callers that are not allowed are refused here, before the request is read.
func (g *gate) tapped(ctx context.Context, info *tap.Info) (context.Context, error) {
	from := wire.ConnOf(ctx)
	if !door.FromContext(ctx).MayCall() {
		go from.Drop() // gRPC holds a lock here
		return ctx, errNoCalls
	}
	named, err := g.Callers.Identify(ctx, wire.CredentialsIn(ctx, info.Header))
	if err != nil && !public(info.FullMethodName) {
		return ctx, err
	}
	later := handled[info.FullMethodName] && !from.IsBlocked()
	if !later {
		memory := g.Budget.Lease(admission.Caller(named))
		if !from.Charge(info.Header, memory) && (!public(info.FullMethodName) || from.IsBlocked()) { // a probe is always answered
			return ctx, g.Fetches.NoMemory(ctx, "calls")
		}
		context.AfterFunc(named, func() { from.CallOver(memory) })
	}
	if public(info.FullMethodName) { // its request is not read
		return named, nil
	}
	ctx, cancel := admission.Cancellable(named)
	if strings.HasPrefix(info.FullMethodName, "/grpc.reflection.") { // any of its messages may be the last one
		time.AfterFunc(reflectionTime, func() { cancel(context.Canceled) })
	}
	return g.receiving.Expect(ctx, cancel, !later), nil
}
