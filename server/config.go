package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"time"

	"fetchd/fetch"
	"fetchd/internal/budget"
	"fetchd/internal/door"
	"fetchd/internal/policies"
	"fetchd/internal/tlswatch"
	"fetchd/server/internal/admission"
	"fetchd/server/internal/conversion"
	"fetchd/server/internal/wire"
	"fetchd/server/observe"
	"fetchd/stores"
)

// Defaults of [Config] and, from spec §9 and §12, of [Limits].
const (
	defaultMaxTotal       = 15 * time.Minute
	defaultMaxBody        = 1 << 40
	defaultMemoryBudget   = 512 << 20
	maxDefaultFetches     = 10_000 // by default
	defaultHeartbeat      = 10 * time.Second
	defaultStall          = 30 * time.Second
	maxDefaultConns       = 4096 // by default
	maxDefaultCallerConns = 512  // by default
	// strangerShare is the divisor of MaxConnections that gives the maximum of connections that have
	// not authenticated.
	strangerShare = 4
)

// unbounded is the time limit of package fetch. The server clamps each request by its own
// limits, which can change.
const unbounded = 365 * 24 * time.Hour

// Config configures a [Server]. The zero value is safe: it serves everyone in plaintext, but
// fetches only from public addresses on ports 80 and 443.
type Config struct {
	// Fetch configures how origins are reached. The server sets its MaxTotalTimeout, Logger
	// and Shutdown.
	Fetch fetch.Config
	// Limits limits what callers may request.
	Limits
	// Authenticate returns the names of callers. Nil admits every caller and identifies it
	// by its address.
	Authenticate Authenticator
	// AuthProviders are the providers of credentials that requests may name. Nil means none.
	// [Server.SetOrigins] replaces them.
	AuthProviders map[string]AuthProvider
	// Stores are the stores for bodies that requests may name (spec B8). Nil means none.
	// [Server.SetStores] replaces them. The server does not close them.
	Stores *stores.Set
	// Policies narrow what single callers may do. Nil narrows nothing. [Server.SetPolicies] replaces them.
	Policies *policies.Set
	// TLS serves both ports with TLS. Nil means plaintext.
	TLS *tls.Config
	// Handshakes counts the TLS handshakes that fail. Nil counts none.
	Handshakes *tlswatch.Handshakes
	// Console serves GET / and GET /console/ of the HTTP API. Requests with a Host that does
	// not belong to the service do not reach it. Nil means no console.
	Console http.Handler
	// Hosts are names of the service, without ports, that a browser may use as Host. Names
	// are checked only on loopback and in plaintext, to prevent DNS rebinding; localhost and
	// addresses are always allowed. Elsewhere the certificate protects the service.
	Hosts []string
	// Heartbeat is the time without an event after which a stream sends a heartbeat. Zero
	// means 10 seconds.
	Heartbeat time.Duration
	// Stall is how long a caller may read nothing before its call ends with ABORTED (spec
	// B7). Zero means 30 seconds.
	Stall time.Duration
	// MemoryBudget limits the memory for callers, in bytes: requests, fetches in flight with
	// all they hold, and unread answers. A call over the budget is refused with
	// RESOURCE_EXHAUSTED, and a fetch over it ends with OUT_OF_MEMORY. One caller may use
	// three quarters. Zero means 512 MiB. Set it to less than half of the available memory,
	// because Go may hold as much garbage again.
	MemoryBudget int64
	// MaxConnections limits the open connections of each port. Zero means one for each
	// 192 KiB of the memory budget, but no more than 4,096. Connections over the limit wait to
	// be accepted. MaxConnectionsPerCaller limits those from one address (for IPv6: one
	// network of 64 bits). Zero means half of MaxConnections, but no more than 512.
	// Over that limit, one without a call is closed, or else the new one. With an Authenticator,
	// connections without an authenticated call get a quarter of MaxConnections, which
	// addresses share equally: see package internal/door.
	MaxConnections, MaxConnectionsPerCaller int
	// Observe records metrics and traces of calls and fetches, and serves /metrics. It
	// replaces Fetch.Observer. The server does not shut it down. Nil records nothing.
	Observe *observe.Observer
	// Logger receives one line for each call, and the lines of package fetch. Nil discards
	// them.
	Logger *slog.Logger
}

// Authenticator returns the name of the caller with these credentials. If it returns an error,
// the call is refused with UNAUTHENTICATED and the text of the error, which must not contain
// secrets. It is called concurrently.
type Authenticator = admission.Authenticator

// Credentials are the credentials of a call: its bearer token, and the TLS state of its connection.
type Credentials = admission.Credentials

// AuthProvider provides credentials for origins. Requests select it by its key in
// [Config].AuthProviders. Its Callers are names that the [Authenticator] returns.
type AuthProvider = conversion.AuthProvider

// check returns an error that names an invalid field.
func (c *Config) check() error {
	if c.MemoryBudget < 0 {
		return errors.New("server: MemoryBudget must not be negative")
	}
	if c.Heartbeat < 0 || c.Stall < 0 || c.MaxConnections < 0 || c.MaxConnectionsPerCaller < 0 {
		return errors.New("server: Heartbeat, Stall, MaxConnections and MaxConnectionsPerCaller must not be negative")
	}
	return c.Limits.check()
}

// client returns the client of package fetch.
func (c *Config) client(memory *budget.Budget, draining context.Context) (*fetch.Client, error) {
	c.Fetch.Logger, c.Fetch.Shutdown, c.Fetch.Memory = c.Logger, draining, memory
	c.Fetch.MaxTotalTimeout = unbounded
	if c.Observe != nil { // a nil *Observer in the interface would not be nil
		c.Fetch.Observer = c.Observe
	}
	return fetch.New(c.Fetch)
}

// connectionBytes is the uncharged memory of a connection: buffers, and on the HTTP port
// the head of a request that is still arriving.
const connectionBytes = 192 << 10

// DefaultMaxConnections returns the default of MaxConnections for a memory budget in bytes. Zero
// means the default budget of [Config].
func DefaultMaxConnections(budget int64) int {
	return int(min(max(cmp.Or(budget, int64(defaultMemoryBudget))/connectionBytes, 64), maxDefaultConns))
}

// connectionLimits returns the limits of a port.
func (c *Config) connectionLimits(memory int64) door.Limits {
	l := door.Limits{Total: cmp.Or(c.MaxConnections, DefaultMaxConnections(memory))}
	l.PerAddress = cmp.Or(c.MaxConnectionsPerCaller, min(max(l.Total/2, 1), maxDefaultCallerConns))
	l.Strangers = l.Total
	if c.Authenticate != nil {
		l.Strangers = max(l.Total/strangerShare, 1)
	}
	return l
}

// Limits limits what callers may request. [Server.SetLimits] changes the limits of a running
// server. Fetches in flight keep the limits that they started with.
type Limits struct {
	// MaxTotalTimeout is the maximum of total_timeout. A request for more is clamped. Zero
	// means 15 minutes.
	MaxTotalTimeout time.Duration
	// MaxBodyBytes is the maximum of max_size_bytes. A request for more is clamped. Zero
	// means 1 TiB.
	MaxBodyBytes int64
	// MaxFetches limits the fetches in flight. Zero means as many as the memory budget has
	// capacity for, but no more than 10,000. MaxFetchesPerCaller limits the fetches of one
	// caller, which is the name that an [Authenticator] returns, or else an address. Zero
	// means no separate limit. If MaxFetches is 8 or more, an eighth of the slots is reserved
	// for callers that have less than it, and another 64th for callers that have almost none.
	// So a single caller may have MaxFetches less these two. With fewer slots it may have all
	// of them, and callers take turns. A fetch over a limit is refused with RESOURCE_EXHAUSTED
	// before its first event. Tasks of FetchMany wait instead.
	MaxFetches, MaxFetchesPerCaller int
	// NonIdempotentRetries selects whether requests may set allow_non_idempotent (spec I2).
	// Zero means [NonIdempotentByRequest].
	NonIdempotentRetries NonIdempotentRetries
	// CallerMaxFetches overrides MaxFetchesPerCaller for named callers. Values must be
	// positive.
	CallerMaxFetches map[string]int
}

// NonIdempotentRetries selects who may allow retries of POST and PATCH (spec I2).
type NonIdempotentRetries uint8

// Values of [NonIdempotentRetries].
const (
	NonIdempotentByRequest NonIdempotentRetries = iota // A request may, with allow_non_idempotent and a key.
	NonIdempotentForbidden                             // No one may: allow_non_idempotent is refused.
)

// check returns an error if a limit is invalid.
func (l *Limits) check() error {
	if l.MaxTotalTimeout < 0 || l.MaxBodyBytes < 0 || l.MaxFetches < 0 || l.MaxFetchesPerCaller < 0 {
		return errors.New("server: MaxTotalTimeout, MaxBodyBytes, MaxFetches and MaxFetchesPerCaller must not be negative")
	}
	for name, n := range l.CallerMaxFetches {
		if n <= 0 {
			return errors.New("server: CallerMaxFetches of " + name + " must be positive: remove the entry for no separate limit")
		}
	}
	return nil
}

// DefaultMaxFetches returns the default of MaxFetches for a memory budget in bytes. Zero means
// the default budget of [Config].
func DefaultMaxFetches(budget int64) int {
	return int(min(max(cmp.Or(budget, int64(defaultMemoryBudget))/(admission.FetchBytes+wire.CallBytes), 1), maxDefaultFetches))
}

// split returns the limits of requests and those of slots, with a default for each zero. memory is the
// memory budget.
func (l *Limits) split(memory int64) (*conversion.Limits, *admission.Limits) {
	return &conversion.Limits{
			MaxTotalTimeout: cmp.Or(l.MaxTotalTimeout, defaultMaxTotal), MaxBodyBytes: cmp.Or(l.MaxBodyBytes, int64(defaultMaxBody)),
			ForbidNonIdempotent: l.NonIdempotentRetries == NonIdempotentForbidden,
		}, &admission.Limits{
			Fetches: cmp.Or(l.MaxFetches, DefaultMaxFetches(memory)), PerCaller: cmp.Or(l.MaxFetchesPerCaller, math.MaxInt),
			OfCallers: l.CallerMaxFetches,
		}
}
