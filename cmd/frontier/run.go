package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/heap"
)

// runCmd is "frontier run".
type runCmd struct {
	database
	services
	Demo bool `help:"Crawl a built-in origin of 300 hosts on loopback, in a database of its own that is thrown away, and check what came of it."`

	Open       int           `default:"256" group:"Pace:" help:"Fetches under way at most."`
	Delay      time.Duration `default:"1s" group:"Pace:" help:"From the end of a host's fetch to its next start, where \"frontier set\" or robots.txt say nothing longer."`
	NoRobots   bool          `name:"ignore-robots" group:"Pace:" help:"Leave robots.txt alone. For hosts of your own."`
	CrawlDelay time.Duration `name:"max-crawl-delay" default:"1m" group:"Pace:" help:"Longest Crawl-delay of a robots.txt that is obeyed; a longer one counts as this."`
	Patience   time.Duration `name:"robots-patience" default:"1h" group:"Pace:" help:"How long the URLs of a host wait for a robots.txt that is out of reach, before they are given up."`
	UserAgent  string        `default:"${agent}" group:"Fetches:" help:"How the crawler calls itself to origins; robots.txt is read by the letters, _ and - that it begins with. Say how you can be reached."`
	Accept     []string      `default:"text/html,application/xhtml+xml" placeholder:"TYPE" group:"Fetches:" help:"Media types wanted; others are dead as content_type, and an empty body as empty_body. \"any\" takes all, the empty body too."`
	MaxBody    int64         `name:"max-body-bytes" default:"1048576" group:"Fetches:" help:"Longest body, at most 1 MiB; a longer one is dead as body_too_large."`
	Truncate   bool          `name:"truncate-bodies" group:"Fetches:" help:"Cut longer bodies instead."`
	Attempts   int           `name:"max-attempts" default:"3" group:"Fetches:" help:"Requests in one fetch, 1 to 11."`
	Timeout    time.Duration `name:"total-timeout" default:"1m" group:"Fetches:" help:"Longest fetch, its retries included."`

	Follow    *bool         `name:"follow-redirects" negatable:"" group:"Redirects:" help:"Follow redirects ($$CRAWLER_FOLLOW_REDIRECTS). The default is to."`
	Redirects *int          `name:"max-redirects" placeholder:"5" group:"Redirects:" help:"Redirects in one fetch, 0 to 20 ($$CRAWLER_MAX_REDIRECTS)."`
	Queue     bool          `name:"queue-redirects" group:"Redirects:" help:"Add the targets of redirects to the frontier, and follow none."`
	Retries   int           `name:"max-url-retries" default:"3" group:"Failures:" help:"How many more times a URL is tried after a failure that may pass, a minute later, two, four."`
	On        []string      `placeholder:"CLASS=ACTION" group:"Failures:" help:"What is done about an error class: retry, skip, abort-host or abort-crawl. Repeatable."`
	Bodies    string        `placeholder:"PLACE" group:"Results:" help:"Keep bodies by their SHA-256 in a directory, or a bucket: s3://NAME?region=REGION, file:///DIR."`
	Outcomes  string        `placeholder:"FILE" group:"Results:" help:"Append each outcome as a line of JSON; - is standard output."`
	Metrics   string        `name:"metrics-addr" placeholder:"HOST:PORT" group:"Results:" help:"Serve Prometheus metrics there, under /metrics."`
	Quiet     bool          `short:"q" group:"Results:" help:"No progress."`
	Endless   bool          `group:"Work:" help:"Wait for more URLs when there are none left."`
	Name      string        `placeholder:"NAME" group:"Work:" help:"Name of this worker in the database. The default is host and process."`
	Lease     time.Duration `default:"5m" group:"Work:" help:"How long a URL stays with a worker that is heard of no more."`
	DrainTime time.Duration `default:"30s" group:"Work:" help:"How long fetches may go on after SIGTERM or SIGINT."`
	LogLevel  slog.Level    `default:"warn" group:"Work:" help:"debug, info, warn or error; lines go to standard error."`

	console *console
	draws   bool // progress is drawn on it
}

func (c *runCmd) run(ctx context.Context, a *app) int {
	heap.Hold()
	if err := c.check(a); err != nil {
		return a.end(ctx, err)
	}
	c.console = newConsole(a.Err, a.Env)
	c.draws = c.console.terminal && !(c.Outcomes == "-" && cli.IsTerminal(a.Out)) // they would come between
	a.Err = c.console
	if c.Demo {
		return c.runDemo(ctx, a)
	}
	return a.end(ctx, c.work(ctx, a))
}

// work opens the frontier, and works on it.
func (c *runCmd) work(ctx context.Context, a *app) error {
	config, err := c.config(a)
	if err != nil {
		return err
	}
	s, err := c.open(ctx, existing, store.Config{Delay: max(c.Delay, time.Millisecond)})
	if err != nil {
		return err
	}
	err = c.workOn(ctx, a, s, config)
	return errors.Join(err, s.Close())
}

// workOn opens all else that the worker needs, and runs it.
func (c *runCmd) workOn(ctx context.Context, a *app, s store.Store, config frontier.Config) error {
	closeResults, err := c.openResults(ctx, a, &config)
	defer closeResults()
	if err != nil {
		return err
	}
	services, stop, err := c.services.connect(config.Logger, c.Open, c.Timeout)
	if err != nil {
		return err
	}
	defer stop()
	url, stopMetrics, err := c.serveMetrics(&config)
	if err != nil {
		return err
	}
	defer stopMetrics()
	if url != "" && !c.Quiet {
		c.console.Printf("metrics are at %s\n", url)
	}
	p := c.progress(s, &config)
	w, err := frontier.New(s, services, config)
	if err != nil {
		return cli.UsageError("run", fmt.Sprint(err)) // of what check lets through
	}
	return p.watched(ctx, w)
}

// openResults opens the places where outcomes and bodies go. The caller calls
// closeAll, also where there is an error.
func (c *runCmd) openResults(ctx context.Context, a *app, config *frontier.Config) (closeAll func(), err error) {
	var opened []io.Closer
	closeAll = func() {
		for _, o := range opened {
			_ = o.Close() // each line and each body was closed by itself
		}
	}
	if c.Outcomes != "" {
		lines, err := openLines(c.Outcomes, a.Out)
		if err != nil {
			return closeAll, err
		}
		opened = append(opened, lines)
		config.Recorded = lines.write
	}
	if c.Bodies != "" {
		b, err := c.openBodies(ctx)
		if err != nil {
			return closeAll, err
		}
		opened = append(opened, b)
		config.Bodies = b
	}
	return closeAll, nil
}

// progress is that of a worker, which it hooks into config.
func (c *runCmd) progress(s store.Store, config *frontier.Config) *progress {
	p := &progress{out: c.console, draws: c.draws, quiet: c.Quiet, endless: c.Endless, counts: s.Counts, metrics: config.Metrics}
	config.Recorded = p.faults.before(config.Recorded)
	return p
}

// config is the worker's, from the flags.
func (c *runCmd) config(a *app) (frontier.Config, error) {
	p, err := c.policy(a)
	if err != nil {
		return frontier.Config{}, err
	}
	config := frontier.Config{ // where zero would mean a default, the least
		Name: c.Name, Open: c.Open, Lease: c.Lease, TotalTimeout: c.Timeout, MaxAttempts: c.Attempts, Policy: p,
		UserAgent: c.UserAgent, IgnoreRobots: c.NoRobots, MaxCrawlDelay: max(c.CrawlDelay, 1), RobotsPatience: max(c.Patience, 1), Accept: c.Accept,
		MaxBodyBytes: c.MaxBody, TruncateBodies: c.Truncate, DrainTime: max(c.DrainTime, 1), Endless: c.Endless,
		Logger: slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: c.LogLevel})),
	}
	if len(c.Accept) == 1 && c.Accept[0] == "any" {
		config.Accept = nil
	}
	if config.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		config.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	return config, nil
}

func (c *runCmd) policy(a *app) (frontier.Policy, error) {
	p := frontier.DefaultPolicy()
	if err := p.Environment(a.Env); err != nil {
		return p, cli.UsageError("environment", fmt.Sprint(err))
	}
	if c.Follow != nil {
		p.FollowRedirects = *c.Follow
	}
	if c.Redirects != nil {
		p.MaxRedirects = *c.Redirects
	}
	if c.Queue && !p.FollowRedirects {
		return p, cli.UsageError("--queue-redirects", "redirects are left alone by --no-follow-redirects or CRAWLER_FOLLOW_REDIRECTS=false: leave out one of the two")
	}
	p.QueueRedirects, p.MaxURLRetries = c.Queue, c.Retries
	for _, rule := range c.On {
		if err := p.Set(rule); err != nil {
			return p, cli.UsageError("--on", fmt.Sprint(err))
		}
	}
	return p, nil
}
