package fetch

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/egress"
	"fetchd/fetch/fault"
	"fetchd/fetch/markdown"
	"fetchd/fetch/workers"
	"fetchd/internal/budget"
	"fetchd/internal/list"
)

// Egress is the policy that controls which targets are allowed.
type Egress = egress.Policy

// Config configures a [Client]. The zero value is safe: it allows public addresses on
// ports 80 and 443 only, uses the system's root certificates, and logs nothing.
type Config struct {
	// Egress controls which targets are allowed.
	Egress egress.Policy
	// RootCAs verifies the certificates of origins. Nil means the system's roots.
	RootCAs *x509.CertPool
	// Intermediates are for origins that do not send theirs. They are not trusted. Nil means none.
	// [Client.SetIntermediates] replaces them.
	Intermediates *Intermediates
	// Origins holds TLS settings for single origins. A key is "host:port" in the form
	// of URLs, and the port is required. Nil means none. It cannot be combined with
	// Proxy or ProxyFor. [Client.SetOrigins] replaces it.
	Origins map[string]OriginTLS
	// NameServer is the DNS server to use, as HOST:PORT. Empty means the system's.
	NameServer string
	// Resolver replaces the resolver for NameServer. Nil means [Resolver](NameServer).
	Resolver conns.Resolver
	// Proxy is the proxy for every request: http, https or socks5, with userinfo if it
	// requires authentication. The proxy looks names up and connects, so the egress
	// policy checks only the URL: its port, its name and a literal address. Nil means
	// none. Proxy variables of the environment are ignored.
	Proxy *url.URL
	// ProxyFor returns the proxy for the URL of each hop, or nil if the hop needs none. It
	// replaces Proxy. For the same proxy it must return the same pointer. Nil means that
	// Proxy is for every request.
	ProxyFor func(*url.URL) *url.URL
	// Dial replaces the resolver, the egress check of addresses, and TCP. It is for
	// in-memory connections in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// NeverReuse lists hosts to which every request goes on a new connection, used once, over
	// HTTP/1.1. An entry is a name, an IP address, in brackets if it is IPv6, either of them with
	// ":port" for that port only, or "*" for all hosts. Names are as in URLs. A response can
	// then never be the answer to an earlier request. It costs a connection for each request,
	// and a host that speaks only HTTP/2 cannot be reached.
	NeverReuse []string
	// MaxIdle limits the idle connections to origins. Zero means [DefaultMaxIdle].
	MaxIdle int
	// Memory is charged for idle connections, which have at most an eighth of it. They are closed
	// before anything else is refused memory. Nil means no limit.
	Memory *budget.Budget
	// UserAgent is sent if the caller sets none. Empty means "fetchd".
	UserAgent string
	// OmitHops omits [HopsHeader]. The service then cannot detect that it fetches
	// itself through a proxy or a load balancer.
	OmitHops bool
	// MaxTotalTimeout is the maximum duration of every fetch. Zero means 15 min.
	MaxTotalTimeout time.Duration
	// Logger receives a line for each retry, each end of a fetch, and each origin whose
	// connections are not reused for a minute. Nil means no log.
	Logger *slog.Logger
	// Observer receives every attempt and every fetch, regardless of [Request].Events.
	// Nil means none.
	Observer Observer
	// Shutdown ends every wait as SHUTDOWN when it is done: waits between attempts and
	// waits for a credential. Attempts in flight continue until [Client.End]. Nil means
	// never.
	Shutdown context.Context
}

// DefaultMaxIdle is the default of [Config].MaxIdle.
const DefaultMaxIdle = conns.DefaultMaxIdle

// OriginTLS holds the TLS settings of one origin.
type OriginTLS = conns.OriginTLS

// Intermediates are certificates of intermediate authorities.
type Intermediates = conns.Intermediates

// ParseIntermediates reads certificates in PEM. It skips what is no certificate of an authority, and fails
// if nothing is left.
func ParseIntermediates(text []byte) (*Intermediates, error) { return conns.ParseIntermediates(text) }

// Route is a way to origins that a fetch uses instead of that of its client. Its Proxy replaces that of [Config],
// also if it is nil. Addresses that it connects to itself are checked like all others. [CheckProxy] says which
// proxies there are.
type Route = conns.Route

// ConnectionStats are the numbers of a client's connections.
type ConnectionStats = conns.Stats

// Client runs fetches. It is safe for concurrent use.
type Client struct {
	config    Config
	pool      *conns.Pool
	guard     *egress.Guard
	userAgent []string // the value that is sent
	// The headers of requests whose callers set none. They are shared and never changed.
	defaultHeader, defaultHeaderUncoded http.Header
	workers                             workers.Pool
	open                                atomic.Int64 // fetches in flight
	runs                                runs
	clockWarnings                       *rate.Limiter // see [attempt.checkClock]
	turns                               turns         // of pages that are converted to text
}

// New returns a client. The error names the field that is invalid.
func New(cfg Config) (*Client, error) {
	if cfg.MaxTotalTimeout < 0 || cfg.MaxIdle < 0 {
		return nil, errors.New("fetch: MaxTotalTimeout and MaxIdle must not be negative")
	}
	if err := errors.Join(cfg.Egress.Check(), CheckProxy(cfg.Proxy)); err != nil {
		return nil, err
	}
	if cfg.Proxy != nil && cfg.ProxyFor != nil {
		return nil, errors.New("fetch: Proxy and ProxyFor are both set: give one")
	}
	alone, err := newHostSet(cfg.NeverReuse)
	if err != nil {
		return nil, fmt.Errorf("fetch: NeverReuse: %w", err)
	}
	if cfg.Resolver == nil {
		cfg.Resolver = Resolver(cfg.NameServer)
	}
	cfg.MaxTotalTimeout = cmp.Or(cfg.MaxTotalTimeout, defaultMaxTotal)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Shutdown = cmp.Or(cfg.Shutdown, context.Background())
	c := &Client{config: cfg, guard: egress.New(cfg.Egress), userAgent: []string{cmp.Or(cfg.UserAgent, "fetchd")},
		clockWarnings: rate.NewLimiter(rate.Every(time.Minute), 1)}
	c.config.Origins = nil // see SetOrigins
	if cfg.ProxyFor == nil && cfg.Proxy != nil {
		c.config.ProxyFor = func(*url.URL) *url.URL { return cfg.Proxy }
	}
	c.defaultHeader, c.defaultHeaderUncoded = c.headerOf(&Request{}), c.headerOf(&Request{KeepEncoding: true})
	pool := conns.Config{Guard: c.guard, Resolver: cfg.Resolver, Proxy: c.config.ProxyFor, Dial: cfg.Dial, RootCAs: cfg.RootCAs, Intermediates: cfg.Intermediates, MaxIdle: cfg.MaxIdle, Memory: cfg.Memory,
		OnDistrust: c.logDistrust}
	if len(alone) > 0 {
		pool.NeverReuse = alone.has
	}
	c.pool = conns.New(pool)
	if err := c.SetOrigins(cfg.Origins); err != nil {
		return nil, err
	}
	context.AfterFunc(cfg.Shutdown, c.runs.endWaits)
	return c, nil
}

// firstHeader returns the header of the first request of a fetch: the caller's fields and those
// that the service adds. The map and its values are shared and never changed.
func (c *Client) firstHeader(r *Request) http.Header {
	if len(r.Header) == 0 && r.IdempotencyKey == "" && r.Hops == 0 && r.Text == markdown.Off { // the common case
		if r.acceptsCodings() {
			return c.defaultHeader
		}
		return c.defaultHeaderUncoded
	}
	return c.headerOf(r)
}

func (c *Client) headerOf(r *Request) http.Header {
	h := make(http.Header, len(r.Header)+5)
	maps.Copy(h, r.Header)
	if len(h["User-Agent"]) == 0 {
		h["User-Agent"] = c.userAgent
	}
	switch {
	case len(h["Accept"]) > 0:
	case r.Text != markdown.Off:
		h["Accept"] = markdownFirst
	default:
		h["Accept"] = anyType
	}
	if len(h["Accept-Encoding"]) == 0 {
		h["Accept-Encoding"] = r.acceptEncoding()
	}
	if r.IdempotencyKey != "" {
		h["Idempotency-Key"] = []string{r.IdempotencyKey}
	}
	if !c.config.OmitHops {
		h[HopsHeader] = []string{strconv.Itoa(r.Hops + 1)}
	}
	return h
}

// anyType is the Accept of a request whose caller sets none. Some origins refuse a request
// without Accept.
var anyType = []string{"*/*"}

// markdownFirst is the Accept of a request for the text of a page (spec B10).
var markdownFirst = []string{"text/markdown, text/html;q=0.9, */*;q=0.1"}

// CheckProxy returns what is wrong with a proxy. Nil is correct. The error does not contain its userinfo.
func CheckProxy(p *url.URL) error {
	if p == nil {
		return nil
	}
	if !slices.Contains([]string{"http", "https", "socks5"}, p.Scheme) || p.Hostname() == "" || p.Port() == "" {
		return errors.New("fetch: Proxy is not http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT")
	}
	if port, err := strconv.ParseUint(p.Port(), 10, 16); err != nil || port == 0 {
		return errors.New("fetch: Proxy has the port " + p.Port() + ": give one from 1 to 65535")
	}
	return nil
}

// proxyFor returns the proxy for requests to a URL by a route, or nil.
func (c *Client) proxyFor(u *url.URL, route *Route) *url.URL {
	switch {
	case route != nil:
		return route.Proxy
	case c.config.ProxyFor == nil:
		return nil
	}
	return c.config.ProxyFor(u)
}

// RetireRoutes makes connections of routes take no further request. They are closed when they are idle.
func (c *Client) RetireRoutes(routes ...*Route) { c.pool.Retire(routes...) }

// proxySecrets returns the forms in which a proxy that gets a password may repeat it: plain, and as it is sent
// (RFC 7617 §2). Nil means that there is none.
func (c *Client) proxySecrets(u *url.URL, route *Route) []string {
	proxy := c.proxyFor(u, route)
	if proxy == nil {
		return nil
	}
	password, ok := proxy.User.Password()
	if !ok {
		return nil
	}
	return []string{password, base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))}
}

// SetOrigins replaces the TLS settings of single origins; see [Config].Origins. Connections
// that were made with other settings take no new request and are closed when they are
// idle. Equal settings keep their connections. Requests in flight are not affected.
func (c *Client) SetOrigins(origins map[string]OriginTLS) error {
	if len(origins) > 0 && c.config.ProxyFor != nil {
		return errors.New("fetch: Origins cannot be combined with Proxy or ProxyFor")
	}
	before, next := c.pool.Origins(), make(map[string]*OriginTLS, len(origins))
	for address, settings := range origins {
		next[address] = &settings
		if old := before[address]; old != nil && sameTLS(old, &settings) {
			next[address] = old // the pointer identifies the settings of a connection
		}
	}
	if !maps.Equal(before, next) {
		c.pool.SetOrigins(next)
	}
	return nil
}

// SetIntermediates replaces [Config].Intermediates for new connections.
func (c *Client) SetIntermediates(i *Intermediates) { c.pool.SetIntermediates(i) }

// sameTLS reports whether two settings lead to the same connections.
func sameTLS(a, b *OriginTLS) bool {
	return a.RootCAs.Equal(b.RootCAs) && reflect.DeepEqual(a.Certificate, b.Certificate) && slices.Equal(a.Callers, b.Callers)
}

// logDistrust logs that an origin has sent bytes that were not requested; see [conns.Config].OnDistrust.
func (c *Client) logDistrust(scheme, address string) {
	origin := scheme + "://" + address
	if address == "" {
		origin = "the proxy, for http URLs"
	}
	c.config.Logger.Warn("an origin sent bytes that were not requested: its HTTP/1.1 connections are not reused for a minute", slog.String("origin", origin))
}

// Connections returns the numbers of the client's connections.
func (c *Client) Connections() ConnectionStats { return c.pool.Stats() }

// Close closes the idle connections and goroutines. Fetches in flight continue, and their
// connections are closed when they end.
func (c *Client) Close() {
	c.workers.Close()
	c.pool.Close()
}

var errShutdown = fault.New(classify.Shutdown, classify.NoPhase, "server_shutdown")

// End ends every fetch in flight as SHUTDOWN, and every later one as soon as it starts. It
// returns how many were in flight, and does not wait for them to end.
func (c *Client) End() int {
	c.runs.mu.Lock()
	c.runs.ended = true
	c.runs.mu.Unlock()
	all := c.runs.all()
	for _, r := range all {
		r.Cancel(errShutdown)
	}
	return len(all)
}

// runs lists the fetches in flight. A context for each would cost a fetch a quarter of
// a kilobyte.
type runs struct {
	mu    sync.Mutex
	list  list.List[*run]
	ended bool // a fetch that starts now ends at once
}

func (l *runs) add(r *run) {
	l.mu.Lock()
	ended := l.ended
	l.list.Add(&r.listed, r)
	l.mu.Unlock()
	if ended {
		r.Cancel(errShutdown)
	}
}

// remove removes r from the list, if it is there.
func (l *runs) remove(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list.Remove(&r.listed)
}

// endWaits ends the fetches that wait. One that starts to wait later ends itself.
func (l *runs) endWaits() {
	for _, r := range l.all() {
		if r.isWaiting() {
			r.Cancel(errShutdown)
		}
	}
}

func (l *runs) all() []*run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(l.list.All())
}
