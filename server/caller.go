package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Credentials are what a caller shows of itself.
type Credentials struct {
	// Token is that of an Authorization header of scheme Bearer; empty means that
	// there was none.
	Token string
	// TLS is the state of its connection; nil means plaintext.
	TLS *tls.ConnectionState
}

// Authenticator names the caller that shows credentials. An error is told to the
// caller as UNAUTHENTICATED: it must hold nothing that a stranger may not know.
// It is called from many goroutines.
type Authenticator func(Credentials) (caller string, err error)

// callerName is the key under which the context of a call holds its caller's name.
type callerName struct{}

// withCaller notes who calls, if an authenticator says so.
func (auth Authenticator) withCaller(ctx context.Context, shown Credentials) (context.Context, error) {
	if auth == nil {
		return ctx, nil
	}
	name, err := auth(shown)
	if err != nil {
		return ctx, status.Errorf(codes.Unauthenticated, "%v", err)
	}
	return context.WithValue(ctx, callerName{}, name), nil
}

// public tells the methods that an orchestrator calls, which has no token.
func public(method string) bool {
	return strings.HasPrefix(method, "/"+healthpb.Health_ServiceDesc.ServiceName+"/")
}

// shownIn reads the credentials of a call whose head is md.
func shownIn(ctx context.Context, md metadata.MD) Credentials {
	var c Credentials
	if sent := md.Get("authorization"); len(sent) == 1 {
		c.Token = bearer(sent[0])
	}
	if p, ok := peer.FromContext(ctx); ok {
		if secure, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			c.TLS = &secure.State
		}
	}
	return c
}

// bearer reads the token of an Authorization header (RFC 6750 §2.1).
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// callerOf names the caller of a call: by its name, or where it has none by its
// address.
func callerOf(ctx context.Context) string {
	if name, ok := ctx.Value(callerName{}).(string); ok {
		return name
	}
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return callerAt(p.Addr)
}

// callerAt names who is at an address: without the port, and of IPv6 the network
// of 64 bits, which is what one host is given.
func callerAt(addr net.Addr) string {
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
