package server

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"
)

// Limits on what a caller's connection may do. They bound memory and time, and
// leave a caller that means well alone.
const (
	maxMetadataBytes  = 16 << 10
	maxStreams        = 1000             // calls under way on one connection
	callWorkers       = 128              // goroutines that carry one call out after the other: a stack need not grow again in each
	handshakeTime     = 10 * time.Second // from accept to a connection that can carry calls
	firstMessageTime  = 10 * time.Second // from the head of a call to its request
	reflectionTime    = time.Minute      // of a reflection call, however much it asks
	idleTime          = 15 * time.Minute // of a connection without calls
	pingAfter         = 30 * time.Second // of silence, so that a caller that is gone is noticed
	pingTimeout       = 20 * time.Second
	leastPingInterval = 10 * time.Second // of a caller's own pings
)

// transportOptions are those limits as gRPC takes them.
func transportOptions(secure *tls.Config, auth Authenticator) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxHeaderListSize(maxMetadataBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(callWorkers),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPingInterval, PermitWithoutStream: true}),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			return expectRequest(ctx, info, auth)
		}),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	return options
}

// silence is the key under which a call's context holds itself, an [expected].
type silence struct{}

// expected is the context of a call whose request is to come.
type expected struct {
	context.Context
	clock *time.Timer // ends the call; nil once the request is there
}

// Value implements context.Context.
func (e *expected) Value(key any) any {
	if key == (silence{}) {
		return e
	}
	return e.Context.Value(key)
}

// expectRequest ends a call whose request does not come. It begins before the
// handler, which gRPC only calls with the request in hand: so who may not call is
// turned away here, before he has sent it.
func expectRequest(ctx context.Context, info *tap.Info, auth Authenticator) (context.Context, error) {
	if auth != nil && !public(info.FullMethodName) {
		named, err := auth.withCaller(ctx, shownIn(ctx, info.Header))
		if err != nil {
			return ctx, err
		}
		ctx = named
	}
	ctx, cancel := context.WithCancel(ctx)
	if strings.HasPrefix(info.FullMethodName, "/grpc.reflection.") { // any of its messages may be the last that comes
		time.AfterFunc(reflectionTime, cancel)
	}
	return &expected{ctx, time.AfterFunc(firstMessageTime, cancel)}, nil // it does nothing to a call that is over by then
}

// requestCame stops the clock. It is called by the one goroutine that reads requests.
func requestCame(ctx context.Context) {
	if e, ok := ctx.Value(silence{}).(*expected); ok && e.clock != nil {
		e.clock.Stop()
		e.clock = nil // it is not to be kept by ten thousand that wait
	}
}
