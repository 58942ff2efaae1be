package conns

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fetchd/fetch/egress"
	"fetchd/internal/budget"
	"fetchd/internal/list"
)

// Limits of idle connections. Connections in use have no limit, because a fetch would have to
// wait for it.
const (
	// DefaultMaxIdle is the default of [Config].MaxIdle. A host has at most half of it, because
	// connecting costs more than a fetch (decision 25).
	DefaultMaxIdle = 4096
	// maxLooks is how many idle connections are looked at before a new one is made. With TLS a look may
	// take a millisecond.
	maxLooks = 32
	// sweepInterval is the time between two checks of all idle connections.
	sweepInterval = time.Second
)

// Config configures a [Pool].
type Config struct {
	// Guard judges every address before it is dialled. It is required.
	Guard *egress.Guard
	// Resolver looks up names. It is required.
	Resolver Resolver
	// Proxy returns the proxy for requests to a URL, or nil. For the same proxy it must return the
	// same pointer. Nil means that there are no proxies.
	Proxy func(*url.URL) *url.URL
	// Dial replaces Guard, Resolver and TCP, for tests. Nil means none.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// RootCAs verifies the certificates of origins. Nil means the system's roots.
	RootCAs *x509.CertPool
	// Intermediates verify them too. Nil means none. [Pool.SetIntermediates] replaces them.
	Intermediates *Intermediates
	// MaxIdle limits the idle connections. Zero means [DefaultMaxIdle].
	MaxIdle int
	// Memory is charged for the idle connections. It may close them, the longest idle first. Nil
	// means no limit.
	Memory *budget.Budget
	// NeverReuse reports whether every request to a URL is to be sent as with [Target].Alone. Nil
	// means none.
	NeverReuse func(*url.URL) bool
	// OnDistrust is called when an origin has sent bytes over HTTP/1.1 that no request asked for,
	// unless that was known. Its connections are not used again for a minute. The address is
	// empty if it was an HTTP proxy, over a connection for http URLs. Nil means none.
	OnDistrust func(scheme, address string)
}

// Stats are the numbers of a pool's connections.
type Stats struct {
	// Open and Idle are the current numbers of connections. Open includes Idle.
	Open, Idle int
	// Dialled, Reused, Stale and Surplus count since the start: connections made, requests on a
	// connection that had carried another one, connections found dead while idle, and connections
	// closed because the origin sent bytes over HTTP/1.1 that no request asked for.
	Dialled, Reused, Stale, Surplus int64
}

// Pool holds connections to origins. It is safe for concurrent use.
type Pool struct {
	config   Config
	tls      *tls.Config
	tlsHTTP1 *tls.Config     // for connections that must use HTTP/1.1
	http2    *http.Transport // makes no connection itself, see newHTTP2
	origins  atomic.Pointer[map[string]*OriginTLS]

	intermediates atomic.Pointer[Intermediates]

	open, dialled, reused, stale, surpluses atomic.Int64

	mu         sync.Mutex
	hosts      map[key]*host
	idle       list.List[*conn] // idle connections, in the order in which they became idle
	sweeps     *time.Timer      // runs while a connection is idle
	closed     bool
	distrusted distrusted
}

// host lists the connections of one key, except those of HTTP/1 that are in use.
type host struct {
	n      int     // connections, with those in use
	idle   []*conn // HTTP/1; the longest idle first
	shared []*conn // HTTP/2, idle or in use
	full   []*conn // HTTP/2, which had no stream left when they were last asked
	idle2  int     // connections of HTTP/2 that are idle
}

// New returns a pool without connections.
func New(cfg Config) *Pool {
	p := &Pool{config: cfg, hosts: make(map[key]*host), distrusted: make(distrusted)}
	p.config.MaxIdle = cmp.Or(cfg.MaxIdle, DefaultMaxIdle)
	p.origins.Store(new(map[string]*OriginTLS))
	p.intermediates.Store(cfg.Intermediates)
	p.tls = &tls.Config{
		RootCAs:            cfg.RootCAs,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(1024),
	}
	p.tlsHTTP1 = p.tls.Clone()
	p.tlsHTTP1.NextProtos = []string{"http/1.1"}
	p.http2 = newHTTP2()
	p.config.Memory.FreeIdleWith(p.shed)
	return p
}

// SetOrigins replaces the TLS settings of single origins, by "host:port". Connections made with settings
// that are not in the new map, by pointer, take no further request.
func (p *Pool) SetOrigins(origins map[string]*OriginTLS) {
	p.origins.Store(&origins)
	p.retireOld()
}

// SetIntermediates replaces [Config].Intermediates for new connections.
func (p *Pool) SetIntermediates(i *Intermediates) { p.intermediates.Store(i) }

// retireOld makes the connections take no further request that are not current any more.
func (p *Pool) retireOld() {
	p.mu.Lock()
	for _, h := range p.hosts {
		for _, c := range slices.Concat(h.shared, h.full) {
			c.retired = c.retired || !p.isCurrent(c)
		}
	}
	p.mu.Unlock()
	p.sweep()
}

// Origins returns the settings that are in force. The map must not be changed.
func (p *Pool) Origins() map[string]*OriginTLS { return *p.origins.Load() }

// isCurrent reports whether a connection was made with the origin's present settings, by a route that is in use.
func (p *Pool) isCurrent(c *conn) bool {
	return !c.key.route.isRetired() && (c.key.scheme == "http" || (*p.origins.Load())[c.address] == c.key.origin)
}

// Close closes the idle connections. The others are closed when their requests have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.sweep()
}

// Stats returns the numbers of connections.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	idle := p.idle.Len()
	p.mu.Unlock()
	return Stats{Open: int(p.open.Load()), Idle: idle, Dialled: p.dialled.Load(), Reused: p.reused.Load(), Stale: p.stale.Load(), Surplus: p.surpluses.Load()}
}

// take returns a connection with a slot reserved for one request, or nil if none is free.
func (p *Pool) take(k key, t *Target) *conn {
	for range maxLooks {
		p.mu.Lock()
		c, wasIdle := p.pickLocked(k, time.Now(), t)
		p.mu.Unlock()
		if c == nil {
			return nil
		}
		state := quiet
		if wasIdle {
			state = c.state() // the origin may close it at the next moment
		} else if c.h2.Err() != nil {
			state = gone
		}
		if state == quiet && t.checkPeer(c) != nil { // forbidden since it was picked
			if c.h2 != nil {
				c.h2.Release()
			}
			p.release(c, time.Time{})
			return nil
		}
		if state == quiet {
			p.reused.Add(1)
			return c
		}
		p.drop(c, state)
	}
	return nil
}

// drop closes a connection that was taken but not used, because of its state.
func (p *Pool) drop(c *conn, s idleState) {
	if s == spoke {
		p.distrust(c)
	}
	p.stale.Add(1)
	p.retire(c)
	if c.h2 != nil {
		c.h2.Release()
	}
	p.release(c, time.Time{})
}

// distrust records that bytes came on a connection that no request asked for.
func (p *Pool) distrust(c *conn) {
	now := time.Now()
	p.mu.Lock()
	known := p.distrusted.has(c.key, now)
	p.distrusted.add(c.key, now)
	p.mu.Unlock()
	p.surpluses.Add(1)
	if known || p.config.OnDistrust == nil {
		return
	}
	address := c.address
	if c.key.host == "" {
		address = "" // the connection is to a proxy, and its first request was for that address
	}
	p.config.OnDistrust(c.key.scheme, address)
}

// pickLocked reserves a slot on a connection that may be alive, and reports whether it was
// idle. Over HTTP/1 it takes the connection that was used last.
func (p *Pool) pickLocked(k key, now time.Time, t *Target) (c *conn, wasIdle bool) {
	recent := t.Recent
	var denied []netip.AddrPort // a host may have thousands of connections, but few addresses
	h := p.hosts[k]
	if h == nil {
		return nil, false
	}
	for i := len(h.shared) - 1; i >= 0; i-- {
		c := h.shared[i]
		if c.retired || c.users == 0 && c.isOld(now, recent) || recent && c.users > 0 && !c.socket.readSince(now.Add(-recentUse)) {
			continue
		}
		if !t.permits(c, &denied) {
			continue
		}
		if c.h2.Available() == 0 || c.h2.Reserve() != nil {
			h.shared = slices.Delete(h.shared, i, i+1)
			h.full = append(h.full, c)
			continue
		}
		c.users++
		return c, p.notIdleLocked(h, c)
	}
	if p.distrusted.has(k, now) {
		return nil, false
	}
	for i := len(h.idle) - 1; i >= 0; i-- {
		if c := h.idle[i]; !c.isOld(now, recent) && t.permits(c, &denied) { // one that was used before it may have a longer limit
			p.unlistLocked(h, c)
			c.users = 1
			return c, true
		}
	}
	return nil, false
}

// permits reports whether the policy of a request permits the address of a connection, which a request with
// another policy may have made. With a proxy the address is the proxy's to judge. denied are the addresses that
// it has not permitted.
func (t *Target) permits(c *conn, denied *[]netip.AddrPort) bool {
	peer := c.socket.peer
	switch {
	case t.Egress == nil || !peer.IsValid():
		return true
	case slices.Contains(*denied, peer):
		return false
	case t.Egress.Permits(peer):
		return true
	}
	*denied = append(*denied, peer)
	return false
}

// checkPeer returns an error if the policy of a request forbids the address of a connection that permits has
// permitted. The policy may record what it would forbid.
func (t *Target) checkPeer(c *conn) error {
	if t.Egress == nil || !c.socket.peer.IsValid() {
		return nil
	}
	return t.Egress.CheckAddr(c.socket.peer)
}

// share lets other requests use an HTTP/2 connection, over which a head has come. If the head
// is large, the connection is closed when it is idle.
func (p *Pool) share(c *conn, large bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.large = c.large || large
	if c.shared || c.alone || c.retired || p.closed || !p.isCurrent(c) {
		return
	}
	c.shared = true
	h := p.hostLocked(c.key)
	h.shared = append(h.shared, c)
}

// retire makes a connection take no further request.
func (p *Pool) retire(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.retired = true
}

// release ends the use of a connection by one request, which began then. It keeps the connection or closes it,
// and reports whether it closes it.
func (p *Pool) release(c *conn, began time.Time) (closes bool) {
	p.mu.Lock()
	if began.After(c.began) {
		c.began = began
	}
	c.users--
	closing := p.putLocked(c, time.Now())
	p.mu.Unlock()
	closeAll(closing)
	return slices.Contains(closing, c)
}

// shed closes idle connections whose memory is n bytes or more, the longest idle first.
func (p *Pool) shed(n int64) {
	p.mu.Lock()
	closing := p.shedLocked(n)
	p.mu.Unlock()
	closeAll(closing)
}

func (p *Pool) shedLocked(n int64) (closing []*conn) {
	for n > 0 && p.idle.Len() > 0 {
		c := p.idle.First()
		n -= c.idleBytes()
		p.removeLocked(c)
		closing = append(closing, c)
	}
	return closing
}

// closeAll closes connections that are in no list any more.
func closeAll(closing []*conn) {
	for _, c := range closing {
		if c.encrypted {
			go c.close()
		} else {
			c.close()
		}
	}
}

// putLocked keeps a connection for later requests if it can. It returns the connections
// that must be closed instead: this one, or others.
func (p *Pool) putLocked(c *conn, now time.Time) []*conn {
	fit := !c.alone && !c.retired && !p.closed && p.isCurrent(c) && c.hasRoom()
	if c.h2 != nil && c.users > 0 {
		if fit && c.shared {
			p.refillLocked(c)
		}
		return nil
	}
	if !fit || c.h2 != nil && !c.shared || c.h2 == nil && p.distrusted.has(c.key, now) || c.large {
		p.removeLocked(c)
		return []*conn{c}
	}
	h := p.hostLocked(c.key)
	closing, ok := p.roomLocked(h, c.idleBytes())
	if !ok {
		p.removeLocked(c)
		return append(closing, c)
	}
	if c.h2 != nil {
		p.refillLocked(c)
		h.idle2++
	} else {
		h.idle = append(h.idle, c)
	}
	c.last = now
	p.idle.Add(&c.listed, c)
	if p.sweeps == nil {
		p.sweeps = time.AfterFunc(sweepInterval, p.sweep)
	}
	return closing
}

// roomLocked charges n bytes for another idle connection of a host, and reports whether there is room. It
// returns those that must be closed for it.
func (p *Pool) roomLocked(h *host, n int64) (closing []*conn, ok bool) {
	if len(h.idle)+h.idle2 >= max(p.config.MaxIdle/2, 1) {
		return nil, false
	}
	if p.idle.Len() >= p.config.MaxIdle {
		closing = p.shedLocked(1)
	}
	if p.config.Memory.GrowIdle(n) {
		return closing, true
	}
	closing = append(closing, p.shedLocked(n)...)
	return closing, p.config.Memory.GrowIdle(n)
}

// refillLocked lets requests try an HTTP/2 connection again that had no stream left.
func (p *Pool) refillLocked(c *conn) {
	h := p.hostLocked(c.key)
	if i := slices.Index(h.full, c); i >= 0 {
		h.full = slices.Delete(h.full, i, i+1)
		h.shared = append(h.shared, c)
	}
}

// add counts a new connection, unless it is for one request only.
func (p *Pool) add(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.alone {
		p.hostLocked(c.key).n++
	}
}

// removeLocked removes a connection that is about to be closed.
func (p *Pool) removeLocked(c *conn) {
	if c.alone {
		return
	}
	h := p.hosts[c.key]
	p.unlistLocked(h, c)
	if h.n--; h.n == 0 {
		delete(p.hosts, c.key)
	}
}

// unlistLocked removes a connection from all lists.
func (p *Pool) unlistLocked(h *host, c *conn) {
	p.notIdleLocked(h, c)
	h.idle, h.shared, h.full = without(h.idle, c), without(h.shared, c), without(h.full, c)
}

// notIdleLocked reports whether a connection was idle, which it is no longer.
func (p *Pool) notIdleLocked(h *host, c *conn) bool {
	if !p.idle.Remove(&c.listed) {
		return false
	}
	p.config.Memory.ShrinkIdle(c.idleBytes())
	if c.h2 != nil {
		h.idle2--
	}
	return true
}

// without returns list without c, which is usually the last element.
func without(list []*conn, c *conn) []*conn {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == c {
			return slices.Delete(list, i, i+1)
		}
	}
	return list
}

func (p *Pool) hostLocked(k key) *host {
	h := p.hosts[k]
	if h == nil {
		h = new(host)
		p.hosts[k] = h
	}
	return h
}

// sweep closes the idle connections that are old, dead or retired.
func (p *Pool) sweep() {
	var closing, idle []*conn
	p.mu.Lock()
	now := time.Now()
	for c := range p.idle.All() {
		dead := !c.hasRoom()
		switch {
		case dead || c.retired || c.isOld(now, false) || p.closed || !p.isCurrent(c):
			closing = append(closing, c)
			if dead {
				p.stale.Add(1)
			}
		case c.h2 == nil:
			idle = append(idle, c)
		}
	}
	for _, c := range closing {
		p.removeLocked(c)
	}
	found := waiting(idle) // no connection that is listed is closed meanwhile
	for _, c := range found {
		p.unlistLocked(p.hosts[c.key], c)
		c.users = 1
	}
	if p.sweeps != nil {
		p.sweeps.Stop()
		p.sweeps = nil
	}
	if p.idle.Len() > 0 {
		p.sweeps = time.AfterFunc(sweepInterval, p.sweep)
	}
	p.mu.Unlock()
	closeAll(closing)
	for _, c := range found {
		if s := c.state(); s != quiet {
			p.drop(c, s)
		} else {
			p.keep(c)
		}
	}
}

// keep gives an idle connection back that was looked at. It has been idle as long as before.
func (p *Pool) keep(c *conn) {
	p.mu.Lock()
	c.users = 0
	closing := p.putLocked(c, c.last)
	p.mu.Unlock()
	closeAll(closing)
}
