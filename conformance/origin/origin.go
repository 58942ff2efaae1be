package origin

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// Config configures an [Origin]. The zero value is usable.
type Config struct {
	// Seed selects the bytes of generated bodies. Zero is a valid seed.
	Seed uint64
	// Addr is the address of the listener "http". Empty means a port of
	// 127.0.0.1 that the system chooses. [New] ignores it.
	Addr string
	// TLSAddr is the address of the listener "https". Empty means a port of
	// 127.0.0.1 that the system chooses. [New] ignores it.
	TLSAddr string
	// Logger gets one debug line for each request. If it is nil, nothing is logged.
	Logger *slog.Logger
}

// Origin is an HTTP origin that commits the faults its URLs ask for. Its methods
// are safe for concurrent use. Release it with [Origin.Close].
type Origin struct {
	seed      uint64
	logger    *slog.Logger
	journal   *journal
	authority func() (*authority, error)
	tracker   *tracker

	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc

	mu        sync.Mutex
	addresses map[string]string
	held      []net.Conn // keep the port of "refused" in use
}

// New returns an origin without listeners. Use it as an [http.Handler], or
// pass it listeners with [Origin.Serve] and [Origin.ServeAs].
func New(cfg Config) *Origin {
	ctx, cancel := context.WithCancel(context.Background())
	return &Origin{
		seed:      cfg.Seed,
		logger:    cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		journal:   newJournal(maxLogEntries),
		authority: sync.OnceValues(newAuthority),
		tracker:   newTracker(),
		ctx:       ctx,
		cancel:    cancel,
		addresses: make(map[string]string),
	}
}

// Start returns an origin that serves all its named listeners on loopback. It
// fails if an address cannot be bound or a certificate cannot be made, and then
// leaves nothing open.
func Start(cfg Config) (*Origin, error) {
	o := New(cfg)
	if err := o.openAll(cfg); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *Origin) openAll(cfg Config) error {
	if _, err := o.authority(); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	for _, k := range listenerKinds() {
		if err := o.open(k, bindAddress(cfg, k.name)); err != nil {
			return fmt.Errorf("open listener %s: %w", k.name, err)
		}
	}
	return o.holdRefused()
}

func bindAddress(cfg Config, name string) string {
	switch {
	case name == "http" && cfg.Addr != "":
		return cfg.Addr
	case name == "https" && cfg.TLSAddr != "":
		return cfg.TLSAddr
	}
	return "127.0.0.1:0"
}

// Close closes every listener and connection, and waits until all handlers have
// returned. It may be called more than once. It always returns nil; it has an
// error so that Origin is an io.Closer.
func (o *Origin) Close() error {
	o.cancel()
	o.tracker.closeAll()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.held {
		_ = c.Close() // only the port was needed
	}
	o.held = nil
	return nil
}

// URL returns an absolute URL for path on the named listener. If that listener is
// not open on loopback, the host is NAME.origin.test. The certificates of this
// origin cover that name, so an in-memory dialer can route by host.
func (o *Origin) URL(name, path string) string {
	scheme := "http"
	if k, ok := kindOf(name); ok && k.tls {
		scheme = "https"
	}
	return scheme + "://" + o.host(name) + path
}

func (o *Origin) host(name string) string {
	if addr := o.Addr(name); addr != "" {
		return addr
	}
	return name + ".origin.test"
}

// Addr returns host:port of the named listener, or "" if it is not open.
func (o *Origin) Addr(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addresses[name]
}

// CA returns a pool with the authority that signs this origin's good
// certificates. The pool is empty if certificates cannot be made.
func (o *Origin) CA() *x509.CertPool {
	if a, err := o.authority(); err == nil {
		return a.pool()
	}
	return x509.NewCertPool()
}

// CAPEM returns the authority's certificate in PEM, or nil if certificates
// cannot be made.
func (o *Origin) CAPEM() []byte {
	a, err := o.authority()
	if err != nil {
		return nil
	}
	return a.pem()
}

// ClientCertificate returns the certificate that the listener mtls accepts. It is
// empty if certificates cannot be made.
func (o *Origin) ClientCertificate() tls.Certificate {
	a, err := o.authority()
	if err != nil {
		return tls.Certificate{}
	}
	return a.client
}

// Requests returns the requests for key on all listeners, in order of arrival.
// They are copies: a request that is still being answered shows its current state.
func (o *Origin) Requests(key string) []Request { return o.journal.requests(key) }

// Await waits for request number n of key, counted from 1, and returns it. Its
// error wraps that of ctx.
func (o *Origin) Await(ctx context.Context, key string, n int) (Request, error) {
	return o.journal.await(ctx, key, n)
}

// AllRequests returns the requests for all keys, in order of arrival.
func (o *Origin) AllRequests() []Request { return o.journal.all() }

// Connections returns the number of connections that the named listener accepted
// since the start or the last [Origin.Reset].
func (o *Origin) Connections(name string) int { return o.tracker.allCounts()[name] }

// Reset clears the log, and the counters of all keys and all listeners. Open
// connections stay open.
func (o *Origin) Reset() {
	o.journal.reset()
	o.tracker.resetCounts()
}

// Body returns the body that size=n asks for. Byte i is alphabet[b mod 64]. The
// alphabet is A-Z, a-z, 0-9, "-", "_", and b is byte i mod 8, counted from the
// least significant, of splitmix64(splitmix64(seed) + i/8).
func (o *Origin) Body(n int64) []byte {
	b := make([]byte, n)
	fillSeeded(b, o.seed, 0)
	return b
}

var _ http.Handler = (*Origin)(nil)
