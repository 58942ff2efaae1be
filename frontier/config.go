package frontier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

const (
	defaultOpen          = 256
	defaultLease         = 5 * time.Minute
	defaultTotalTimeout  = time.Minute
	defaultMaxBody       = 1 << 20
	defaultRedirectWait  = 30 * time.Second
	defaultMaxCrawlDelay = time.Minute
	defaultDrainTime     = 30 * time.Second
	defaultPatience      = time.Hour

	// leaseReserve is what a lease must have left, beside the time of a fetch, when
	// the fetch is begun: the outcome has to be recorded too.
	leaseReserve = 10 * time.Second
)

// Config says how a [Worker] works. The zero value works, with the zero Policy:
// start from [DefaultPolicy].
type Config struct {
	// Name is told in the store while this worker holds a URL; may be empty.
	Name string
	// Open is how many fetches are under way at most; zero means 256.
	Open int
	// Lease is how long a URL is this worker's without a sign of progress; zero means
	// 5 min. It must exceed TotalTimeout by 10 s and more.
	Lease time.Duration
	// TotalTimeout bounds one fetch, retries included; zero means 1 min.
	TotalTimeout time.Duration
	// MaxAttempts are made in one fetch, 1 to 11; zero means fetchd's default, 3.
	MaxAttempts int
	// Policy says what becomes of outcomes.
	Policy Policy
	// UserAgent names the crawler to origins, and by its product token to robots.txt;
	// empty means "frontier".
	UserAgent string
	// IgnoreRobots leaves robots.txt alone.
	IgnoreRobots bool
	// MaxCrawlDelay caps the Crawl-delay of a robots.txt; zero means 1 min.
	MaxCrawlDelay time.Duration
	// RobotsPatience is how long the URLs of an origin wait for a robots.txt that is out
	// of reach, before they are given up; zero means 1 h.
	RobotsPatience time.Duration
	// Accept are the media types wanted, such as "text/html", of which an empty body
	// fails as empty_body; empty means any, and an empty body is fetched.
	Accept []string
	// MaxBodyBytes is the longest body, 1 to 1 MiB; zero means 1 MiB. A longer one
	// fails as body_too_large, or is cut with TruncateBodies.
	MaxBodyBytes   int64
	TruncateBodies bool
	// MaxRedirectWait is how long a redirect waits for its turn at another host; zero
	// means 30 s. After it the target is added to the frontier instead.
	MaxRedirectWait time.Duration
	// DrainTime is how long Run lets fetches finish once it is to end; zero means 30 s.
	DrainTime time.Duration
	// Endless has Run wait for more URLs when there are none left.
	Endless bool
	// Bodies keeps bodies; nil means that they are only digested.
	Bodies Bodies
	// Recorded is told of each outcome after it was recorded, one at a time; nil
	// means nobody. An error stops the worker.
	Recorded func(Record) error
	// Metrics counts; nil means that nobody does.
	Metrics *Metrics
	// Logger takes a line for what an operator may have to do something about; nil
	// means none.
	Logger *slog.Logger
}

// Bodies keeps bodies under their digests.
type Bodies interface {
	// Keep stores body under its SHA-256 in 64 hexadecimal digits, whole or not at all.
	// One that is there already costs nothing. It may be called concurrently.
	Keep(ctx context.Context, sha256 string, body []byte) error
}

// whole is c with its defaults, or what is wrong with it.
func (c Config) whole() (Config, error) {
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
		if *d.at == 0 {
			*d.at = d.def
		}
	}
	if c.Open == 0 {
		c.Open = defaultOpen
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = defaultMaxBody
	}
	if c.UserAgent == "" {
		c.UserAgent = "frontier"
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
	fault(c.Open < 0, "Open is %d: give 1 or more", c.Open)
	fault(c.MaxAttempts < 0 || c.MaxAttempts > 11, "MaxAttempts is %d: give 1 to 11", c.MaxAttempts)
	fault(c.MaxBodyBytes < 0 || c.MaxBodyBytes > defaultMaxBody, "MaxBodyBytes is %d: give 1 to %d", c.MaxBodyBytes, defaultMaxBody)
	fault(c.Lease <= c.TotalTimeout+leaseReserve, "Lease is %v: give more than TotalTimeout (%v) and %v", c.Lease, c.TotalTimeout, leaseReserve)
	if err := c.Policy.check(); err != nil {
		errs = append(errs, fmt.Errorf("frontier: Policy: %w", err))
	}
	return errors.Join(errs...)
}
