package conns

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Route is a way to origins. It replaces the proxy of the [Config] of a pool, and what else it sets. The pointer
// identifies it: connections and TLS sessions of one route serve no other. It must not be copied, and its fields
// do not change.
type Route struct {
	// Name identifies the route in logs.
	Name string
	// Proxy connects to the origins. Nil means that there is none.
	Proxy *url.URL
	// Resolver looks up the names of origins, or that of Proxy. Nil means that of the pool.
	Resolver Resolver
	// NameServer is the DNS server that Resolver asks, for logs.
	NameServer string
	// Source is the local address of the connections. The zero value means any.
	Source netip.Addr
	// Interface is the only network interface that they use. It needs Linux. Empty means any.
	Interface string
	// Network is "tcp4" or "tcp6" to use only addresses of that family. Empty means both.
	Network string

	retired  atomic.Bool
	mu       sync.Mutex
	sessions tls.ClientSessionCache
}

// routeSessions limits the TLS sessions of a route.
const routeSessions = 256

// sessionCache returns the TLS sessions of the route.
func (r *Route) sessionCache() tls.ClientSessionCache {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = tls.NewLRUClientSessionCache(routeSessions)
	}
	return r.sessions
}

// isRetired reports whether connections of the route take no further request. A nil route is never retired.
func (r *Route) isRetired() bool { return r != nil && r.retired.Load() }

// network returns the network that is dialled.
func (r *Route) network() string {
	switch {
	case r == nil:
		return "tcp"
	case r.Network == "" && r.Source.Is4():
		return "tcp4" // so that no other addresses are looked up
	case r.Network == "" && r.Source.Is6():
		return "tcp6"
	}
	return cmp.Or(r.Network, "tcp")
}

// dialer returns a dialer that leaves by the route.
func (r *Route) dialer() *net.Dialer {
	d := new(net.Dialer)
	if r == nil {
		return d
	}
	if r.Source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.Source, 0))
	}
	d.Control = r.bind
	return d
}

// resolver returns the resolver of a route.
func (p *Pool) resolver(r *Route) Resolver {
	if r == nil || r.Resolver == nil {
		return p.config.Resolver
	}
	return r.Resolver
}

// bind is a [net.Dialer.Control]. It binds a socket to the interface of the route.
func (r *Route) bind(_, _ string, raw syscall.RawConn) error {
	if r == nil || r.Interface == "" && !r.Source.IsValid() {
		return nil
	}
	return bind(raw, r.Interface)
}

// Retire makes connections of routes take no further request. Those in use are closed when their requests have
// ended.
func (p *Pool) Retire(routes ...*Route) {
	for _, r := range routes {
		r.retired.Store(true)
	}
	p.retireOld()
}

// Lookup returns the addresses of a name that are dialled by a route.
func (p *Pool) Lookup(ctx context.Context, name string, r *Route) ([]netip.Addr, error) {
	return p.resolver(r).LookupNetIP(ctx, "ip"+strings.TrimPrefix(r.network(), "tcp"), name)
}
