package main

import (
	"context"
	"errors"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/progress"
	"fetchd/cmd/frontier/worker"
	"fetchd/frontier"
	"fetchd/frontier/scope"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// crawlCmd is "frontier crawl".
type crawlCmd struct {
	URL  []string   `arg:"" optional:"" help:"Where the crawl starts. Without a URL, it continues what the database has."`
	Plan crawl.Plan `embed:""` // what the flags say
	workerFlags
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

// checkCrawl checks the flags of the plan, and brings the URLs into their normal form.
func (c *crawlCmd) checkCrawl() error {
	p, depth := &c.Plan, 0
	if p.MaxDepth != nil {
		depth = *p.MaxDepth
	}
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"--max-depth", int64(depth)}, {"--max-urls", p.MaxURLs}, {"--max-urls-per-host", p.MaxHostURLs},
		{"--max-bytes", p.MaxBytes}, {"--max-bytes-per-host", p.MaxHostBytes}, {"--max-time", int64(p.MaxTime)},
	} {
		if n.value < 0 {
			return cli.UsageError(n.flag, "is negative: give 0 or more, or leave it out for its default")
		}
	}
	for i, raw := range c.URL {
		u, err := normalURL("URL", raw)
		if err != nil {
			return err
		}
		c.URL[i] = u
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
	for {
		err = c.crawl(ctx, a, *w, s)
		if !errors.Is(err, frontier.ErrOutdated) {
			return errors.Join(err, s.Close())
		}
		w.Console.Printf("A crawl was started in this database: links are followed from now on.\n")
	}
}

// crawl follows the plan of the database, changed by the flags.
func (c *crawlCmd) crawl(ctx context.Context, a *app, w worker.Config, s store.Store) error {
	c.Plan.Seeds = c.URL
	plan, note, err := crawl.Update(ctx, s, &c.Plan, a.given)
	w.Console.Printf("%s", note)
	if err == nil {
		err = plan.Configure(&w.Config)
	}
	if err == nil {
		err = crawl.Put(ctx, s, c.URL)
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
	if w.Discovery == nil { // another command may start a crawl, whose pages must not be fetched without their links
		w.Outdated = func(ctx context.Context) (bool, error) { return crawl.Started(ctx, s) }
	}
	found, err := w.Run(ctx, s)
	line, err := plan.End(ctx, s, found, err)
	w.Console.Printf("%s", line)
	return err
}

// reportDone says of the first URLs of the command line why this run does not fetch them, if it does not.
func (c *crawlCmd) reportDone(ctx context.Context, s store.Store, console *progress.Console) error {
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
