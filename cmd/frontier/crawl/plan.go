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
	"fetchd/frontier/normal"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

const (
	// setting is the name of the setting with the plan.
	setting = "crawl"
	// endedSetting says which budget has ended the last run.
	endedSetting = "crawl_ended"
	maxSeeds     = 1000
	maxSeedBytes = 1 << 20
)

// Plan is what all runs of a crawl have in common. Its JSON is in the database, so that a run without
// these flags continues the same crawl. Links are followed if there are seeds: a database to which URLs
// were only added has none.
type Plan struct {
	Seeds        []string      `kong:"-" json:"seeds"` // in their normal form
	Scope        scope.By      `name:"scope" placeholder:"host" complete:"host,domain,prefix,all" group:"Discovery:" json:"scope" help:"Follow links to the hosts of the URLs (host), to all hosts of their domains (domain), to URLs that start with one of them up to its last slash (prefix), or all. Default: host."`
	Include      []string      `name:"include" sep:"none" placeholder:"PATTERN" group:"Discovery:" json:"include,omitempty" help:"Follow only links that match this regular expression (RE2). Repeatable: one must match."`
	Exclude      []string      `name:"exclude" sep:"none" placeholder:"PATTERN" group:"Discovery:" json:"exclude,omitempty" help:"Follow no links that match this regular expression. Repeatable."`
	MaxDepth     *int          `name:"max-depth" placeholder:"N" group:"Discovery:" json:"max_depth,omitempty" help:"Maximum number of links from a start. Default: no limit."`
	MaxURLs      int64         `name:"max-urls" placeholder:"N" group:"Budgets:" json:"max_urls,omitempty" help:"Maximum number of URLs in the database. Links to more are left out."`
	MaxHostURLs  int64         `name:"max-urls-per-host" placeholder:"N" group:"Budgets:" json:"max_urls_per_host,omitempty" help:"Maximum number of URLs of a host."`
	MaxBytes     int64         `name:"max-bytes" placeholder:"N" group:"Budgets:" json:"max_bytes,omitempty" help:"Stop after this many bytes of bodies, of all runs."`
	MaxHostBytes int64         `name:"max-bytes-per-host" placeholder:"N" group:"Budgets:" json:"max_bytes_per_host,omitempty" help:"Give up a host after this many bytes of bodies."`
	MaxTime      time.Duration `name:"max-time" placeholder:"DURATION" group:"Budgets:" json:"max_time_ns,omitempty" help:"Stop this run after this time."`

	started bool // before this run, with seeds
}

// Update reads the plan of the database, or makes one. It changes the plan by the flags that were given,
// adds the seeds of the flags, and stores it. The note says what has changed, even after an error.
func Update(ctx context.Context, s store.Store, flags *Plan, given []string) (p *Plan, note string, err error) {
	p, err = read(ctx, s)
	if err != nil {
		return nil, "", err
	}
	p.started = len(p.Seeds) > 0
	left, err := readLeftOut(ctx, s)
	if err != nil {
		return nil, "", err
	}
	if err := checkLinks(given, p.started || len(flags.Seeds) > 0); err != nil {
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
	return p, note, s.SetSetting(ctx, setting, string(changed))
}

// read returns the plan of the database.
func read(ctx context.Context, s store.Store) (*Plan, error) {
	p := &Plan{Scope: scope.Host}
	text, err := s.Setting(ctx, setting)
	if err == nil && text != "" {
		if err := json.Unmarshal([]byte(text), p); err != nil {
			return nil, fmt.Errorf("the crawl in the database is not readable: %w", err)
		}
	}
	return p, err
}

// checkLinks returns an error for the first flag about links, unless they are followed.
func checkLinks(given []string, followed bool) error {
	about := []string{"scope", "include", "exclude", "max-depth", "max-urls", "max-urls-per-host"}
	if i := slices.IndexFunc(given, func(flag string) bool { return slices.Contains(about, flag) }); i >= 0 && !followed {
		return cli.UsageError("--"+given[i], "is about links, and those of URLs that were only added are not followed: give a URL where a crawl starts, or remove it")
	}
	return nil
}

// Started reports whether a crawl was started in the database, so that links are to be followed.
func Started(ctx context.Context, s store.Store) (bool, error) {
	p, err := read(ctx, s)
	return err == nil && len(p.Seeds) > 0, err
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
	case changes("scope", "include", "exclude", "max-depth"):
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
	if len(p.Seeds) > 0 {
		config.Discovery = &frontier.Discovery{Scope: s, MaxDepth: depth, Limits: store.Limits{URLs: p.MaxURLs, URLsPerHost: p.MaxHostURLs}}
	}
	config.Budget = frontier.Budget{Bytes: p.MaxBytes, Time: p.MaxTime, HostBytes: p.MaxHostBytes}
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

// Put adds the URLs where a run starts. They are wanted, whatever the budgets.
func Put(ctx context.Context, s store.Store, urls []string) error {
	if len(urls) == 0 {
		return nil
	}
	_, err := s.Put(ctx, store.Entries(urls...), store.Limits{})
	return err
}

// Start starts a run. Before the first one of the crawl, it forgets what the robots.txt files of the seeds said.
func (p *Plan) Start(ctx context.Context, s store.Store) error {
	if !p.started {
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
func (p *Plan) End(ctx context.Context, s store.Store, found frontier.Found, err error) (line string, _ error) {
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
func Budgets(ctx context.Context, s store.Store) (string, error) {
	ended, err := s.Setting(ctx, endedSetting)
	if err != nil {
		return "", err
	}
	left, err := readLeftOut(ctx, s)
	return left.String() + ended, err
}
