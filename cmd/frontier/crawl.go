package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

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
	if err := cli.UsageErrors(func(yield func(error) bool) {
		for i, raw := range c.URL {
			u, err := normalURL("URL", raw)
			c.URL[i] = u
			yield(err)
		}
	}); err != nil {
		return err
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
	if err := keepDelay(ctx, s, c.Delay); err != nil {
		return errors.Join(err, s.Close())
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

// keepDelay stores the delay of a crawl or a service, for "frontier why".
func keepDelay(ctx context.Context, s store.Store, delay time.Duration) error {
	return s.SetSetting(ctx, store.DelaySetting, strconv.FormatInt(delay.Milliseconds(), 10))
}

// reportDone says that the crawl is paused, and of the first URLs of the command line why this run does not fetch them.
func (c *crawlCmd) reportDone(ctx context.Context, s store.Store, console *progress.Console) error {
	const most = 3
	if n, err := s.Counts(ctx); err != nil {
		return err
	} else if n.Paused {
		console.Printf("The crawl is paused: no URL is fetched until \"frontier resume\".\n")
	}
	fetched := false
	for _, u := range c.URL[:min(len(c.URL), most)] {
		e, err := why.Ask(ctx, s, c.UserAgent, u)
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

// recrawl is the flag that has URLs fetched again.
type recrawl struct {
	Rules []string `name:"recrawl" sep:"none" placeholder:"[NAME=]DURATION" group:"Fetches:" help:"Fetch each URL again after about this time, such as 7d or 12h, and run on when no URL is left. NAME= gives some URLs another time: those of a host (news.example.org=6h), of all hosts below a domain (*.example.org=1d), or those that match a regular expression with a slash (/archive/=8w); 0s means never. Repeatable: the first name that matches counts. Default: never."`
}

// config returns what the flag says.
func (c *recrawl) config() (r frontier.Recrawl, _ error) {
	for _, text := range c.Rules {
		name, every, err := recrawlRule(text)
		if err != nil {
			return r, err
		}
		switch {
		case name == "" && r.Every > 0:
			return r, cli.UsageError(recrawlFlag, fmt.Sprintf("%.80q is a second time for all URLs: give one, and others with a name, such as example.org=7d", text))
		case name == "":
			r.Every = every
			continue
		}
		rule, err := ruleOf(name)
		if err != nil {
			return r, err
		}
		rule.Every = every
		r.Rules = append(r.Rules, rule)
	}
	if len(r.Rules) > frontier.MaxRecrawlRules {
		return r, cli.UsageError(recrawlFlag, fmt.Sprintf("there are %d names: give at most %d", len(r.Rules), frontier.MaxRecrawlRules))
	}
	return r, nil
}

const (
	recrawlFlag = "--recrawl"
	// minRecrawl is the minimum of all times but 0, which means never.
	minRecrawl = time.Second
)

// ruleOf returns the rule of a name: a pattern if it has a slash, which a host has not.
func ruleOf(name string) (frontier.RecrawlRule, error) {
	if strings.Contains(name, "/") {
		if _, err := scope.New(scope.Config{Include: []string{name}}); err != nil {
			return frontier.RecrawlRule{}, cli.UsageError(recrawlFlag, fmt.Sprint(err))
		}
		return frontier.RecrawlRule{Pattern: regexp.MustCompile(name)}, nil
	}
	name, below := strings.CutPrefix(name, "*.")
	host, err := hostKey(name)
	if err != nil {
		return frontier.RecrawlRule{}, cli.UsageError(recrawlFlag, fmt.Sprintf("%.80q is neither a host such as example.org or *.example.org, nor a pattern, which has a slash", name))
	}
	if below {
		host = "*." + host
	}
	return frontier.RecrawlRule{Host: host}, nil
}

// recrawlRule splits "DURATION" and "NAME=DURATION".
func recrawlRule(text string) (name string, every time.Duration, err error) {
	at := strings.LastIndexByte(text, '=')
	every, err = cli.ParseDuration(text[at+1:])
	if err != nil || every < 0 || every > 0 && every < minRecrawl {
		return "", 0, cli.UsageError(recrawlFlag, fmt.Sprintf("%.40q is not a duration such as 7d or 12h, of at least %v, or 0s", text[at+1:], minRecrawl))
	}
	if at == 0 {
		return "", 0, cli.UsageError(recrawlFlag, fmt.Sprintf("%.80q has no name: give one such as example.org=7d", text))
	}
	return text[:max(at, 0)], every, nil
}
