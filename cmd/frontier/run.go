package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/daemon"
	"fetchd/stores"
)

// runOrDemoCmd is "frontier run".
type runOrDemoCmd struct {
	runCmd
	Demo bool `help:"Crawl a built-in site of 300 hosts on loopback, with a temporary database, and check the result."`
}

// runCmd has the flags of a worker.
type runCmd struct {
	database
	pool
	services

	Open       int           `default:"256" group:"Pace:" help:"Maximum number of fetches in flight."`
	Delay      time.Duration `default:"1s" group:"Pace:" help:"Time from the end of a fetch of a host to the start of the next. \"frontier set\" and robots.txt can change it for a host."`
	NoRobots   bool          `name:"ignore-robots" group:"Pace:" help:"Ignore robots.txt. Only for your own hosts."`
	CrawlDelay time.Duration `name:"max-crawl-delay" default:"1m" group:"Pace:" help:"Maximum Crawl-delay of a robots.txt. A longer one is reduced to it."`
	Patience   time.Duration `name:"robots-patience" default:"1h" group:"Pace:" help:"How long the URLs of a host wait for an unreachable robots.txt before they fail for good."`
	UserAgent  string        `default:"${agent}" group:"Fetches:" help:"Name of the crawler, which origins receive. Say how to reach you. Its leading letters, _ and - select the rules of robots.txt."`
	Accept     []string      `default:"text/html,application/xhtml+xml" placeholder:"TYPE" group:"Fetches:" help:"Accepted media types. Others fail as content_type, and an empty body fails as empty_body. \"any\" accepts everything, including an empty body. Default: text/html,application/xhtml+xml."`
	MaxBody    int64         `name:"max-body-bytes" default:"16777216" group:"Fetches:" help:"Maximum length of a body, up to 1 TiB. A longer body fails as body_too_large. Default: 16 MiB."`
	Truncate   bool          `name:"truncate-bodies" group:"Fetches:" help:"Truncate longer bodies instead."`
	Full       bool          `group:"Fetches:" help:"Fetch pages in full that were fetched before, also if they have not changed."`
	Charset    bool          `name:"require-valid-charset" group:"Fetches:" help:"Fail a body that is not valid in its charset, as undecodable."`
	Profile    string        `enum:"standard,download" default:"standard" group:"Fetches:" help:"Retries within a fetch: standard (short waits) or download (1, 2 and 4 s with jitter, also after a 408). Default: ${default}."`
	Attempts   int           `name:"max-attempts" placeholder:"N" group:"Fetches:" help:"Maximum number of attempts in one fetch, 1 to 11. Default: 3, or 4 with --profile download."`
	Timeout    time.Duration `name:"total-timeout" placeholder:"DURATION" group:"Fetches:" help:"Time limit of one fetch, including its retries. Default: 1m, or 15m with --profile download."`

	Follow    *bool         `name:"follow-redirects" negatable:"" group:"Redirects:" help:"Follow redirects ($$CRAWLER_FOLLOW_REDIRECTS). Default: yes."`
	Redirects *int          `name:"max-redirects" placeholder:"5" group:"Redirects:" help:"Maximum number of redirects in one fetch, 0 to 20 ($$CRAWLER_MAX_REDIRECTS)."`
	Queue     bool          `name:"queue-redirects" group:"Redirects:" help:"Add the targets of redirects to the frontier instead of following them."`
	Retries   int           `name:"max-url-retries" default:"3" group:"Failures:" help:"How many more times a URL is tried after temporary failures: after one minute, then two, four and so on."`
	On        []string      `placeholder:"CLASS=ACTION" group:"Failures:" help:"What to do about an error class: retry, skip, abort-host or abort-crawl. Repeatable."`
	Recrawl   recrawl       `embed:""`
	Bodies    string        `placeholder:"PLACE" group:"Results:" help:"Store bodies under their SHA-256 in a directory, or in the store of --stores-file with this name."`
	WARC      string        `name:"warc" placeholder:"PLACE" group:"Results:" help:"Record the crawl, with its robots.txt files, in WARC files in a directory, or in the store of --stores-file with this name. With --server, in the store of that fetchd with this name."`
	Stores    string        `name:"stores-file" placeholder:"FILE" group:"Results:" help:"YAML file with stores and their credentials, as for fetchd. See docs/stores.md."`
	Keep      []string      `name:"keep-header" placeholder:"NAME" sep:"none" group:"Results:" help:"Record this response header with each outcome. Repeatable."`
	Outcomes  string        `placeholder:"FILE" group:"Results:" help:"Append each outcome to FILE as a line of JSON; - is standard output."`
	Metrics   string        `name:"metrics-addr" placeholder:"HOST:PORT" group:"Results:" help:"Serve Prometheus metrics at this address, under /metrics."`
	Quiet     bool          `short:"q" group:"Results:" help:"Show no progress."`
	Endless   bool          `group:"Work:" help:"Wait for more URLs when none are left."`
	Name      string        `placeholder:"NAME" group:"Work:" help:"Name of this worker in the database. Default: host name and process id."`
	Lease     time.Duration `placeholder:"DURATION" group:"Work:" help:"How long a URL stays with a worker that is gone. Default: 5m, or 20m with --profile download."`
	DrainTime time.Duration `default:"30s" group:"Work:" help:"How long fetches may continue after SIGTERM or SIGINT."`
	LogLevel  slog.Level    `default:"warn" group:"Work:" help:"debug, info, warn or error. The log goes to standard error."`

	records *stores.Set // where the fetchd inside records; nil if it does not
	console *console
	found   func() frontier.Found // nil before the worker starts, and without discovery
	draws   bool                  // shows progress on one line of the terminal
}

func (c *runOrDemoCmd) run(ctx context.Context, a *app) int {
	if c.Demo {
		if i := slices.IndexFunc(a.given, func(flag string) bool { return !slices.Contains(demoFlags, flag) }); i >= 0 {
			return a.end(ctx, cli.UsageError("--"+a.given[i], "not possible with --demo, which has its own crawl: remove one of the two"))
		}
	}
	if err := c.prepare(a); err != nil {
		return a.end(ctx, err)
	}
	if c.Demo {
		return c.runDemo(ctx, a)
	}
	return a.end(ctx, c.work(ctx, a))
}

// prepare checks the flags, and redirects standard error to the console.
func (c *runCmd) prepare(a *app) error {
	daemon.HoldHeap()
	if err := c.check(a); err != nil {
		return err
	}
	c.console = newConsole(a.Err, a.Env)
	c.draws = c.console.terminal && !(c.Outcomes == "-" && cli.IsTerminal(a.Out)) // they share the terminal
	a.Err = c.console
	return nil
}

// work opens the frontier and works on it.
func (c *runCmd) work(ctx context.Context, a *app) error {
	config, err := c.config(a)
	if err != nil {
		return err
	}
	s, err := c.open(ctx, existing, c.storeConfig())
	if err != nil {
		return err
	}
	plan, err := s.Setting(ctx, planSetting)
	switch {
	case err != nil:
	case plan != "": // a run without discovery would lose the links of the pages that it fetches
		err = cli.UsageError("--db", fmt.Sprintf("%s has a crawl: continue it with \"frontier crawl\"", safe(c.DB)))
	default:
		err = c.workOn(ctx, a, s, config)
	}
	return errors.Join(err, s.Close())
}

// storeConfig returns how a worker opens the frontier.
func (c *runCmd) storeConfig() store.Config {
	return store.Config{Delay: max(c.Delay, time.Millisecond), Connections: c.Connections}
}

// workOn opens everything else that the worker needs, and runs it.
func (c *runCmd) workOn(ctx context.Context, a *app, s store.Store, config frontier.Config) error {
	closeResults, err := c.openResults(ctx, a, &config)
	defer closeResults()
	if err != nil {
		return err
	}
	services, stop, err := c.services.connect(config.Logger, c.Open, c.Timeout, c.records)
	if err != nil {
		return err
	}
	defer stop()
	if len(c.Server) > 0 && c.WARC != "" {
		if err := checkRecords(ctx, services, c.WARC); err != nil {
			return err
		}
	}
	url, stopMetrics, err := c.serveMetrics(&config)
	if err != nil {
		return err
	}
	defer stopMetrics()
	if url != "" && !c.Quiet {
		c.console.Printf("serving metrics at %s\n", url)
	}
	p := c.progress(s, &config)
	w, err := frontier.New(s, services, config)
	if err != nil {
		return cli.UsageError("run", fmt.Sprint(err)) // check does not find every invalid value
	}
	if config.Discovery != nil {
		p.found, c.found = w.Found, w.Found
	}
	return p.watched(ctx, w)
}

// openResults opens the destinations of outcomes, bodies and records. The caller calls closeAll, even after
// an error.
func (c *runCmd) openResults(ctx context.Context, a *app, config *frontier.Config) (closeAll func(), err error) {
	var opened []func()
	closeAll = func() {
		for _, stop := range slices.Backward(opened) {
			stop()
		}
	}
	if c.Outcomes != "" {
		lines, err := openLines(c.Outcomes, a.Out)
		if err != nil {
			return closeAll, err
		}
		opened = append(opened, func() { _ = lines.Close() }) // every line was written completely before
		config.Recorded = lines.write
	}
	set, stop, err := c.readStores()
	if err != nil {
		return closeAll, err
	}
	opened = append(opened, stop)
	if c.Bodies != "" {
		b, stop, err := c.openBodies(ctx, set)
		if err != nil {
			return closeAll, err
		}
		opened = append(opened, stop)
		config.Bodies = b
	}
	if c.WARC != "" {
		name, stop, err := c.openRecords(ctx, set, config.Logger)
		if err != nil {
			return closeAll, err
		}
		opened = append(opened, stop)
		config.RecordStore = name
	}
	return closeAll, nil
}

// progress returns the progress of a worker, and hooks it into config.
func (c *runCmd) progress(s store.Store, config *frontier.Config) *progress {
	p := &progress{out: c.console, draws: c.draws, quiet: c.Quiet, endless: c.Endless || config.Recrawl.On(), counts: s.Counts, metrics: config.Metrics}
	config.Recorded = p.faults.before(config.Recorded)
	return p
}

// config returns the worker's configuration from the flags.
func (c *runCmd) config(a *app) (frontier.Config, error) {
	p, err := c.policy(a)
	if err != nil {
		return frontier.Config{}, err
	}
	again, err := c.Recrawl.config()
	if err != nil {
		return frontier.Config{}, err
	}
	config := frontier.Config{ // use the minimum where zero would mean a default
		Name: c.Name, Open: c.Open, Lease: c.Lease, TotalTimeout: c.Timeout, MaxAttempts: c.Attempts, Download: c.Profile == download, Policy: p,
		UserAgent: c.UserAgent, IgnoreRobots: c.NoRobots, MaxCrawlDelay: max(c.CrawlDelay, 1), RobotsPatience: max(c.Patience, 1), Accept: c.Accept, RequireValidCharset: c.Charset,
		KeepHeaders: c.Keep, Full: c.Full, MaxBodyBytes: c.MaxBody, TruncateBodies: c.Truncate, DrainTime: max(c.DrainTime, 1), Endless: c.Endless, Recrawl: again,
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
		return p, cli.UsageError("--queue-redirects", "--no-follow-redirects or CRAWLER_FOLLOW_REDIRECTS=false turns redirects off: remove one of the two")
	}
	p.QueueRedirects, p.MaxURLRetries = c.Queue, c.Retries
	for _, rule := range c.On {
		if err := p.Set(rule); err != nil {
			return p, cli.UsageError("--on", fmt.Sprint(err))
		}
	}
	return p, nil
}
