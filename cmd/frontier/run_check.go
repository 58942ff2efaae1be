package main

import (
	"cmp"
	"fmt"
	"mime"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"fetchd/frontier"
	"fetchd/internal/cli"
)

const (
	maxOpen       = 100_000
	maxAttempts   = 11      // limit of fetchd: spec §2
	maxBody       = 1 << 40 // limit of fetchd: spec §12
	maxRedirects  = 20
	maxMediaTypes = 64
	// leaseReserve is how much longer than a fetch a worker needs a lease.
	leaseReserve = 10 * time.Second
)

// demoFlags are the flags that --demo accepts.
var demoFlags = []string{"demo", "open", "drain-time", "log-level", "quiet"}

// check returns an error for the first flag that is not usable, alone or with the others.
func (c *runCmd) check(a *app) error {
	c.setProfile(a)
	return cmp.Or(c.checkNumbers(), c.checkRecrawl(), c.checkTimes(), c.checkFetches(), c.checkResults(a), c.services.check(a))
}

// download is the value of --profile for files: S4.
const download = "download"

// setProfile sets the flags that are not given and whose defaults depend on the profile. fetchd limits
// a fetch of DOWNLOAD only by its maximum, 15 min.
func (c *runCmd) setProfile(a *app) {
	attempts, timeout, lease := 3, time.Minute, 5*time.Minute
	if c.Profile == download {
		attempts, timeout, lease = 4, 15*time.Minute, 20*time.Minute
	}
	given := func(flag string) bool { return slices.Contains(a.given, flag) }
	if !given("max-attempts") {
		c.Attempts = attempts
	}
	if !given("total-timeout") {
		c.Timeout = timeout
	}
	if !given("lease") {
		c.Lease = lease
	}
}

func (c *runCmd) checkNumbers() error {
	for _, n := range []struct {
		flag        string
		value       int64
		least, most int64
	}{
		{"--open", int64(c.Open), 1, maxOpen},
		{"--db-connections", int64(c.Connections), 1, 1000},
		{"--max-attempts", int64(c.Attempts), 1, maxAttempts},
		{"--max-body-bytes", c.MaxBody, 1, maxBody},
		{"--max-redirects", int64(valueOr(c.Redirects, 0)), 0, maxRedirects},
		{"--max-url-retries", int64(c.Retries), 0, 1_000_000},
	} {
		if n.value < n.least || n.value > n.most {
			return cli.UsageError(n.flag, fmt.Sprintf("%d is not from %d to %d", n.value, n.least, n.most))
		}
	}
	return nil
}

func (c *runCmd) checkTimes() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		zero  bool // zero is allowed
	}{
		{"--delay", c.Delay, true},
		{"--max-crawl-delay", c.CrawlDelay, true},
		{"--robots-patience", c.Patience, true},
		{"--drain-time", c.DrainTime, true},
		{"--total-timeout", c.Timeout, false},
		{"--lease", c.Lease, false},
	} {
		switch {
		case d.value < 0:
			return cli.UsageError(d.flag, fmt.Sprintf("%v is negative: give a duration such as 30s", d.value))
		case d.value == 0 && !d.zero:
			return cli.UsageError(d.flag, "0s is not allowed: give a duration such as 30s")
		}
	}
	if least := c.Timeout + leaseReserve; c.Lease <= least {
		return cli.UsageError("--lease", fmt.Sprintf("%v is too short for --total-timeout %v: give more than %v (the fetch, and %v to record it), or a shorter --total-timeout",
			c.Lease, c.Timeout, least, leaseReserve))

	}
	return nil
}

func (c *runCmd) checkFetches() error {
	switch {
	case strings.TrimSpace(c.UserAgent) == "":
		return cli.UsageError("--user-agent", "is empty: give a name and how to reach you, such as \"mybot/1.0 (+https://example.org/bot)\"")
	case !httpguts.ValidHeaderFieldValue(c.UserAgent):
		return cli.UsageError("--user-agent", fmt.Sprintf("%.80q contains a character that is not allowed in a header", c.UserAgent))
	case len(c.Accept) == 0:
		return cli.UsageError("--accept", "is empty: give a media type such as text/html, or \"any\"")
	case len(c.Accept) > maxMediaTypes:
		return cli.UsageError("--accept", fmt.Sprintf("has %d media types: give at most %d, or \"any\"", len(c.Accept), maxMediaTypes))
	case len(c.Accept) > 1 && slices.Contains(c.Accept, "any"):
		return cli.UsageError("--accept", "\"any\" accepts all media types: use it alone, or remove it")
	}
	for _, media := range c.Accept {
		if !isMediaType(media) && media != "any" {
			return cli.UsageError("--accept", fmt.Sprintf("%.80q is not a media type without parameters: give one such as text/html or text/*, or \"any\"", media))
		}
	}
	return nil
}

// isMediaType reports whether fetchd accepts s as a media type of a content policy.
func isMediaType(s string) bool {
	media, params, err := mime.ParseMediaType(s)
	family, sub, ok := strings.Cut(media, "/")
	return err == nil && len(params) == 0 && ok && family != "" && sub != ""
}

func (c *runCmd) checkResults(a *app) error {
	for _, f := range []struct{ flag, value, remedy string }{
		{"bodies", c.Bodies, "give a directory, or a store of --stores-file"},
		{"warc", c.WARC, "give a directory, or a store of --stores-file"},
		{"stores-file", c.Stores, "give a file"},
		{"outcomes", c.Outcomes, "give a file, or - for standard output"},
	} {
		if f.value == "" && slices.Contains(a.given, f.flag) {
			return cli.UsageError("--"+f.flag, "is empty: "+f.remedy+", or remove it")
		}
	}
	switch {
	case len(c.Server) > 0 && strings.ContainsAny(c.WARC, `/\`):
		return cli.UsageError("--warc", fmt.Sprintf("%.80q is a directory, but the fetchd of --server makes the records: give the name of a store that is configured there, or remove --server", c.WARC))
	case c.Stores != "" && c.Bodies == "" && c.WARC != "" && len(c.Server) > 0:
		return cli.UsageError("--stores-file", "is used by --bodies only, because --warc names a store of the fetchd of --server: name a store with --bodies, or remove it")
	case c.Stores != "" && c.Bodies == "" && c.WARC == "":
		return cli.UsageError("--stores-file", "is used by --bodies and --warc only: name a store with one of them, or remove it")
	}
	if err := frontier.CheckKeepHeaders(c.Keep); err != nil {
		return cli.UsageError("--keep-header", fmt.Sprint(err))
	}
	if c.Metrics != "" {
		if _, port, err := net.SplitHostPort(c.Metrics); err != nil || port == "" {
			return cli.UsageError("--metrics-addr", fmt.Sprintf("%.80q is not HOST:PORT: give an address such as 127.0.0.1:9100, or :9100 for all addresses", c.Metrics))
		}
	}
	return nil
}

func (c services) check(a *app) error {
	if slices.Contains(c.Server, "") || slices.Contains(a.given, "server") && len(c.Server) == 0 {
		return cli.UsageError("--server", "an address is empty: give HOST:PORT")
	}
	for _, flag := range a.given {
		inside := strings.HasPrefix(flag, "egress-")
		outside := strings.HasPrefix(flag, "tls") || flag == "token-file"
		switch {
		case inside && len(c.Server) > 0:
			return cli.UsageError("--"+flag, fmt.Sprintf("applies to the fetchd inside, but --server is %.80s: use the settings of that fetchd, or remove --server", strings.Join(c.Server, ",")))
		case outside && len(c.Server) == 0:
			return cli.UsageError("--"+flag, "applies to another fetchd: give its address with --server")
		}
	}
	return nil
}

func valueOr(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}
