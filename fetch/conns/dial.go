package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
)

// maxAddresses is how many addresses of a name one dial tries.
const maxAddresses = 8

// transport returns an http.Transport that makes connections. Its own pool is not used.
func (p *Pool) transport(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyURL(p.proxy), // never the environment's
		TLSClientConfig:        config,                 // for origins behind a proxy
		TLSHandshakeTimeout:    10 * time.Second,
		DialContext:            p.dialPlain,
		DialTLSContext:         p.dialTLS,
		DisableCompression:     true, // bodies are decoded above a counter
		MaxResponseHeaderBytes: MaxHeadBytes,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: WindowBytes,
			// There are no PINGs: the timer for them would hold the memory of a closed
			// connection until it fires. A dead connection is noticed when a request on it
			// times out (see Exchange.End).
			WriteByteTimeout: 5 * time.Second, // how long a peer that does not read can block a write, even that of a fetch that has ended
		},
	}
}

// withHTTP2 makes a new transport use the HTTP/2 of golang.org/x/net. The one inside net/http locks
// itself before Go 1.26.9 if an origin makes the window of a stream too large: the fetch and all
// that ask the connection for a stream would wait forever (decision 2).
func withHTTP2(t *http.Transport) *http.Transport {
	_ = http2.ConfigureTransport(t) //nolint:staticcheck // deprecated in favor of net/http's, see above; it fails only if t has HTTP/2 already
	return t
}

// dialling is a connection that is being made for an exchange. It is the context in which
// http.Transport calls the dial functions, which find it there.
type dialling struct {
	*Exchange
	target  *Target
	key     key
	address string
	alone   bool
	config  *tls.Config

	socket  *socket
	reader  *headReader
	instead *conn // a connection that has become free meanwhile, or nil
	heavy   bool  // the certificates use much memory: see handshakeMeter
	unbind  func() bool
}

// diallingKey is the context key of a dialling.
type diallingKey struct{}

// Value implements context.Context.
func (d *dialling) Value(k any) any {
	if k == (diallingKey{}) {
		return d
	}
	return d.Exchange.Context.Value(k)
}

// dial makes a connection for an exchange and reserves a slot on it. It returns another one
// if that has become free meanwhile, over HTTP/2, and reports that it is reused.
func (p *Pool) dial(x *Exchange, t *Target, k key, alone bool) (c *conn, reused bool, err error) {
	d := &dialling{Exchange: x, target: t, key: k, address: address(t.URL), alone: alone, config: p.tls}
	transport, ctx := p.shared, context.Context(d)
	switch {
	case alone:
		transport, d.config = p.alone, p.alone.TLSClientConfig
	case k.tapped:
		transport, d.config = p.tapped, p.tapped.TLSClientConfig
	}
	var tunnel error    // what is wrong with a handshake that was completed
	if p.proxy != nil { // then the transport does the TLS handshake with the origin
		ctx = httptrace.WithClientTrace(d, &httptrace.ClientTrace{
			TLSHandshakeStart: func() {
				x.enter(classify.PhaseTLS, &x.tlsStart)
				d.socket.meter = &handshakeMeter{x: x}
			},
			TLSHandshakeDone: func(state tls.ConnectionState, err error) {
				if err == nil {
					tunnel = d.tunnelled(state)
				}
			},
		})
	}
	cc, err := transport.NewClientConn(ctx, k.scheme, d.address)
	if d.unbind != nil && !d.unbind() && err == nil { // the exchange has ended, which has closed the socket
		_ = cc.Close()
		err = context.Cause(x)
	}
	if tunnel != nil && err == nil {
		go func() { _ = cc.Close() }()
		err = tunnel
	}
	if d.instead != nil {
		x.certificateAsked.Store(false) // by the connection that was given up
		return d.instead, true, nil
	}
	if err != nil {
		if d.socket != nil {
			_ = d.socket.Close()
		}
		return nil, false, err
	}
	p.dialled.Add(1)
	if err := cc.Reserve(); err != nil {
		go func() { _ = cc.Close() }()
		_ = d.socket.Close()
		// The origin has closed the connection. A moment later the request would have failed.
		return nil, false, fmt.Errorf("%w: %w", fault.New(classify.ConnectionReset, classify.PhaseRequest, ""), err)
	}
	c = &conn{cc: cc, socket: d.socket, reader: d.reader, key: k, address: d.address, alone: alone || d.heavy, users: 1, limit: idleLimit}
	if c.http2, c.tls = x.protocol(); !c.http2 {
		c.hooks = c.trace()
	}
	p.add(c)
	return c, false, nil
}

// dialPlain is an http.Transport.DialContext.
func (p *Pool) dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	d, _ := ctx.Value(diallingKey{}).(*dialling)
	if err := p.connect(d, network, address); err != nil {
		return nil, err
	}
	if p.proxy != nil { // it may become TLS later
		return d.socket, nil
	}
	d.reader = &headReader{Conn: d.socket}
	return d.reader, nil
}

// dialTLS is an http.Transport.DialTLSContext. It makes the TLS handshake itself, so that
// an error of the handshake is known to be one.
func (p *Pool) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	d, _ := ctx.Value(diallingKey{}).(*dialling)
	if err := p.connect(d, network, address); err != nil {
		return nil, err
	}
	config := d.config.Clone()
	config.ServerName, _, _ = net.SplitHostPort(address)
	if p.toProxy(address) {
		return secureProxy(d, config)
	}
	if d.key.origin != nil {
		d.key.origin.apply(config, d.target.Caller)
	}
	meter := d.measure(config)
	d.noteCertificateRequest(config)
	d.enter(classify.PhaseTLS, &d.tlsStart)
	secure := tls.Client(d.socket, config)
	if err := secure.HandshakeContext(d); err != nil {
		_ = d.socket.Close()
		return nil, fault.InPhase(classify.PhaseTLS, err)
	}
	d.secured(secure.ConnectionState())
	d.socket.meter, d.heavy = nil, meter.heavy
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		// Of a burst of fetches the first to get a head shares its connection. The others
		// need none of their own, which would use far more memory than a stream.
		if d.instead = p.take(d.key, d.target.Recent); d.instead != nil {
			return nil, errors.Join(errInstead, d.socket.Close())
		}
		d.socket.permit(streamBytes)
		return secure, nil
	}
	d.reader = &headReader{Conn: secure}
	return d.reader, nil
}

// tunnelled ends the handshake with an origin behind a proxy.
func (d *dialling) tunnelled(state tls.ConnectionState) error {
	d.secured(state)
	meter := d.socket.meter
	d.socket.meter = nil
	err := meter.verify(state)
	if d.heavy = meter.heavy; state.NegotiatedProtocol == "h2" {
		d.socket.permit(streamBytes)
	}
	return err
}

// noteCertificateRequest notes if the origin asks for a client certificate that this side
// does not have. The origin may then end the connection after the handshake.
func (d *dialling) noteCertificateRequest(config *tls.Config) {
	if config.GetClientCertificate == nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			d.certificateAsked.Store(true)
			return new(tls.Certificate), nil
		}
	}
}

// proxyTLS is a TLS connection to a proxy. It hides the *tls.Conn from net/http, which could
// use HTTP/2 with it.
type proxyTLS struct{ *tls.Conn }

// secureProxy makes the handshake with a proxy, to which net/http speaks HTTP/1.1 only.
// The handshake is a part of connecting: the TLS phase is that of the origin.
func secureProxy(d *dialling, config *tls.Config) (net.Conn, error) {
	config.NextProtos = []string{"http/1.1"}
	secure := tls.Client(d.socket, config)
	if err := secure.HandshakeContext(d); err != nil {
		_ = d.socket.Close()
		return nil, fault.InPhase(classify.PhaseTLS, err)
	}
	return proxyTLS{secure}, nil
}

// toProxy reports whether an address is the proxy's. The operator chose it, so the guard
// does not judge it.
func (p *Pool) toProxy(address string) bool { return p.proxy != nil && address == p.proxy.Host }

// plainProxied reports whether requests for http URLs go to an HTTP proxy, all of them over
// the same connections.
func (p *Pool) plainProxied() bool {
	return p.proxy != nil && strings.HasPrefix(p.proxy.Scheme, "http")
}

// connect makes the TCP connection, to the proxy if there is one. It is closed when the
// exchange ends before the transport is done with it: net/http writes the first frames of
// HTTP/2 without regard to the context (golang/go#79253).
func (p *Pool) connect(d *dialling, network, address string) error {
	dial := d.dialJudged
	switch {
	case p.override != nil:
		dial = p.override
	case p.toProxy(address):
		dial = (&net.Dialer{Resolver: p.resolver}).DialContext
	}
	ctx := httptrace.WithClientTrace(d, &httptrace.ClientTrace{
		DNSStart:     func(httptrace.DNSStartInfo) { d.enter(classify.PhaseResolve, &d.resolveStart) },
		DNSDone:      d.resolved,
		ConnectStart: func(_, address string) { d.connecting(address) },
		ConnectDone:  func(string, string, error) { d.leave(&d.connectStart, &d.report.Connect) },
	})
	raw, err := dial(ctx, network, address)
	if err != nil {
		return err
	}
	d.socket = p.newSocket(raw, p.toProxy(address))
	if !p.toProxy(address) {
		d.reached(d.socket.remote) // of several addresses that were tried, this one
	}
	d.unbind = context.AfterFunc(d.Exchange, func() { _ = d.socket.Close() })
	return nil
}

// dialJudged looks up a name and connects. The guard judges each address.
func (d *dialling) dialJudged(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var permitted atomic.Bool // the dialer tries IPv4 and IPv6 at once
	var tried atomic.Int32
	dialer := net.Dialer{
		Resolver:  d.pool.resolver,
		KeepAlive: 30 * time.Second,          // the library's default for services behind NAT
		Timeout:   d.settings.ConnectTimeout, // divided among the addresses, so that a dead one leaves time for the next
		Control: func(network, address string, raw syscall.RawConn) error {
			if err := d.pool.guard.Control(network, address, raw); err != nil {
				return err
			}
			permitted.Store(true)
			if tried.Add(1) > maxAddresses {
				return fault.New(classify.ConnectFailure, classify.PhaseConnect, "too_many_addresses")
			}
			return nil
		},
	}
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(egress.Rooted(host), port))
	if errors.Is(err, errBlocked) && permitted.Load() {
		// The dialer reports only the first of several errors. The target is not blocked
		// if a permitted address was tried as well.
		err = fmt.Errorf("%w: %w", fault.New(classify.ConnectFailure, classify.PhaseConnect, "permitted_addresses_failed"), err)
	}
	return conn, err
}

// errInstead makes the transport drop a connection that is not needed.
var errInstead = errors.New("another connection has become free")

var errBlocked = fault.New(classify.TargetBlocked, classify.PhasePolicy, "")
