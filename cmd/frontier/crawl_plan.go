package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// planSetting is the setting with the plan of a crawl.
const planSetting = "crawl"

// plan is what all runs of a crawl have in common. Its JSON is in the database, so that a run without
// these flags continues the same crawl.
type plan struct {
	Seeds          []string `json:"seeds"` // in their normal form
	Scope          string   `json:"scope"`
	Include        []string `json:"include,omitempty"`
	Exclude        []string `json:"exclude,omitempty"`
	MaxDepth       *int     `json:"max_depth,omitempty"` // nil means no limit
	FollowNoFollow bool     `json:"follow_nofollow,omitempty"`
	NoSitemaps     bool     `json:"no_sitemaps,omitempty"`
	MaxLinks       int      `json:"max_links,omitempty"`
	MaxURLs        int64    `json:"max_urls,omitempty"`
	MaxHostURLs    int64    `json:"max_urls_per_host,omitempty"`
	MaxBytes       int64    `json:"max_bytes,omitempty"`
	MaxHostBytes   int64    `json:"max_bytes_per_host,omitempty"`
	MaxTime        span     `json:"max_time,omitempty"`
	MaxHostTime    span     `json:"max_time_per_host,omitempty"`

	started bool // before this run
}

// span is a duration whose JSON is text such as "1h0m0s".
type span time.Duration

// MarshalText implements encoding.TextMarshaler.
func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = span(d)
	return err
}

func (p *plan) depth() int {
	if p.MaxDepth == nil {
		return -1
	}
	return *p.MaxDepth
}

func (p *plan) limits() store.Limits {
	return store.Limits{URLs: p.MaxURLs, URLsPerHost: p.MaxHostURLs}
}

// plan reads the plan of the crawl, changes it by the flags that were given, and stores it.
func (c *crawlCmd) plan(ctx context.Context, a *app, s store.Store) (*plan, error) {
	text, err := s.Setting(ctx, planSetting)
	if err != nil {
		return nil, err
	}
	if text == "" && len(c.URL) == 0 {
		return nil, cli.UsageError("URL", fmt.Sprintf("the database %s has no crawl to continue: give a URL where it starts", safe(c.DB)))
	}
	p := &plan{Scope: string(scope.Host), started: text != ""}
	if text != "" {
		if err := json.Unmarshal([]byte(text), p); err != nil {
			return nil, fmt.Errorf("the crawl in the database is not readable: %w", err)
		}
	}
	left, err := readLeftOut(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := c.change(a, p, left); err != nil {
		return nil, err
	}
	changed, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return p, s.SetSetting(ctx, planSetting, string(changed))
}

// shown formats the JSON of a value.
func shown(value []byte) string {
	if s := string(value); s != "null" && s != `""` && s != "0" && s != `"0s"` {
		return strings.Trim(s, `"`)
	}
	return "not set"
}

// change changes the plan by the flags that were given. It reports changes of a crawl that was started
// before.
func (c *crawlCmd) change(a *app, p *plan, left leftOut) error {
	var changed []string
	for _, f := range []struct {
		flag  string
		to    any // a pointer to a field of p
		value any
	}{
		{"scope", &p.Scope, c.Scope},
		{"include", &p.Include, c.Include},
		{"exclude", &p.Exclude, c.Exclude},
		{"max-depth", &p.MaxDepth, &c.MaxDepth},
		{"follow-nofollow", &p.FollowNoFollow, c.NoFollow},
		{"no-sitemaps", &p.NoSitemaps, c.NoMaps},
		{"max-links", &p.MaxLinks, c.MaxLinks},
		{"max-urls", &p.MaxURLs, c.URLs},
		{"max-urls-per-host", &p.MaxHostURLs, c.HostURLs},
		{"max-bytes", &p.MaxBytes, c.Bytes},
		{"max-bytes-per-host", &p.MaxHostBytes, c.HostBytes},
		{"max-time", &p.MaxTime, span(c.Time)},
		{"max-time-per-host", &p.MaxHostTime, span(c.HostTime)},
	} {
		if !slices.Contains(a.given, f.flag) {
			continue
		}
		before, err := json.Marshal(f.to)
		if err != nil {
			return err
		}
		reflect.ValueOf(f.to).Elem().Set(reflect.ValueOf(f.value))
		after, err := json.Marshal(f.to)
		if err != nil {
			return err
		}
		if p.started && string(before) != string(after) {
			c.console.Printf("--%s of this crawl was %s and is now %s; runs that have started keep the old value\n", f.flag, shown(before), shown(after))
			changed = append(changed, f.flag)
		}
	}
	c.hint(changed, left)
	for _, u := range c.URL {
		if !slices.Contains(p.Seeds, u) {
			p.Seeds = append(p.Seeds, u)
		}
	}
	if len(p.Seeds) > maxSeeds || len(strings.Join(p.Seeds, "")) > maxSeedBytes {
		return cli.UsageError("URL", fmt.Sprintf("a crawl starts at %d URLs of 1 MiB at most: add others with \"frontier add\", and use --scope", maxSeeds))
	}
	return nil
}

// hint says how a changed crawl finds the links that were left out before.
func (c *crawlCmd) hint(changed []string, left leftOut) {
	changes := func(flags ...string) bool {
		return slices.ContainsFunc(changed, func(f string) bool { return slices.Contains(flags, f) })
	}
	crawl := "frontier crawl"
	switch {
	case changes("scope", "include", "exclude", "max-depth", "follow-nofollow", "max-links"):
		crawl += " --full" // the pages may not have changed
	case !changes("max-urls", "max-urls-per-host"):
		return
	}
	c.console.Printf("%sPages that were fetched before are not searched again. To find the links that were left out, run \"frontier retry --fetched-before 0s\", then %q.\n",
		leftOut{urls: left.urls, hostURLs: left.hostURLs}.text(), crawl)
}
