package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"

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
	return callerAt(p.Addr)
}

// callerAt returns the caller at an address: the IP without the port. For IPv6 it is the network
// of 64 bits, because one host usually has a whole one.
func callerAt(addr net.Addr) string {
	if at, ok := addr.(*remote); ok {
		return at.caller
	}
	var at netip.AddrPort
	if tcp, ok := addr.(*net.TCPAddr); ok {
		at = tcp.AddrPort()
	} else if parsed, err := netip.ParseAddrPort(addr.String()); err == nil {
		at = parsed
	}
	if !at.IsValid() {
		return addr.String()
	}
	ip := at.Addr().Unmap()
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}
