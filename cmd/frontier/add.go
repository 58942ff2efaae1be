package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/feed"
	"fetchd/cmd/frontier/progress"
	"fetchd/frontier/normal"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// addCmd is "frontier add".
type addCmd struct {
	database
	URL     []string `arg:"" optional:"" help:"URLs to add."`
	Input   []string `short:"i" sep:"none" placeholder:"FILE" help:"Add the URLs in FILE, one per line; \"-\" is standard input. Repeatable."`
	Sitemap []string `sep:"none" placeholder:"FILE|URL" help:"Add the URLs of a sitemap, XML or text; \"-\" is standard input. A worker reads the sitemap at a URL. Repeatable."`
	Verbose bool     `short:"v" help:"Report every bad line, not only the first 100."`

	Priority int      `placeholder:"N" help:"Priority within the host, -100 to 100. URLs of higher priority are fetched first. Default: 0."`
	Scope    string   `placeholder:"all" complete:"host,domain,prefix,all" help:"Only URLs of the hosts of the URLs and sitemaps that you name (host), of all hosts of their domains (domain), URLs that start with one of them up to its last slash (prefix), or all. A file names nothing. Default: all."`
	Include  []string `sep:"none" placeholder:"PATTERN" help:"Only URLs that match this regular expression (RE2). Repeatable: one must match."`
	Exclude  []string `sep:"none" placeholder:"PATTERN" help:"No URLs that match this regular expression. Repeatable."`
	URLs     int64    `name:"max-urls" placeholder:"N" help:"Maximum number of URLs in the database. More are left out."`
	HostURLs int64    `name:"max-urls-per-host" placeholder:"N" help:"Maximum number of URLs of a host."`
}

func (c *addCmd) run(ctx context.Context, a *app) int {
	sources, err := feed.Sources(c.URL, c.Input, c.Sitemap, a.In)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return a.end(ctx, err)
	}
	wanted, metadata, err := c.narrow()
	if err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, creating, func(s store.Store) error {
		f := &feed.Feed{Line: progress.NewLine(a.Err), Store: s, Clean: safe, Verbose: c.Verbose, Priority: c.Priority, Scope: wanted, Metadata: metadata,
			Limits: store.Limits{URLs: c.URLs, URLsPerHost: c.HostURLs}}
		err := f.Add(ctx, sources)
		switch {
		case ctx.Err() != nil:
			a.Errorf("interrupted: %s", f.Done())
			a.Hintf("What was added stays. Run the same command again to continue: URLs that exist already do not change.")
			return cli.PrintedError(cli.ExitInterrupted, "interrupted")
		case err != nil:
			return fmt.Errorf("%s: %w", f.Done(), err)
		}
		out := &cli.Printer{W: a.Out}
		out.Printf("%s\n", f.Sum())
		if err := out.End(); err != nil || f.Bad == 0 {
			return err
		}
		return cli.PrintedError(cli.ExitBadInput, "some input was bad")
	})
}

// check returns an error for the first number that is not usable.
func (c *addCmd) check() error {
	if c.Priority < -store.MaxPriority || c.Priority > store.MaxPriority {
		return cli.UsageError("--priority", fmt.Sprintf("is %d: use -%d to %d", c.Priority, store.MaxPriority, store.MaxPriority))
	}
	for _, limit := range []struct {
		flag string
		n    int64
	}{{"--max-urls", c.URLs}, {"--max-urls-per-host", c.HostURLs}} {
		if limit.n < 0 {
			return cli.UsageError(limit.flag, fmt.Sprintf("is %d: use 1 or more, or 0 for no limit", limit.n))
		}
	}
	return nil
}

// narrow returns the scope of what is added, or nil if it is everything. It also returns the metadata of
// sitemaps, so that scope and limits apply to what workers find in them.
func (c *addCmd) narrow() (*scope.Scope, string, error) {
	by := scope.By(cmp.Or(c.Scope, string(scope.All)))
	rules := scope.Rules{Scope: by, Places: scope.Places(by, c.named()), Include: c.Include, Exclude: c.Exclude, MaxURLs: c.URLs, MaxHostURLs: c.HostURLs}
	wanted, err := crawl.NewScope(scope.Config{By: by, Places: rules.Places, Include: c.Include, Exclude: c.Exclude})
	switch {
	case err != nil:
		return nil, "", err
	case by != scope.All && len(rules.Places) == 0:
		return nil, "", cli.UsageError("--scope", fmt.Sprintf("%s is relative to URLs: give one, or --sitemap with a URL", by))
	case by == scope.All && !wanted.Narrow():
		wanted = nil
	}
	if len(c.Sitemap) == 0 || wanted == nil && c.URLs == 0 && c.HostURLs == 0 {
		return wanted, "", nil
	}
	metadata, err := rules.Metadata()
	if err == nil && len(metadata) > store.MaxMetadata {
		err = cli.UsageError("--sitemap", fmt.Sprintf("the patterns and the hosts of --scope have %d bytes, and a sitemap has %d for them: give fewer", len(metadata), store.MaxMetadata))
	}
	return wanted, metadata, err
}

// named returns the URLs on the command line in their normal form.
func (c *addCmd) named() []string {
	var all []string
	for _, raw := range slices.Concat(c.URL, c.Sitemap) {
		if u, err := normal.NormalizeURL(raw); err == nil { // a file has none, and others are reported later
			all = append(all, u)
		}
	}
	return all
}
