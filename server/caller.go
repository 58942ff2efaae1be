package server

import (
	"context"
	"crypto/tls"
	"strings"

	"fetchd/internal/door"
	"fetchd/internal/secure"

	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Credentials are the credentials of a call.
type Credentials struct {
	// Token is the token of the Authorization header, if its scheme is Bearer. Empty means
	// that the call has none.
	Token string
	// TLS is the state of the connection. Nil means plaintext.
	TLS *tls.ConnectionState
}

// Authenticator returns the name of the caller with these credentials. If it returns an error,
// the call is refused with UNAUTHENTICATED and the text of the error, which must not contain
// secrets. It is called concurrently.
type Authenticator func(Credentials) (caller string, err error)

// callerName is the key under which the context of a call holds its [callerContext].
type callerName struct{}

// public reports whether a method needs no credentials: health checks, because orchestrators
// have none.
func public(method string) bool {
	return strings.HasPrefix(method, "/"+healthpb.Health_ServiceDesc.ServiceName+"/")
}

// shownIn returns the credentials of a call with the metadata md.
func shownIn(ctx context.Context, md metadata.MD) Credentials {
	return Credentials{Token: secure.Bearer(md.Get("authorization")), TLS: tlsOf(ctx)}
}

// tlsOf returns the TLS state of the connection of a call, or nil. The connection keeps
// it, because otherwise each call would have a copy.
func tlsOf(ctx context.Context) *tls.ConnectionState {
	conn := connOf(ctx)
	if conn != nil {
		if state := conn.tls.Load(); state != nil {
			return state
		}
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	secure, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	if conn != nil {
		conn.tls.Store(&secure.State)
	}
	return &secure.State
}

// callerOf returns the name of the caller of a call, or its address if it has no name.
func callerOf(ctx context.Context) string {
	if c := callerContextOf(ctx); c != nil {
		return c.name
	}
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return door.Address(p.Addr)
}
