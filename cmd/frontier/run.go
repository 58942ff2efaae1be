package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fetchd/frontier"
	"fetchd/frontier/bodies"
	"fetchd/frontier/store"
)

// countEvery is how often the whole table is counted, for progress and metrics.
const countEvery = 10 * time.Second

// runCmd is "frontier run".
type runCmd struct {
	database
	services
	Demo bool `help:"Crawl a built-in origin of 300 hosts on loopback, in a database of its own that is thrown away, and check what came of it."`

	Open       int           `default:"256" group:"Pace:" help:"Fetches under way at most."`
	Delay      time.Duration `default:"1s" group:"Pace:" help:"From the end of a host's fetch to its next start, where \"frontier set\" or robots.txt say nothing longer."`
	NoRobots   bool          `name:"ignore-robots" group:"Pace:" help:"Leave robots.txt alone. For hosts of your own."`
	CrawlDelay time.Duration `name:"max-crawl-delay" default:"1m" group:"Pace:" help:"Longest Crawl-delay of a robots.txt that is obeyed; a longer one counts as this."`
	UserAgent  string        `default:"${agent}" group:"Fetches:" help:"How the crawler calls itself to origins; robots.txt is read by its first word. Say how you can be reached."`
	Accept     []string      `default:"text/html,application/xhtml+xml" placeholder:"TYPE" group:"Fetches:" help:"Media types wanted; others are dead as content_type. \"any\" takes all."`
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
}

func (c *runCmd) run(ctx context.Context, a *app) int {
	if c.Demo {
		return c.runDemo(ctx, a)
	}
	return a.end(ctx, c.work(ctx, a))
}

// work opens what the worker needs, and runs it.
func (c *runCmd) work(ctx context.Context, a *app) error {
	if c.Delay < 0 {
		return &usageError{"--delay", "is negative: give 0 or more, such as 1s"}
	}
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

func (c *runCmd) workOn(ctx context.Context, a *app, s store.Repository, config frontier.Config) error {
	if c.Bodies != "" {
		b, err := bodies.Open(ctx, c.Bodies)
		if err != nil {
			return &outputError{err}
		}
		defer func() { _ = b.Close() }() // each body was closed by itself
		config.Bodies = b
	}
	if c.Outcomes != "" {
		lines, err := openLines(c.Outcomes, a.out)
		if err != nil {
			return err
		}
		defer func() { _ = lines.Close() }() // each line was written by itself
		config.Recorded = lines.write
	}
	services, stop, err := c.services.connect(config.Logger, c.Open)
	if err != nil {
		return err
	}
	defer stop()
	stopMetrics, err := c.serveMetrics(&config)
	if err != nil {
		return err
	}
	defer stopMetrics()
	w, err := frontier.New(s, services, config)
	if err != nil {
		return &usageError{"run", fmt.Sprint(err)}
	}
	return c.watched(ctx, a, s, w, config.Metrics)
}

// watched runs the worker while its progress is told.
func (c *runCmd) watched(ctx context.Context, a *app, s store.Repository, w *frontier.Worker, metrics *frontier.Metrics) error {
	telling, stop := context.WithCancel(context.WithoutCancel(ctx))
	told := make(chan struct{})
	p := &progress{out: &printer{w: a.err}, terminal: isTerminal(a.err), quiet: c.Quiet, store: s, worker: w, metrics: metrics, begun: time.Now()}
	go func() {
		defer close(told)
		p.run(telling, ctx.Done())
	}()
	err := w.Run(ctx)
	stop()
	<-told
	p.sum()
	switch {
	case errors.Is(err, frontier.ErrCrawlAborted):
		a.errorf("%v", err)
		a.hintf(`The crawl is paused for every worker: "frontier resume" takes that back.`)
		return &toldError{exitAborted, "aborted"}
	case errors.Is(err, frontier.ErrNoService):
		a.errorf("%v", err)
		return &toldError{exitService, "no service"}
	}
	return err
}

// config is the worker's, from the flags.
func (c *runCmd) config(a *app) (frontier.Config, error) {
	p, err := c.policy(a)
	if err != nil {
		return frontier.Config{}, err
	}
	config := frontier.Config{
		Name: c.Name, Open: c.Open, Lease: c.Lease, TotalTimeout: c.Timeout, MaxAttempts: c.Attempts, Policy: p,
		UserAgent: c.UserAgent, IgnoreRobots: c.NoRobots, MaxCrawlDelay: c.CrawlDelay, Accept: c.Accept,
		MaxBodyBytes: c.MaxBody, TruncateBodies: c.Truncate, DrainTime: c.DrainTime, Endless: c.Endless,
		Logger: slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: c.LogLevel})),
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
	if err := p.Environment(a.env); err != nil {
		return p, &usageError{"environment", fmt.Sprint(err)}
	}
	if c.Follow != nil {
		p.FollowRedirects = *c.Follow
	}
	if c.Redirects != nil {
		p.MaxRedirects = *c.Redirects
	}
	p.QueueRedirects, p.MaxURLRetries = c.Queue, c.Retries
	for _, rule := range c.On {
		if err := p.Set(rule); err != nil {
			return p, &usageError{"--on", fmt.Sprint(err)}
		}
	}
	return p, nil
}

// serveMetrics has the worker counted, and serves that until stop is called.
func (c *runCmd) serveMetrics(config *frontier.Config) (stop func(), err error) {
	if c.Metrics == "" {
		return func() {}, nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	config.Metrics = frontier.NewMetrics(registry)
	l, err := net.Listen("tcp", c.Metrics)
	if err != nil {
		return nil, &usageError{"--metrics-addr", fmt.Sprint(err)}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // its end is Close
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// lines are outcomes, a line of JSON each. What was written is whole lines.
type lines struct {
	w     io.Writer
	close func() error
}

// openLines appends to a file, or writes to standard output for "-".
func openLines(name string, stdout io.Writer) (*lines, error) {
	if name == "-" {
		return &lines{stdout, func() error { return nil }}, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return nil, &outputError{err}
	}
	if err := endLine(f); err != nil {
		return nil, &outputError{errors.Join(err, f.Close())}
	}
	return &lines{f, f.Close}, nil
}

// endLine ends a line that an earlier run could not write whole.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}

func (l *lines) write(r frontier.Record) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return err
	}
	if _, err := io.WriteString(l.w, b.String()); err != nil {
		return &outputError{err}
	}
	return nil
}

// Close ends the use of the file.
func (l *lines) Close() error { return l.close() }
