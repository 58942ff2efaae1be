// Package scope decides which URLs belong to a crawl.
package scope

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"fetchd/frontier/normal"
)

// By says how URLs are compared with the seeds of a crawl.
type By string

const (
	// Host allows the hosts of the seeds. http and https of one name are one host.
	Host By = "host"
	// Domain allows all hosts below the registrable domains of the seeds: with the seed
	// https://www.example.co.uk/, all below example.co.uk, with any port.
	Domain By = "domain"
	// Prefix allows URLs that start like a seed up to its last slash, with http or https.
	Prefix By = "prefix"
	// All allows every URL.
	All By = "all"
)

// Limits of a scope, so that a decision takes a known time.
const (
	MaxPatterns     = 100
	MaxPatternBytes = 1 << 10
)

// Config configures a [Scope].
type Config struct {
	By By // empty means Host
	// Places are what [Places] returns for the seeds.
	Places []string
	// Include and Exclude are patterns of URLs in their normal form: RE2, anywhere in the URL unless
	// they have ^ or $. A URL must match one of Include, unless there are none, and none of Exclude.
	Include, Exclude []string
}

// Scope is immutable and safe for concurrent use.
type Scope struct {
	by               By
	places           map[string]struct{}
	prefixes         []string
	include, exclude []*regexp.Regexp
}

// New returns a scope, or an error that says which value is not valid.
func New(c Config) (*Scope, error) {
	s := &Scope{by: cmp.Or(c.By, Host), places: make(map[string]struct{}, len(c.Places))}
	if !slices.Contains([]By{Host, Domain, Prefix, All}, s.by) {
		return nil, fmt.Errorf("unknown scope %.40q: use host, domain, prefix or all", string(c.By))
	}
	for _, p := range c.Places {
		s.places[p] = struct{}{}
	}
	if s.by == Prefix {
		s.prefixes = slices.Sorted(maps.Keys(s.places))
	}
	var err error
	if s.include, err = compile(c.Include); err != nil {
		return nil, err
	}
	s.exclude, err = compile(c.Exclude)
	return s, err
}

func compile(patterns []string) ([]*regexp.Regexp, error) {
	if len(patterns) > MaxPatterns {
		return nil, fmt.Errorf("there are %d patterns: use at most %d", len(patterns), MaxPatterns)
	}
	var all []*regexp.Regexp
	for _, p := range patterns {
		if len(p) > MaxPatternBytes {
			return nil, fmt.Errorf("the pattern %.40q… has %d bytes: use at most %d", p, len(p), MaxPatternBytes)
		}
		r, err := regexp.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("the pattern %.80q is not valid: %w", p, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Places returns what a scope has to know about seeds, each place once: hosts, domains or prefixes.
// The seeds are in their normal form.
func Places(by By, seeds []string) []string {
	places := make(map[string]struct{})
	for _, seed := range seeds {
		if p := placeOf(by, seed); p != "" {
			places[p] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(places))
}

// placeOf returns the place of a URL in its normal form, or an empty string if there is none.
func placeOf(by By, normalised string) string {
	switch by {
	case Domain:
		return domainOf(normalised)
	case Prefix:
		_, rest, _ := strings.Cut(normalised, "://")
		path, _, _ := strings.Cut(rest, "?")
		return path[:strings.LastIndexByte(path, '/')+1]
	case All:
		return ""
	}
	host, err := normal.ExtractHost(normalised)
	if err != nil {
		return ""
	}
	return host
}

// domainOf returns the registrable domain of a URL. An address, and a name that has no such domain,
// stay whole.
func domainOf(normalised string) string { return normal.Domain(normal.HostOf(normalised)) }

// SameDomain reports whether two URLs in their normal form have the same registrable domain, with any
// port.
func SameDomain(a, b string) bool { return domainOf(a) == domainOf(b) }

// Allows reports whether a URL in its normal form belongs to the crawl.
func (s *Scope) Allows(normalised string) bool {
	return s.allowsPlace(normalised) && s.matches(normalised)
}

func (s *Scope) allowsPlace(normalised string) bool {
	switch s.by {
	case All:
		return true
	case Prefix:
		_, rest, _ := strings.Cut(normalised, "://")
		return slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(rest, p) })
	}
	_, found := s.places[placeOf(s.by, normalised)]
	return found
}

func (s *Scope) matches(normalised string) bool {
	match := func(r *regexp.Regexp) bool { return r.MatchString(normalised) }
	return (len(s.include) == 0 || slices.ContainsFunc(s.include, match)) && !s.Excludes(normalised)
}

// Excludes reports whether a URL in its normal form matches an exclusion, which holds for requisites of pages too.
func (s *Scope) Excludes(normalised string) bool {
	return slices.ContainsFunc(s.exclude, func(r *regexp.Regexp) bool { return r.MatchString(normalised) })
}

// AllowsSitemap reports whether a sitemap may be read. It must be at a host of the crawl; its path
// and the patterns do not matter, because they are about pages.
func (s *Scope) AllowsSitemap(normalised string) bool {
	if s.by != Prefix {
		return s.allowsPlace(normalised)
	}
	_, rest, _ := strings.Cut(normalised, "://")
	host, _, _ := strings.Cut(rest, "/")
	return slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(p, host+"/") })
}

// Narrow reports whether the scope may allow one URL of an origin and not another one.
func (s *Scope) Narrow() bool {
	return s.by == Prefix || len(s.include) > 0 || len(s.exclude) > 0
}
