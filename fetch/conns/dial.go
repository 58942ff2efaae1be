package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"fetchd/classify"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/urls"
)

// maxAddresses is how many addresses of a name one dial tries.
const maxAddresses = 20

// dialling is a connection that is being made for an exchange, in the order of the methods: connect, reach,
// secure.
type dialling struct {
	*Exchange
	target  *Target
	key     key
	address string
	alone   bool
	config  *tls.Config

	race    *race // nil: the host is an address
	socket  *socket
	through *httpProxy // see conn
	heavy   bool       // the certificates use much memory: see handshakeMeter
}

// dial makes a connection for an exchange and reserves a slot on it. It returns another one
// if that has become free meanwhile, over HTTP/2, and reports that it is reused.
func (p *Pool) dial(x *Exchange, t *Target, k key, alone bool) (c *conn, reused bool, err error) {
	d := &dialling{Exchange: x, target: t, key: k, address: address(t.URL), alone: alone, config: p.tls}
	if alone || k.tapped {
		d.config = p.tlsHTTP1
	}
	if t.Route != nil {
		d.config = d.config.Clone()
		d.config.ClientSessionCache = t.Route.sessionCache()
	}
	c, reused, err = d.dial()
	if ended := x.closeWith(nil); ended != nil && err == nil { // the socket may be closed
		if reused {
			c.h2.Release()
			p.release(c, time.Time{})
			return nil, false, ended
		}
		err = ended
	}
	if err != nil {
		if d.socket != nil {
			_ = d.socket.Close()
		}
		return nil, false, err
	}
	if !reused {
		p.dialled.Add(1)
		p.add(c)
	}
	return c, reused, nil
}

// address is the host and port of a URL, as they are dialled.
func address(u *url.URL) string { return net.JoinHostPort(u.Hostname(), urls.Port(u)) }

func (d *dialling) dial() (c *conn, reused bool, err error) {
	if err := d.connect(); err != nil {
		return nil, false, err
	}
	nc, err := d.reach()
	if err != nil {
		return nil, false, err
	}
	c = &conn{socket: d.socket, nc: nc, through: d.through, key: d.key, address: d.address, alone: d.alone,
		encrypted: nc != net.Conn(d.socket), users: 1, limit: idleLimit}
	if d.key.scheme == "http" {
		return c, false, nil
	}
	secure, err := d.secure(nc)
	if err != nil {
		return nil, false, err
	}
	state := secure.ConnectionState()
	c.nc, c.encrypted, c.tls, c.alone = secure, true, tls.VersionName(state.Version), d.alone || d.heavy
	if state.NegotiatedProtocol != "h2" {
		return c, false, nil
	}
	// Of a burst of fetches the first to get a head shares its connection. The others
	// need none of their own, which would use far more memory than a stream.
	if !d.target.Fresh {
		if instead := d.pool.take(d.key, d.target); instead != nil {
			d.certificateAsked = false // by the connection that is given up
			_ = d.socket.Close()
			return instead, true, nil
		}
	}
	d.socket.permit(StreamBytes)
	// It writes the first frames, and only the closed socket ends that.
	c.frames = newFrames(secure)
	if c.h2, err = d.pool.http2.NewClientConn(context.WithValue(context.Background(), readyKey{}, c.frames), d.key.scheme, d.address); err != nil {
		d.unprocessed = !d.certificateAsked
		return nil, false, err
	}
	if err := c.h2.Reserve(); err != nil {
		d.unprocessed = !d.certificateAsked
		go c.close()
		// The origin has closed the connection. A moment later the request would have failed.
		return nil, false, fmt.Errorf("%w: %w", fault.New(classify.ConnectionReset, classify.PhaseRequest, ""), err)
	}
	return c, false, nil
}

// connect makes the TCP connection, to the proxy if there is one. From then on a cancellation of the
// exchange closes it.
func (d *dialling) connect() error {
	p, address, dial := d.pool, d.address, d.dialJudged
	if d.key.proxy != nil {
		address, dial = d.key.proxy.Host, d.dialProxy
	}
	if p.config.Dial != nil {
		dial = p.config.Dial
	}
	raw, err := dial(d.Context(), d.target.Route.network(), address)
	if err != nil && !errors.Is(err, context.Canceled) {
		d.outlive()
	}
	switch {
	case err != nil && d.key.proxy != nil:
		return fmt.Errorf("proxyconnect tcp: %w", err)
	case err != nil:
		return err
	}
	d.socket = newSocket(raw, d.key.proxy != nil, &p.open)
	if d.key.proxy == nil {
		d.reached(d.socket.remote) // of several addresses that were tried, this one
	}
	return d.closeWith(d.socket)
}

// reach makes the proxy on the other side of the socket connect to the origin. It returns the
// connection to the origin, or to the proxy if that forwards requests.
func (d *dialling) reach() (net.Conn, error) {
	at, nc := d.key.proxy, net.Conn(d.socket)
	switch {
	case at == nil:
		return nc, nil
	case at.Scheme == "socks5":
		return nc, socks(nc, at, d.address)
	case at.Scheme == "https":
		config := d.config.Clone()
		config.ServerName, config.NextProtos = at.Hostname(), []string{"http/1.1"}
		d.pool.intermediates.Load().apply(config)
		secure := tls.Client(d.socket, config)
		if err := secure.HandshakeContext(context.Background()); err != nil { // a part of connecting: the TLS phase is that of the origin
			return nil, fault.InPhase(classify.PhaseTLS, fmt.Errorf("proxyconnect tcp: %w", err))
		}
		nc = secure
	}
	if d.key.scheme == "http" {
		d.through = &httpProxy{proxyAuthorization(at.User)}
		return nc, nil
	}
	return nc, tunnel(nc, at, d.address, d.settings.Memory)
}

// dialProxy connects to a proxy, whose addresses are not judged.
func (d *dialling) dialProxy(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return d.dialHost(ctx, d.target.Route.dialer(), network, host, port)
}

// dialJudged looks up a name and connects. The guard judges each address.
func (d *dialling) dialJudged(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var permitted, inside atomic.Bool // several addresses are tried at once
	var tried atomic.Int32
	dialer := d.target.Route.dialer()
	dialer.KeepAlive = 30 * time.Second // the library's default for services behind NAT
	dialer.Control = func(network, address string, raw syscall.RawConn) error {
		err := d.pool.config.Guard.Control(network, address, raw)
		target, _ := netip.ParseAddrPort(address) // Control forbids what is none
		if err == nil && d.target.Egress != nil {
			err = d.target.Egress.CheckAddr(target)
		}
		if err != nil {
			if !egress.IsPublic(target.Addr()) {
				inside.Store(true)
			}
			return err
		}
		permitted.Store(true)
		if tried.Add(1) > maxAddresses {
			return fault.New(classify.ConnectFailure, classify.PhaseConnect, "too_many_addresses")
		}
		return d.target.Route.bind(network, address, raw)
	}
	conn, err := d.dialHost(ctx, dialer, network, egress.Rooted(host), port)
	if _, ok := errors.AsType[*net.AddrError](err); ok && d.race != nil { // an IPv4 address in an AAAA record
		inside.Store(true)
		err = fmt.Errorf("%w: %w", fault.New(classify.TargetBlocked, classify.PhasePolicy, "address_not_allowed"), err)
	}
	switch {
	case !errors.Is(err, errBlocked):
	case permitted.Load():
		// The target is not blocked if a permitted address was tried as well.
		err = fmt.Errorf("%w: %w", fault.New(classify.ConnectFailure, classify.PhaseConnect, "permitted_addresses_failed"), err)
	case d.target.HideForbidden && inside.Load() && d.race != nil:
		d.forgetDial()
		err = fmt.Errorf("%w: %w", fault.New(classify.DNSNotFound, classify.PhaseResolve, ""), err)
	}
	return conn, err
}

// dialHost connects to an address, or to one of the addresses of a name.
func (d *dialling) dialHost(ctx context.Context, dialer *net.Dialer, network, host, port string) (net.Conn, error) {
	defer d.leave(&d.connectStart, &d.report.Connect)
	if egress.IsLiteral(host) {
		address := net.JoinHostPort(host, port)
		d.connecting(address)
		return dialer.DialContext(ctx, network, address)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	d.enter(classify.PhaseResolve, &d.resolveStart)
	connect := func(ctx context.Context, addr netip.Addr) (net.Conn, error) {
		address := netip.AddrPortFrom(addr.Unmap(), uint16(number)).String()
		d.connecting(address)
		return dialer.DialContext(ctx, network, address)
	}
	d.race = &race{resolver: d.pool.resolver(d.target.Route), host: host, connect: connect}
	conn, err := d.race.run(ctx, network)
	if len(d.race.tries) == 0 {
		d.leave(&d.resolveStart, &d.report.Resolve)
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return conn, err
}

// forgetDial makes the exchange one that has dialled nothing, and still looks up the name.
func (x *Exchange) forgetDial() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.phase, x.report.Resolve, x.report.Connect = classify.PhaseResolve, time.Since(x.resolveStart), 0
}

var errBlocked = fault.New(classify.TargetBlocked, classify.PhasePolicy, "")

// secure makes the TLS handshake with the origin.
func (d *dialling) secure(nc net.Conn) (*tls.Conn, error) {
	config := d.config.Clone()
	config.ServerName, _, _ = net.SplitHostPort(d.address)
	if d.key.origin != nil {
		d.key.origin.apply(config, d.target.Caller)
	}
	d.pool.intermediates.Load().apply(config)
	meter := measure(d.Exchange, d.socket, config)
	d.enter(classify.PhaseTLS, &d.tlsStart)
	secure := tls.Client(nc, config)
	err := secure.HandshakeContext(context.Background()) // the closed socket ends it
	d.socket.meter, d.heavy, d.certificateAsked = nil, meter.heavy, meter.asked
	meter.x = nil // the connection keeps config, and so meter
	if err != nil {
		d.noteRejected(err)
		return nil, unusable(err)
	}
	d.leave(&d.tlsStart, &d.report.TLS)
	return secure, nil
}

// noteRejected describes the certificate of an origin in the report, if it is the reason for err.
func (x *Exchange) noteRejected(err error) {
	rejected, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok {
		return
	}
	details := &TLSDetails{Certificate: describe(rejected.UnverifiedCertificates)}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.report.TLSDetails = details
}
