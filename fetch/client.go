package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"fetchd/fetch/workers"
)

// Config says how a [Client] fetches. The zero value is a safe service: public
// addresses on ports 80 and 443 only, the system's roots, no log.
type Config struct {
	// Egress says which targets may be reached.
	Egress Egress
	// RootCAs verify origins; nil means the system's.
	RootCAs *x509.CertPool
	// Origins are spoken to with TLS settings of their own, by "host:port" as a URL
	// has them, the port always told; nil means none. Not with a Proxy.
	Origins map[string]OriginTLS
	// NameServer is the DNS server that names are looked up with, as HOST:PORT; empty
	// means the system's.
	NameServer string
	// Resolver looks names up in place of [Resolver] of NameServer; nil means that one.
	Resolver *net.Resolver
	// Proxy carries every request: http, https or socks5, with userinfo where it
	// wants it. Then the proxy looks names up and connects: of the target only
	// the URL is judged here, its port and name and literal address, and no
	// address that a name has. Nil means none; the environment is never asked.
	Proxy *url.URL
	// Dial connects in place of the resolver, the guard and TCP. It is for
	// in-memory connections in tests: with it the address guard is out of force.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UserAgent is sent where the caller sets none; empty means "fetchd".
	UserAgent string
	// OmitHops leaves out [CircleHeader]. A service that is asked to fetch itself through
	// a proxy or a load balancer then does not notice.
	OmitHops bool
	// MaxTotalTimeout bounds every fetch; zero means 15 min.
	MaxTotalTimeout time.Duration
	// Logger takes a line for each retry and each end of a fetch; nil means none.
	Logger *slog.Logger
	// Observer is told of every attempt and every end, whatever events the request
	// asks for; nil means nobody.
	Observer Observer
	// Shutdown ends every wait when it is done, as SHUTDOWN: those between attempts and
	// those for a credential. Attempts in flight go on until [Client.End]. Nil means never.
	Shutdown context.Context
}

// OriginTLS is how one origin is verified, and what it is shown.
type OriginTLS struct {
	// RootCAs verify it; nil means those of the [Config].
	RootCAs *x509.CertPool
	// Certificate is shown where the origin asks for one; nil means none.
	Certificate *tls.Certificate
	// Callers are the callers for whom the certificate is shown, by [Request.Caller].
	// None means every caller. Other callers share no connection to the origin.
	Callers []string
}

// Client carries out fetches. It is safe for concurrent use.
type Client struct {
	pooled, fresh *http.Transport
	guard         *guard
	origins       map[string]OriginTLS
	resolver      *net.Resolver
	nameServer    string
	omitHops      bool
	hasProxy      bool
	userAgent     []string // the line that is sent
	// The headers of a request that brings none, shared by all.
	plain, plainUncoded http.Header
	maxTotal            time.Duration
	workers             workers.Pool
	engine              *retryablehttp.Client
	open                atomic.Int64 // fetches
	logger              *slog.Logger
	observer            Observer
	shutdown            context.Context
	runs                runs
}

// New returns a client. The error names the field that is not usable.
func New(cfg Config) (*Client, error) {
	if cfg.MaxTotalTimeout < 0 {
		return nil, errors.New("fetch: MaxTotalTimeout must not be negative")
	}
	if err := errors.Join(cfg.Egress.check(), checkProxy(cfg.Proxy)); err != nil {
		return nil, err
	}
	if len(cfg.Origins) > 0 && cfg.Proxy != nil {
		return nil, errors.New("fetch: Origins go with no Proxy: TLS through one is net/http's")
	}
	c := &Client{
		guard:      newGuard(cfg.Egress),
		origins:    cfg.Origins,
		nameServer: cfg.NameServer,
		omitHops:   cfg.OmitHops,
		hasProxy:   cfg.Proxy != nil,
		userAgent:  []string{orDefault(cfg.UserAgent, "fetchd")},
		maxTotal:   orDefault(cfg.MaxTotalTimeout, defaultMaxTotal),
		logger:     cfg.Logger,
		observer:   cfg.Observer,
		shutdown:   cfg.Shutdown,
		engine:     newEngine(),
	}
	c.plain, c.plainUncoded = c.headerOf(&Request{}), c.headerOf(&Request{KeepEncoding: true})
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.shutdown == nil {
		c.shutdown = context.Background()
	}
	d := &dialer{guard: c.guard, resolver: cfg.Resolver, proxy: cfg.Proxy, override: cfg.Dial, origins: cfg.Origins, tls: &tls.Config{
		RootCAs:            cfg.RootCAs,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(1024),
	}}
	if d.resolver == nil {
		d.resolver = Resolver(cfg.NameServer)
	}
	c.resolver = d.resolver
	c.pooled, c.fresh = d.pooled(), d.fresh()
	context.AfterFunc(c.shutdown, c.runs.endWaits)
	return c, nil
}

// Close ends the idle connections and goroutines. Fetches under way are not
// touched.
func (c *Client) Close() {
	c.workers.Close()
	c.pooled.CloseIdleConnections()
	c.fresh.CloseIdleConnections()
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Resolver returns a resolver that asks the DNS server at address, or the
// system's where address is empty. It is Go's own, never the C library's, which
// reads "0x7f.1" as an address, and a lookup that is given up lets go of its
// socket at once.
func Resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, server string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, orDefault(address, server))
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() }) // the lookup ends ctx at its own end too
		if strings.HasPrefix(network, "tcp") {
			return &shortAnswers{Conn: conn, left: maxDNSBytes}, nil
		}
		return conn, nil
	}}
}

// maxDNSBytes is the longest answer of a name server over TCP, where DNS allows
// 64 KiB. Go opens a socket for each of up to 4,000 addresses to sort them, and a
// dial tries 8.
const maxDNSBytes = 4 << 10

// shortAnswers is a connection to a name server that fails after maxDNSBytes.
type shortAnswers struct {
	net.Conn
	left int
}

// Read implements net.Conn.
func (c *shortAnswers) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// checkProxy tells what is wrong with a proxy, for people and without its
// userinfo.
func checkProxy(p *url.URL) error {
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
