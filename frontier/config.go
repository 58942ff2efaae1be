package frontier

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fetchd/client"
	"fetchd/frontier/links"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
)

const (
	defaultOpen          = 256
	defaultLease         = 5 * time.Minute
	defaultTotalTimeout  = time.Minute
	defaultMaxBody       = 16 << 20
	maxMaxBody           = 1 << 40 // limit of fetchd: spec §12
	defaultRedirectWait  = 30 * time.Second
	defaultMaxCrawlDelay = time.Minute
	defaultDrainTime     = 30 * time.Second
	defaultPatience      = time.Hour

	// leaseReserve is the time of a lease that must remain after the timeout of a fetch when the
	// fetch starts, so that its outcome can be recorded.
	leaseReserve = 10 * time.Second
)

// Config configures a [Worker]. The zero value is valid, but has the zero Policy: set Policy to
// [DefaultPolicy].
type Config struct {
	// Name is stored with each URL that this worker holds. It may be empty.
	Name string
	// Open is the maximum number of fetches in flight; zero means 256.
	Open int
	// Lease is how long a URL stays with this worker without progress; zero means 5 min. It must
	// exceed TotalTimeout by more than 10 s.
	Lease time.Duration
	// TotalTimeout limits one fetch, including its retries; zero means 1 min.
	TotalTimeout time.Duration
	// MaxAttempts limits the attempts of one fetch, 1 to 11; zero means fetchd's default, which is 3,
	// or 4 with Download.
	MaxAttempts int
	// Download has pages retried by fetchd's profile DOWNLOAD: later, with jitter, and also after a
	// 408. Otherwise the profile is STANDARD.
	Download bool
	// Policy decides what follows from outcomes.
	Policy Policy
	// UserAgent is the crawler's name, which origins receive. Its product token selects the rules
	// of robots.txt. Empty means "frontier".
	UserAgent string
	// From is the address of who is responsible for the crawler, which origins receive. Empty means none.
	From string
	// Identity is the auth provider of every service that signs all requests. Requests to origins that it
	// does not cover are not signed. Empty means none.
	Identity string
	// IgnoreRobots turns robots.txt off.
	IgnoreRobots bool
	// MaxCrawlDelay limits the Crawl-delay of a robots.txt; zero means 1 min.
	MaxCrawlDelay time.Duration
	// RobotsPatience is how long the URLs of an origin wait for an unreachable robots.txt before
	// they are dead; zero means 1 h.
	RobotsPatience time.Duration
	// Accept lists the wanted media types, such as "text/html". With it, an empty body fails as
	// empty_body. Empty means any media type, and empty bodies too.
	Accept []string
	// RequireValidCharset fails a body that is not valid in its charset, as undecodable.
	RequireValidCharset bool
	// MaxBodyBytes is the maximum length of a body, 1 to 1 TiB; zero means 16 MiB. A longer body
	// fails as body_too_large.
	MaxBodyBytes int64
	// KeepHeaders names the response headers that are recorded with each outcome, at most 32. Of a
	// name at most 8 values are kept, of a value 1 KiB, and of a response 8 KiB; "…" stands for what
	// is left out.
	KeepHeaders []string
	// Full makes no conditional requests, so that also pages that have not changed are fetched.
	Full bool
	// MaxRedirectWait is how long a redirect waits for another host; zero means 30 s. After that
	// its target is added to the frontier instead.
	MaxRedirectWait time.Duration
	// DrainTime is how long Run lets fetches finish after its context ends; zero means 30 s.
	DrainTime time.Duration
	// Recrawl has fetched URLs fetched again. If it does, Run does not end when no URL is left.
	Recrawl Recrawl
	// Endless makes Run wait for more URLs when none are left.
	Endless bool
	// Bodies stores bodies. If it is nil, only their digests are recorded.
	Bodies Bodies
	// RecordStore names a store of every service. If it is not empty, the services record all
	// requests and responses there, in WARC files.
	RecordStore string
	// Requisites adds what pages need to be shown. If it is nil, nothing is added, but what was added before is fetched.
	Requisites *Requisites
	// Discovery adds the links of pages. If it is nil, only sitemaps that were added are read.
	Discovery *Discovery
	// Outdated reports whether another configuration applies now. It is asked after each claim, before a URL of it is
	// fetched. If so, Run gives the URLs back, lets its fetches finish, and returns [ErrOutdated]. It may be nil.
	Outdated func(context.Context) (bool, error)
	// Budget ends the crawl, or that of a host.
	Budget Budget
	// Recorded is called for each recorded outcome, one at a time, unless it is nil. An error stops
	// the worker.
	Recorded func(Record) error
	// Metrics counts outcomes and more, unless it is nil.
	Metrics *Metrics
	// Logger receives what an operator may have to act on, unless it is nil.
	Logger *slog.Logger
}

// Bodies stores bodies under their digests. It is safe for concurrent use.
type Bodies interface {
	// New returns an empty body, which costs nothing before its first Write. The end of ctx
	// interrupts its methods.
	New(ctx context.Context) Body
	// Lacks reports whether it is known without a request that there is no body with this SHA-256.
	Lacks(sha256 string) bool
}

// Body is a body that is being stored. Its methods are not called concurrently.
type Body interface {
	// Write must not wait for long: it stalls other fetches. If there is no room for the body, its
	// error matches *[NoRoomError].
	client.BodyWriter
	// Reserve waits until there is room for a body of that many bytes. It is called before the first
	// Write, if an earlier body of the URL had no room.
	Reserve(ctx context.Context, bytes int64) error
	// Commit appends last and stores the body completely or not at all. sha256 is the SHA-256 of
	// the whole body in 64 hexadecimal digits. If the body has another one, the error matches
	// *[DigestError].
	Commit(sha256 string, last []byte) error
	// Drop removes what was written and not committed. It is always called, last.
	Drop()
}

// NoRoomError reports that there is no room for a body now, after so many bytes.
type NoRoomError struct{ Bytes int64 }

// Error implements error.
func (e *NoRoomError) Error() string {
	return fmt.Sprintf("there is no room for more than %d bytes of the body now", e.Bytes)
}

// DigestError reports that a body has changed between the service and the place of bodies.
type DigestError struct{ Got, Want string }

// Error implements error.
func (e *DigestError) Error() string {
	return fmt.Sprintf("the body has the SHA-256 %s, but the service has fetched one with %s", e.Got, e.Want)
}

// CheckDigest returns a *[DigestError] unless got is the digest want.
func CheckDigest(got hash.Hash, want string) error {
	if text := hex.EncodeToString(got.Sum(nil)); text != want {
		return &DigestError{text, want}
	}
	return nil
}

// Discovery makes a worker add what pages link to.
type Discovery struct {
	Scope    *scope.Scope // of the links; nil means every URL
	MaxDepth int          // links from the seeds; negative means no limit
	Links    links.Limits // of a page
	Limits   store.Limits
}

// excludes reports whether a URL is excluded, which holds for requisites too.
func (d *Discovery) excludes(url string) bool {
	return d != nil && d.Scope != nil && d.Scope.Excludes(url)
}

// narrow reports whether redirects within an origin may leave the scope.
func (d *Discovery) narrow() bool { return d != nil && d.Scope != nil && d.Scope.Narrow() }

// Budget limits what a crawl uses. Zero means no limit.
type Budget struct {
	// Bytes of bodies, by all workers since the crawl started, and Time of this worker. If one is used
	// up, the worker claims nothing more, and Run returns an error that matches [ErrBudget].
	Bytes int64
	Time  time.Duration
	// HostBytes of bodies of one host, by all workers. A host that has used them up is aborted with
	// [ClassOverBudget].
	HostBytes int64
}

// withDefaults returns c with defaults for zero fields, or an error about invalid ones.
func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		name string
		at   *time.Duration
		def  time.Duration
	}{
		{"Lease", &c.Lease, defaultLease},
		{"TotalTimeout", &c.TotalTimeout, defaultTotalTimeout},
		{"MaxCrawlDelay", &c.MaxCrawlDelay, defaultMaxCrawlDelay},
		{"MaxRedirectWait", &c.MaxRedirectWait, defaultRedirectWait},
		{"DrainTime", &c.DrainTime, defaultDrainTime},
		{"RobotsPatience", &c.RobotsPatience, defaultPatience},
	} {
		if *d.at < 0 {
			return c, fmt.Errorf("frontier: %s is %v: it must not be negative", d.name, *d.at)
		}
		*d.at = cmp.Or(*d.at, d.def)
	}
	c.Open = cmp.Or(c.Open, defaultOpen)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, defaultMaxBody)
	if r := c.Requisites; r != nil {
		c.Requisites = &Requisites{cmp.Or(r.MaxBodyBytes, defaultRequisiteBytes), cmp.Or(r.MaxHosts, defaultRequisiteHosts)}
	}
	c.KeepHeaders = slices.Clone(c.KeepHeaders)
	for i, name := range c.KeepHeaders {
		c.KeepHeaders[i] = http.CanonicalHeaderKey(name)
	}
	c.UserAgent = cmp.Or(c.UserAgent, "frontier")
	if c.Metrics == nil {
		c.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, c.check()
}

func (c *Config) check() error {
	var errs []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("frontier: "+format, args...))
		}
	}
	fault(c.Open < 0, "Open is %d: use 1 or more", c.Open)
	fault(c.MaxAttempts < 0 || c.MaxAttempts > 11, "MaxAttempts is %d: use 1 to 11", c.MaxAttempts)
	fault(c.MaxBodyBytes < 0 || c.MaxBodyBytes > maxMaxBody, "MaxBodyBytes is %d: use 1 to %d", c.MaxBodyBytes, int64(maxMaxBody))
	if r := c.Requisites; r != nil {
		fault(r.MaxBodyBytes < 0 || r.MaxBodyBytes > maxMaxBody, "Requisites.MaxBodyBytes is %d: use 1 to %d", r.MaxBodyBytes, int64(maxMaxBody))
		fault(r.MaxHosts < 0, "Requisites.MaxHosts is %d: it must not be negative", r.MaxHosts)
	}
	fault(c.Lease <= c.TotalTimeout+leaseReserve, "Lease is %v: it must be more than TotalTimeout (%v) and %v", c.Lease, c.TotalTimeout, leaseReserve)
	fault(c.Budget.Bytes < 0 || c.Budget.Time < 0 || c.Budget.HostBytes < 0, "Budget is %+v: it must not be negative", c.Budget)
	if err := CheckKeepHeaders(c.KeepHeaders); err != nil {
		errs = append(errs, fmt.Errorf("frontier: KeepHeaders: %w", err))
	}
	if err := c.Recrawl.check(); err != nil {
		errs = append(errs, fmt.Errorf("frontier: Recrawl: %w", err))
	}
	if err := c.Policy.check(); err != nil {
		errs = append(errs, fmt.Errorf("frontier: Policy: %w", err))
	}
	return errors.Join(errs...)
}
