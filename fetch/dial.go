package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
)

// dialScope is the key under which a request's context holds the exchange that
// a connection made for it must not outlive. The transport dials under a
// context of its own that keeps the values and drops the cancellation, so that
// an abandoned dial, or a handshake with a silent peer, would live on
// (net/http.Transport.getConn).
type dialScope struct{}

// bound ties ctx to the scope of the request it dials for, and has that one's trace
// told of the dial.
func bound(ctx context.Context) (context.Context, func()) {
	x, ok := ctx.Value(dialScope{}).(*exchange)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if x.Err() != nil { // AfterFunc would say so a moment too late
		cancel(context.Cause(x))
	}
	stop := context.AfterFunc(x, func() { cancel(context.Cause(x)) })
	return httptrace.WithClientTrace(ctx, x.trace.dialHooks()), func() { stop(); cancel(nil) }
}

// observedConn is a connection to an origin or a proxy. It remembers the error that ended
// its reading, because net/http reports a connection that was closed before its first
// request with an error that has no type.
type observedConn struct {
	net.Conn
	failed    atomic.Pointer[error]
	remote    string          // address of the peer; empty if that is a proxy, or not known
	tls       string          // TLS version with the origin, if this client made the handshake
	proxy     bool            // the peer is a proxy, not an origin
	handshake *handshakeMeter // of the TLS handshake in progress
	heavy     bool            // its certificates use much memory
	heads     headPayers      // of HTTP/2
	keep      func() bool     // called when the connection is to outlive its first exchange; nil: it always may
	outdated  func() bool     // see isOutdated; nil without TLS

	spent atomic.Bool  // no further exchange may use it (spec A5)
	users atomic.Int32 // exchanges that use it
}

// Read implements net.Conn.
func (c *observedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.handshake != nil {
		if fault := c.handshake.count(n); fault != nil {
			return 0, fault
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // ErrClosed: this side closed it
		first := err // err itself would be on the heap with every read
		c.failed.CompareAndSwap(nil, &first)
	}
	return n, err
}

// observed returns what lies below the layers of TLS: the proxy's and the
// origin's. It is nil where the dialer did not make the connection.
func observed(conn net.Conn) *observedConn {
	for {
		layer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = layer.NetConn()
	}
	seen, _ := conn.(*observedConn)
	return seen
}

// readError returns what a connection's reading ended with, or nil.
func readError(conn net.Conn) error {
	if seen := observed(conn); seen != nil {
		if err := seen.failed.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// proxyTLS is TLS with a proxy. It is no *tls.Conn, for which net/http would tell
// the trace of an origin's handshake, and which it would use for HTTP/2.
type proxyTLS struct{ *tls.Conn }

// dialer makes connections for the transports.
type dialer struct {
	guard    *egress.Guard
	resolver *net.Resolver
	proxy    *url.URL
	override func(ctx context.Context, network, address string) (net.Conn, error)
	origins  *atomic.Pointer[map[string]*OriginTLS]
	tls      *tls.Config
}

// plain is an http.Transport.DialContext.
func (d *dialer) plain(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, release := bound(ctx)
	defer release()
	conn, err := d.connect(ctx, network, address)
	if err != nil || d.proxy != nil { // through a proxy it may become TLS later
		return conn, err
	}
	return &headConn{Conn: conn}, nil
}

// secure is an http.Transport.DialTLSContext. It makes the TLS handshake itself, so that
// an error of the handshake is known to be one.
func (d *dialer) secure(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, release := bound(ctx)
	defer release()
	conn, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	config := d.tls.Clone()
	config.ServerName = host
	own, denied := (*d.origins.Load())[address], false
	if own != nil {
		caller := ""
		if x, ok := ctx.Value(dialScope{}).(*exchange); ok {
			caller = x.trace.limits.Caller
		}
		own.apply(config, caller)
		denied = !own.allows(caller)
	}
	if d.toProxy(address) {
		return throughTLS(ctx, conn, config)
	}
	seen := observed(conn)
	if seen != nil {
		seen.outdated = func() bool { return denied || (*d.origins.Load())[address] != own }
	}
	meter := measure(ctx, seen, config)
	secure := tls.Client(conn, config)
	if err := handshake(ctx, secure); err != nil {
		_ = conn.Close()
		return nil, fault.InPhase(classify.PhaseTLS, err)
	}
	state := secure.ConnectionState()
	if seen != nil {
		seen.handshake, seen.heavy, seen.tls = nil, meter.heavy, tls.VersionName(state.Version)
	}
	if state.NegotiatedProtocol != "h2" {
		return &headConn{Conn: secure}, nil
	}
	return secure, nil
}

// apply sets up a handshake with the origin for a caller (spec A6). It resumes no
// session: one of another port of the host, or of another caller, may or may not
// have been shown the certificate.
func (o *OriginTLS) apply(config *tls.Config, caller string) {
	config.ClientSessionCache = nil
	if o.RootCAs != nil {
		config.RootCAs = o.RootCAs
	}
	if o.Certificate != nil && o.allows(caller) {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.Certificate, nil }
	}
}

// throughTLS shakes hands with a proxy, which is spoken to in HTTP/1.1 alone. It
// is a part of connecting, of which the trace is not told: its TLS is the
// origin's.
func throughTLS(ctx context.Context, conn net.Conn, config *tls.Config) (net.Conn, error) {
	config.NextProtos = []string{"http/1.1"}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fault.InPhase(classify.PhaseTLS, err)
	}
	return proxyTLS{secure}, nil
}

// toProxy tells the operator's own choice, which no guard judges.
func (d *dialer) toProxy(address string) bool { return d.proxy != nil && address == d.proxy.Host }

// connect makes a connection, to the proxy where there is one.
func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	dial := d.judged
	switch {
	case d.override != nil:
		dial = d.override
	case d.toProxy(address):
		dial = (&net.Dialer{Resolver: d.resolver}).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	seen := &observedConn{Conn: conn, proxy: d.toProxy(address)}
	if addr := conn.RemoteAddr(); addr != nil && !seen.proxy {
		seen.remote = addr.String()
	}
	x, ok := ctx.Value(dialScope{}).(*exchange)
	switch {
	case !ok:
	case seen.proxy:
		// net/http talks to the proxy under a context that nothing cancels. Until
		// an exchange has got the connection it ends with the one it is made for.
		seen.keep = context.AfterFunc(x, func() { _ = conn.Close() })
	default:
		x.trace.dials(seen.remote) // of several addresses that were tried, this one
	}
	return seen, nil
}

// judged looks up and connects. Each candidate address passes the guard.
func (d *dialer) judged(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var permitted atomic.Bool // the dialer tries IPv4 and IPv6 at once
	var tried atomic.Int32
	// KeepAlive 30 s is the library's default for services behind NAT.
	nd := net.Dialer{Resolver: d.resolver, KeepAlive: 30 * time.Second}
	if x, ok := ctx.Value(dialScope{}).(*exchange); ok {
		nd.Timeout = x.trace.limits.ConnectTimeout // which it divides among the addresses, so that a dead one leaves time for the next
	}
	nd.Control = func(network, address string, raw syscall.RawConn) error {
		if err := d.guard.Control(network, address, raw); err != nil {
			return err
		}
		permitted.Store(true)
		if tried.Add(1) > maxAddresses {
			return fault.New(classify.ConnectFailure, classify.PhaseConnect, "too_many_addresses")
		}
		return nil
	}
	conn, err := nd.DialContext(ctx, network, net.JoinHostPort(egress.Rooted(host), port))
	if errors.Is(err, &fault.Error{Class: classify.TargetBlocked}) && permitted.Load() {
		// The dialer reports the first error of many: a blocked address beside
		// a permitted one that could not be reached does not block the target.
		err = fmt.Errorf("%w: %w", fault.New(classify.ConnectFailure, classify.PhaseConnect, "permitted_addresses_failed"), err)
	}
	return conn, err
}

// pooled returns the transport of requests that may be repeated.
func (d *dialer) pooled() *http.Transport {
	t := d.transport()
	t.ForceAttemptHTTP2 = true
	return t
}

// fresh returns the transport for requests that may not be repeated, or may not share
// a connection (spec A5, A6). Each request gets a new connection, so none can have
// died while it was idle. It uses HTTP/1.1 only: over HTTP/2 net/http lets requests
// that start together share even such a connection, and fails all but the first
// (decision 2).
func (d *dialer) fresh() *http.Transport {
	only := *d
	only.tls = d.tls.Clone()
	only.tls.NextProtos = []string{"http/1.1"}
	t := only.transport()
	t.DisableKeepAlives = true
	return t
}

func (d *dialer) transport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyURL(d.proxy), // and never the environment's
		TLSClientConfig:        d.tls,                  // behind a proxy the transport shakes hands itself
		TLSHandshakeTimeout:    10 * time.Second,
		DialContext:            d.plain,
		DialTLSContext:         d.secure,
		DisableCompression:     true, // bodies are decoded above a counter: see package coding
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    512, // to connect costs more than a fetch (decision 16)
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxResponseHeadBytes,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: http2WindowBytes,
			SendPingTimeout:           15 * time.Second,
			PingTimeout:               15 * time.Second,
			WriteByteTimeout:          5 * time.Second, // a peer that does not read holds every writer, and a fetch that is over, so long
		},
	}
}
