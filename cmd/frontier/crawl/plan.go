// Package crawl keeps what all runs of a crawl share, in the settings of its database: the plan that they
// follow, which budget has ended the last one, and what the budgets have left out.
package crawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/links"
	"fetchd/frontier/normal"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

const (
	// Setting is the name of the setting with the plan. A database without it has no crawl.
	Setting = "crawl"
	// endedSetting says which budget has ended the last run.
	endedSetting = "crawl_ended"
	maxSeeds     = 1000
	maxSeedBytes = 1 << 20
)

// ErrNone is returned if a database has no crawl to continue.
var ErrNone = errors.New("no crawl to continue")

// Plan is what all runs of a crawl have in common. Its JSON is in the database, so that a run without
// these flags continues the same crawl.
type Plan struct {
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

// Update reads the plan of the database, or begins one. It changes the plan by the flags that were given,
// adds the seeds of the flags, and stores it. The note says what has changed, even after an error.
func Update(ctx context.Context, s *store.Store, flags *Plan, given []string) (p *Plan, note string, err error) {
	text, err := s.Setting(ctx, Setting)
	if err != nil {
		return nil, "", err
	}
	if text == "" && len(flags.Seeds) == 0 {
		return nil, "", ErrNone
	}
	p = &Plan{Scope: scope.Host, started: text != ""}
	if p.started {
		if err := json.Unmarshal([]byte(text), p); err != nil {
			return nil, "", fmt.Errorf("the crawl in the database is not readable: %w", err)
		}
	}
	left, err := readLeftOut(ctx, s)
	if err != nil {
		return nil, "", err
	}
	note = p.change(flags, given, left)
	for _, u := range flags.Seeds {
		if !slices.Contains(p.Seeds, u) {
			p.Seeds = append(p.Seeds, u)
		}
	}
	if len(p.Seeds) > maxSeeds || len(strings.Join(p.Seeds, "")) > maxSeedBytes {
		return nil, note, cli.UsageError("URL", fmt.Sprintf("a crawl starts at %d URLs of 1 MiB at most: add others with \"frontier add\", and use --scope", maxSeeds))
	}
	changed, err := json.Marshal(p)
	if err != nil {
		return nil, note, err
	}
	return p, note, s.SetSetting(ctx, Setting, string(changed))
}

// change changes the plan by the flags that were given. It returns what has changed of a crawl that was
// started before.
func (p *Plan) change(flags *Plan, given []string, left leftOut) (note string) {
	var changed []string
	from, to := reflect.ValueOf(flags).Elem(), reflect.ValueOf(p).Elem()
	for field := range from.Type().Fields() {
		flag := field.Tag.Get("name")
		if !slices.Contains(given, flag) {
			continue
		}
		was := to.FieldByIndex(field.Index)
		before, after := shown(was), shown(from.FieldByIndex(field.Index))
		was.Set(from.FieldByIndex(field.Index))
		if p.started && before != after {
			note += fmt.Sprintf("--%s of this crawl was %s and is now %s; runs that have started keep the old value\n", flag, before, after)
			changed = append(changed, flag)
		}
	}
	return note + hint(changed, left)
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
func hint(changed []string, left leftOut) string {
	changes := func(flags ...string) bool {
		return slices.ContainsFunc(changed, func(f string) bool { return slices.Contains(flags, f) })
	}
	crawl := "frontier crawl"
	switch {
	case changes("scope", "include", "exclude", "max-depth", "follow-nofollow", "max-links"):
		crawl += " --full" // the pages may not have changed
	case !changes("max-urls", "max-urls-per-host"):
		return ""
	}
	return fmt.Sprintf("%vPages that were fetched before are not searched again. To find the links that were left out, run \"frontier retry --fetched-before 0s\", then %q.\n",
		leftOut{urls: left.urls, hostURLs: left.hostURLs}, crawl)
}

// Configure sets what a worker needs for the crawl.
func (p *Plan) Configure(config *frontier.Config) error {
	s, err := NewScope(scope.Config{By: p.Scope, Places: scope.Places(p.Scope, p.Seeds), Include: p.Include, Exclude: p.Exclude})
	if err != nil {
		return err
	}
	depth := -1
	if p.MaxDepth != nil {
		depth = *p.MaxDepth
	}
	config.Discovery = &frontier.Discovery{Scope: s, MaxDepth: depth, FollowNoFollow: p.FollowNoFollow, NoSitemaps: p.NoSitemaps,
		Links: links.Limits{Links: p.MaxLinks}, Limits: store.Limits{URLs: p.MaxURLs, URLsPerHost: p.MaxHostURLs}}
	config.Budget = frontier.Budget{Bytes: p.MaxBytes, Time: p.MaxTime, HostBytes: p.MaxHostBytes, HostTime: p.MaxHostTime}
	return nil
}

// NewScope returns a scope, or an error about the flag that is not valid.
func NewScope(c scope.Config) (*scope.Scope, error) {
	for _, one := range []struct {
		flag   string
		config scope.Config
	}{
		{"--scope", scope.Config{By: c.By}},
		{"--include", scope.Config{Include: c.Include}},
		{"--exclude", scope.Config{Exclude: c.Exclude}},
	} {
		if _, err := scope.New(one.config); err != nil {
			return nil, cli.UsageError(one.flag, fmt.Sprint(err))
		}
	}
	return scope.New(c)
}

// Put adds the URLs and the sitemaps where a run starts. They are wanted, whatever the budgets.
func Put(ctx context.Context, s *store.Store, urls, sitemaps []string) error {
	entries := store.Entries(urls...)
	for _, u := range sitemaps {
		entries = append(entries, store.Entry{URL: u, Kind: store.Sitemap})
	}
	if len(entries) == 0 {
		return nil
	}
	_, err := s.Put(ctx, entries, store.Limits{})
	return err
}

// Start starts a run. Before the first one of the crawl, it forgets what the robots.txt files of the seeds said.
func (p *Plan) Start(ctx context.Context, s *store.Store) error {
	if !p.started && !p.NoSitemaps {
		// A robots.txt that was read before the crawl may name sitemaps.
		for _, u := range p.Seeds {
			host, err := normal.ExtractHost(u)
			if err != nil {
				return err
			}
			if _, err := s.RefreshRobots(ctx, Origins(host)); err != nil {
				return err
			}
		}
	}
	return s.SetSetting(ctx, endedSetting, "")
}

// Origins returns the origins of a host, each of which may have a robots.txt.
func Origins(host string) []string { return []string{"https://" + host, "http://" + host} }

// End stores what a run has left out, and which budget has ended it, if err says so. That is not an error:
// line says it.
func (p *Plan) End(ctx context.Context, s *store.Store, found frontier.Found, err error) (line string, _ error) {
	ctx = context.WithoutCancel(ctx)
	adding := leftOutOf(&found).add(ctx, s)
	if errors.Is(err, frontier.ErrBudget) {
		line = fmt.Sprintf("The run has ended: %v. The URLs that are left stay pending: \"frontier crawl\" continues%s.\n", err, p.remedy())
		err = s.SetSetting(ctx, endedSetting, line)
	}
	return line, errors.Join(err, adding)
}

// remedy returns what the next run needs. --max-time is for one run, and --max-bytes for all.
func (p *Plan) remedy() string {
	switch {
	case p.MaxBytes == 0:
		return fmt.Sprintf(" for as long again, or for longer with a larger --max-time than %v", p.MaxTime)
	case p.MaxTime == 0:
		return fmt.Sprintf(" with a larger --max-bytes than %d", p.MaxBytes)
	}
	return fmt.Sprintf(" for as long again, and with a larger --max-bytes than %d if that is used up", p.MaxBytes)
}

// Budgets says in lines what the budgets have left out, and which one has ended the last run.
func Budgets(ctx context.Context, s *store.Store) (string, error) {
	ended, err := s.Setting(ctx, endedSetting)
	if err != nil {
		return "", err
	}
	left, err := readLeftOut(ctx, s)
	return left.String() + ended, err
}
