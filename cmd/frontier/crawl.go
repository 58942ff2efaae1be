package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"fetchd/frontier"
	"fetchd/frontier/links"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// crawlCmd is "frontier crawl".
type crawlCmd struct {
	runCmd
	URL  []string `arg:"" optional:"" help:"Where the crawl starts. Without a URL, it continues the crawl of the database."`
	Plan plan     `embed:""` // what the flags say
	Maps []string `name:"sitemap" sep:"none" placeholder:"URL" group:"Discovery:" help:"Read this sitemap too. Repeatable."`
}

func (c *crawlCmd) run(ctx context.Context, a *app) int {
	err := c.checkCrawl()
	if err == nil {
		err = c.prepare(a)
	}
	if err == nil {
		err = c.work(ctx, a)
	}
	return a.end(ctx, err)
}

const (
	maxSeeds     = 1000
	maxSeedBytes = 1 << 20
)

// checkCrawl checks the flags that "frontier run" does not have, and brings the URLs into their normal
// form.
func (c *crawlCmd) checkCrawl() error {
	p := &c.Plan
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"--max-depth", int64(valueOr(p.MaxDepth, 0))}, {"--max-links", int64(p.MaxLinks)}, {"--max-urls", p.MaxURLs}, {"--max-urls-per-host", p.MaxHostURLs},
		{"--max-bytes", p.MaxBytes}, {"--max-bytes-per-host", p.MaxHostBytes}, {"--max-time", int64(p.MaxTime)}, {"--max-time-per-host", int64(p.MaxHostTime)},
	} {
		if n.value < 0 {
			return cli.UsageError(n.flag, "is negative: give 0 or more, or leave it out for its default")
		}
	}
	for _, list := range []struct {
		flag string
		urls []string
	}{{"URL", c.URL}, {"--sitemap", c.Maps}} {
		for i, raw := range list.urls {
			u, err := normalURL(list.flag, raw)
			if err != nil {
				return err
			}
			list.urls[i] = u
		}
	}
	_, err := newScope(scope.Config{By: p.Scope, Include: p.Include, Exclude: p.Exclude})
	return err
}

// work opens the frontier, or creates it for URLs, and crawls.
func (c *crawlCmd) work(ctx context.Context, a *app) error {
	config, err := c.config(a)
	if err != nil {
		return err
	}
	m := existing
	if len(c.URL) > 0 {
		m = creating
	}
	s, err := c.open(ctx, m, c.storeConfig())
	if err != nil {
		return err
	}
	plan, err := c.plan(ctx, a, s)
	if err == nil {
		err = plan.configure(&config)
	}
	if err == nil {
		err = c.start(ctx, s, plan)
	}
	if err == nil {
		err = c.ended(ctx, s, plan, c.workOn(ctx, a, s, config))
	}
	return errors.Join(err, s.Close())
}

// start adds where the crawl starts.
func (c *crawlCmd) start(ctx context.Context, s store.Store, p *plan) error {
	entries := store.Entries(c.URL...)
	for _, u := range c.Maps {
		entries = append(entries, store.Entry{URL: u, Kind: store.Sitemap})
	}
	if len(entries) > 0 {
		if _, err := s.Put(ctx, entries, store.Limits{}); err != nil { // they are wanted, whatever the budgets
			return err
		}
	}
	if err := c.reportDone(ctx, s); err != nil {
		return err
	}
	if !p.started && !p.NoSitemaps {
		// A robots.txt that was read before the crawl may name sitemaps.
		for _, u := range p.Seeds {
			host, err := hostKey(u)
			if err != nil {
				return err
			}
			if _, err := s.RefreshRobots(ctx, originsOf(host)); err != nil {
				return err
			}
		}
	}
	return s.SetSetting(ctx, endedSetting, "")
}

// reportDone says of the first URLs of the command line why this run does not fetch them, if it does not.
func (c *crawlCmd) reportDone(ctx context.Context, s store.Store) error {
	const most = 3
	fetched := false
	for _, u := range c.URL[:min(len(c.URL), most)] {
		e, err := evidence(ctx, s, c.UserAgent, u)
		if err != nil {
			return err
		}
		if e.URL.Status == store.Fetched || e.URL.Status == store.Dead {
			c.console.Printf("%s: %s\n", cli.Escape(u), why.ReasonOf(e).Text)
			fetched = fetched || e.URL.Status == store.Fetched
		}
	}
	if fetched {
		c.console.Printf("\"frontier retry --fetched-before 0s\" has pages fetched again\n")
	}
	return nil
}

// endedSetting says which budget has ended the last run.
const endedSetting = "crawl_ended"

// ended reports which budget has ended a run, and stores it for "frontier status", with the sums of what
// the other budgets have left out.
func (c *crawlCmd) ended(ctx context.Context, s store.Store, p *plan, err error) error {
	ctx = context.WithoutCancel(ctx)
	var adding error
	if c.found != nil {
		adding = addLeftOut(ctx, s, c.found())
	}
	if errors.Is(err, frontier.ErrBudget) {
		line := fmt.Sprintf("The run has ended: %v. The URLs that are left stay pending: \"frontier crawl\" continues%s.\n", err, p.remedy())
		c.console.Printf("%s", line)
		err = s.SetSetting(ctx, endedSetting, line)
	}
	return errors.Join(err, adding)
}

// remedy returns what the next run needs. --max-time is for one run, and --max-bytes for all.
func (p *plan) remedy() string {
	switch {
	case p.MaxBytes == 0:
		return fmt.Sprintf(" for as long again, or for longer with a larger --max-time than %v", p.MaxTime)
	case p.MaxTime == 0:
		return fmt.Sprintf(" with a larger --max-bytes than %d", p.MaxBytes)
	}
	return fmt.Sprintf(" for as long again, and with a larger --max-bytes than %d if that is used up", p.MaxBytes)
}

// configure sets what a worker needs for the crawl.
func (p *plan) configure(config *frontier.Config) error {
	s, err := newScope(scope.Config{By: p.Scope, Places: scope.Places(p.Scope, p.Seeds), Include: p.Include, Exclude: p.Exclude})
	if err != nil {
		return err
	}
	config.Discovery = &frontier.Discovery{Scope: s, MaxDepth: valueOr(p.MaxDepth, -1), FollowNoFollow: p.FollowNoFollow, NoSitemaps: p.NoSitemaps,
		Links: links.Limits{Links: p.MaxLinks}, Limits: store.Limits{URLs: p.MaxURLs, URLsPerHost: p.MaxHostURLs}}
	config.Budget = frontier.Budget{Bytes: p.MaxBytes, Time: p.MaxTime, HostBytes: p.MaxHostBytes, HostTime: p.MaxHostTime}
	return nil
}

// foundText describes what discovery has found, in lines for the end of a run.
func foundText(f frontier.Found, bytes int64) string {
	var b strings.Builder
	list := func(n int64, name string) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf(", %d %s", n, name)
	}
	fmt.Fprintf(&b, "%s found, %d added%s%s%s%s; %d bytes of bodies\n", cli.Count(f.Links, "link"), f.Added, list(f.OutOfScope, "out of scope"),
		list(f.NoFollow, "not to be followed"), list(f.TooLong, "not valid in a sitemap, or too long"), list(f.TooDeep, "too deep"), bytes)
	b.WriteString(leftOut{f.Over, f.OverHost, f.OverBudget}.text())
	writeLimits(&b, []limit{
		{"--max-links", f.Cut[links.CutLinks], "page"},
		{"1 MiB of links", f.Cut[links.CutLinkBytes], "page"},
		{"128 Mi of work for a page", f.Cut[links.CutWork], "page"},
		{"16 MiB of a page", f.Cut[links.CutBytes], "page"},
		{"2 MiB of a tag or text", f.Cut[links.CutToken], "page"},
	})
	return b.String()
}

// limit is a limit that left out links or URLs, or links of pages.
type limit struct {
	name string
	n    int64
	unit string
}

func writeLimits(b *strings.Builder, limits []limit) {
	for _, l := range limits {
		switch {
		case l.n == 0:
		case l.unit == "page":
			fmt.Fprintf(b, "%s: left out links of %s\n", l.name, cli.Count(l.n, l.unit))
		default:
			fmt.Fprintf(b, "%s: left out %s\n", l.name, cli.Count(l.n, l.unit))
		}
	}
}
