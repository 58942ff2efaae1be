package main

import (
	"context"
	"errors"
	"fmt"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/progress"
	"fetchd/cmd/frontier/worker"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// crawlCmd is "frontier crawl".
type crawlCmd struct {
	workerFlags
	URL  []string   `arg:"" optional:"" help:"Where the crawl starts. Without a URL, it continues the crawl of the database."`
	Plan crawl.Plan `embed:""` // what the flags say
	Maps []string   `name:"sitemap" sep:"none" placeholder:"URL" group:"Discovery:" help:"Read this sitemap too. Repeatable."`
}

func (c *crawlCmd) run(ctx context.Context, a *app) int {
	err := c.checkCrawl()
	if err != nil {
		return a.end(ctx, err)
	}
	w, err := c.worker(a)
	if err == nil {
		err = c.work(ctx, a, w)
	}
	return a.end(ctx, err)
}

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
	_, err := crawl.NewScope(scope.Config{By: p.Scope, Include: p.Include, Exclude: p.Exclude})
	return err
}

// work opens the frontier, or creates it for URLs, and crawls.
func (c *crawlCmd) work(ctx context.Context, a *app, w *worker.Config) error {
	m := existing
	if len(c.URL) > 0 {
		m = creating
	}
	s, err := c.open(ctx, m, c.storeConfig())
	if err != nil {
		return err
	}
	return errors.Join(c.crawl(ctx, a, w, s), s.Close())
}

// crawl follows the plan of the database, changed by the flags.
func (c *crawlCmd) crawl(ctx context.Context, a *app, w *worker.Config, s *store.Store) error {
	c.Plan.Seeds = c.URL
	plan, note, err := crawl.Update(ctx, s, &c.Plan, a.given)
	w.Console.Printf("%s", note)
	if errors.Is(err, crawl.ErrNone) {
		err = cli.UsageError("URL", fmt.Sprintf("the database %s has no crawl to continue: give a URL where it starts", safe(c.DB)))
	}
	if err == nil {
		err = plan.Configure(&w.Config)
	}
	if err == nil {
		err = crawl.Put(ctx, s, c.URL, c.Maps)
	}
	if err == nil {
		err = c.reportDone(ctx, s, w.Console)
	}
	if err == nil {
		err = plan.Start(ctx, s)
	}
	if err != nil {
		return err
	}
	found, err := w.Run(ctx, s)
	line, err := plan.End(ctx, s, found, err)
	w.Console.Printf("%s", line)
	return err
}

// reportDone says of the first URLs of the command line why this run does not fetch them, if it does not.
func (c *crawlCmd) reportDone(ctx context.Context, s *store.Store, console *progress.Console) error {
	const most = 3
	fetched := false
	for _, u := range c.URL[:min(len(c.URL), most)] {
		e, err := evidence(ctx, s, c.UserAgent, u)
		if err != nil {
			return err
		}
		if e.URL.Status == store.Fetched || e.URL.Status == store.Dead {
			console.Printf("%s: %s\n", cli.Escape(u), why.ReasonOf(e).Text)
			fetched = fetched || e.URL.Status == store.Fetched
		}
	}
	if fetched {
		console.Printf("\"frontier retry --fetched-before 0s\" has pages fetched again\n")
	}
	return nil
}
