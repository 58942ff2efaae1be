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
	Seeds          []string      `kong:"-" json:"seeds"` // in their normal form
	Scope          scope.By      `name:"scope" placeholder:"host" complete:"host,domain,prefix,all" group:"Discovery:" json:"scope" help:"Follow links to the hosts of the URLs (host), to all hosts of their domains (domain), to URLs that start with one of them up to its last slash (prefix), or all. Default: host."`
	Include        []string      `name:"include" sep:"none" placeholder:"PATTERN" group:"Discovery:" json:"include,omitempty" help:"Follow only links that match this regular expression (RE2). Repeatable: one must match."`
	Exclude        []string      `name:"exclude" sep:"none" placeholder:"PATTERN" group:"Discovery:" json:"exclude,omitempty" help:"Follow no links that match this regular expression. Repeatable."`
	MaxDepth       *int          `name:"max-depth" placeholder:"N" group:"Discovery:" json:"max_depth,omitempty" help:"Maximum number of links from a start. Default: no limit."`
	FollowNoFollow bool          `name:"follow-nofollow" group:"Discovery:" json:"follow_nofollow,omitempty" help:"Follow links with rel=nofollow, and those of pages that ask crawlers not to follow them."`
	NoSitemaps     bool          `name:"no-sitemaps" group:"Discovery:" json:"no_sitemaps,omitempty" help:"Do not read the sitemaps that robots.txt names."`
	MaxLinks       int           `name:"max-links" placeholder:"10000" group:"Discovery:" json:"max_links,omitempty" help:"Maximum number of links of a page that are followed."`
	MaxURLs        int64         `name:"max-urls" placeholder:"N" group:"Budgets:" json:"max_urls,omitempty" help:"Maximum number of URLs in the database. Links to more are left out."`
	MaxHostURLs    int64         `name:"max-urls-per-host" placeholder:"N" group:"Budgets:" json:"max_urls_per_host,omitempty" help:"Maximum number of URLs of a host."`
	MaxBytes       int64         `name:"max-bytes" placeholder:"N" group:"Budgets:" json:"max_bytes,omitempty" help:"Stop after this many bytes of bodies, of all runs."`
	MaxHostBytes   int64         `name:"max-bytes-per-host" placeholder:"N" group:"Budgets:" json:"max_bytes_per_host,omitempty" help:"Give up a host after this many bytes of bodies."`
	MaxTime        time.Duration `name:"max-time" placeholder:"DURATION" group:"Budgets:" json:"max_time_ns,omitempty" help:"Stop this run after this time."`
	MaxHostTime    time.Duration `name:"max-time-per-host" placeholder:"DURATION" group:"Budgets:" json:"max_time_per_host_ns,omitempty" help:"Give up a host when its fetches took this long in all."`

	started bool // before this run
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
	p := &plan{Scope: scope.Host, started: text != ""}
	if text != "" {
		if err := json.Unmarshal([]byte(text), p); err != nil {
			return nil, fmt.Errorf("the crawl in the database is not readable: %w", err)
		}
	}
	left, err := readLeftOut(ctx, s)
	if err != nil {
		return nil, err
	}
	c.change(a, p, left)
	for _, u := range c.URL {
		if !slices.Contains(p.Seeds, u) {
			p.Seeds = append(p.Seeds, u)
		}
	}
	if len(p.Seeds) > maxSeeds || len(strings.Join(p.Seeds, "")) > maxSeedBytes {
		return nil, cli.UsageError("URL", fmt.Sprintf("a crawl starts at %d URLs of 1 MiB at most: add others with \"frontier add\", and use --scope", maxSeeds))
	}
	changed, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return p, s.SetSetting(ctx, planSetting, string(changed))
}

// change changes the plan by the flags that were given. It reports changes of a crawl that was started
// before.
func (c *crawlCmd) change(a *app, p *plan, left leftOut) {
	var changed []string
	from, to := reflect.ValueOf(c.Plan), reflect.ValueOf(p).Elem()
	for field := range from.Type().Fields() {
		flag := field.Tag.Get("name")
		if !slices.Contains(a.given, flag) {
			continue
		}
		was := to.FieldByIndex(field.Index)
		before, after := shown(was), shown(from.FieldByIndex(field.Index))
		was.Set(from.FieldByIndex(field.Index))
		if p.started && before != after {
			c.console.Printf("--%s of this crawl was %s and is now %s; runs that have started keep the old value\n", flag, before, after)
			changed = append(changed, flag)
		}
	}
	c.hint(changed, left)
}

// shown formats the value of a flag.
func shown(v reflect.Value) string {
	switch {
	case v.IsZero():
		return "not set"
	case v.Kind() == reflect.Slice:
		return fmt.Sprintf("%q", v.Interface())
	}
	return fmt.Sprint(reflect.Indirect(v).Interface())
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
