package frontier

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"fetchd/frontier/normal"
	"fetchd/frontier/store"
)

// MaxRecrawlRules is the maximum number of rules, which limits the time to find one.
const MaxRecrawlRules = 100

// Recrawl says when fetched URLs are fetched again. The zero value means never.
type Recrawl struct {
	// Every is the interval of URLs that no rule matches; zero means never.
	Every time.Duration
	// Rules have the intervals of some URLs. The first that matches counts.
	Rules []RecrawlRule
}

// RecrawlRule is the interval of the URLs of a host, or of those that match a pattern.
type RecrawlRule struct {
	Host    string         // example.org, or *.example.org for all hosts below it; empty if Pattern is set
	Pattern *regexp.Regexp // of URLs in their normal form
	Every   time.Duration  // zero means never
}

func (r *RecrawlRule) matches(url string) bool {
	if r.Pattern != nil {
		return r.Pattern.MatchString(url)
	}
	host := normal.HostOf(url)
	if domain, ok := strings.CutPrefix(r.Host, "*"); ok {
		return strings.HasSuffix(host, domain)
	}
	return host == r.Host
}

// On reports whether any URL is fetched again.
func (r *Recrawl) On() bool { return r.Every > 0 || len(r.Rules) > 0 }

func (r *Recrawl) check() error {
	if r.Every < 0 {
		return fmt.Errorf("the interval is %v: it must not be negative", r.Every)
	}
	if len(r.Rules) > MaxRecrawlRules {
		return fmt.Errorf("there are %d rules: use at most %d", len(r.Rules), MaxRecrawlRules)
	}
	for _, rule := range r.Rules {
		if rule.Every < 0 || (rule.Host == "") == (rule.Pattern == nil) {
			return errors.New("a rule needs a host or a pattern, and its interval must not be negative")
		}
	}
	return nil
}

// base returns the interval of a URL before it adapts.
func (r *Recrawl) base(url string) time.Duration {
	for i := range r.Rules {
		if r.Rules[i].matches(url) {
			return r.Rules[i].Every
		}
	}
	return r.Every
}

// next returns the time to the next fetch of a URL that was fetched, or zero if there is none. The
// interval doubles while the page stays the same, and halves when it has changed.
func (r *Recrawl) next(c store.Claim, f store.Fetch) time.Duration {
	base := r.base(c.URL)
	if base == 0 {
		return 0
	}
	next := base
	if c.Recrawl > 0 {
		next = c.Recrawl
		switch compare(c, f) {
		case same:
			next *= 2
		case changed:
			next /= 2
		}
	}
	return min(max(next, base/4), 8*base)
}

// shortest returns the shortest time between two fetches of any URL.
func (r *Recrawl) shortest() time.Duration {
	shortest := cmp.Or(r.Every, 4*recrawlEvery) / 4
	for _, rule := range r.Rules {
		if rule.Every > 0 {
			shortest = min(shortest, rule.Every/4)
		}
	}
	return shortest
}

// change is what a fetch says about a page, compared with the last success.
type change int

const (
	unknown change = iota
	same
	changed
)

// compare compares a page with that of the last success. It needs a 304, or the digests of both bodies,
// which only a crawl that stores or records bodies has.
func compare(c store.Claim, f store.Fetch) change {
	if f.HTTPStatus == http.StatusNotModified {
		return same
	}
	if f.HTTPStatus/100 != 2 {
		return unknown
	}
	before, now := c.BodyDigest, f.BodyDigest
	if before == "" || now == "" {
		before, now = c.Earlier.PayloadDigest, f.Archived.PayloadDigest
	}
	switch {
	case before == "" || now == "":
		return unknown
	case before == now:
		return same
	}
	return changed
}
