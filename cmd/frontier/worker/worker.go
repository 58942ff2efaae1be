// Package worker runs a worker of the frontier in this process: it connects the services that fetch, opens
// the places of the results, serves the metrics and shows the progress.
package worker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fetchd/cmd/frontier/progress"
	"fetchd/cmd/frontier/show"
	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
	"fetchd/internal/door"
	"fetchd/internal/webapi"
)

// Config says what a worker does. Run sets the fields of frontier.Config that need something open.
type Config struct {
	frontier.Config
	Services    Services
	Results     Results
	MetricsAddr string // HOST:PORT; empty: no metrics
	Console     *progress.Console
	Quiet       bool // show no progress
}

// Run opens everything that the worker needs, and works on s. It returns what discovery has found, also
// with an error.
func (c *Config) Run(ctx context.Context, s store.Store) (found frontier.Found, err error) {
	inside := len(c.Services.Servers) == 0
	records, closeResults, err := c.Results.open(ctx, &c.Config, inside)
	defer closeResults()
	if err != nil {
		return found, err
	}
	services, stop, err := c.Services.connect(&c.Config, records)
	if err != nil {
		return found, err
	}
	defer stop()
	if !inside && c.RecordStore != "" {
		if err := checkRecords(ctx, services, c.RecordStore); err != nil {
			return found, err
		}
	}
	if !inside && c.Identity != "" {
		if err := checkIdentity(ctx, services, c.Identity); err != nil {
			return found, err
		}
	}
	metrics, url, stopMetrics, err := serveMetrics(c.MetricsAddr, c.Logger)
	if err != nil {
		return found, err
	}
	defer stopMetrics()
	c.Metrics = metrics
	if url != "" && !c.Quiet {
		c.Console.Printf("serving metrics at %s\n", url)
	}
	return c.Work(ctx, s, services)
}

// Work works on s with services that are connected.
func (c *Config) Work(ctx context.Context, s store.Store, services []frontier.Service) (found frontier.Found, err error) {
	display := &progress.Display{Out: c.Console, Quiet: c.Quiet, Endless: c.Endless || c.Recrawl.On(), Counts: s.Counts, Metrics: c.Metrics,
		Deferred: func(ctx context.Context) (string, error) { return show.FirstDeferred(ctx, s) }}
	c.Recorded = display.Recorded(c.Recorded)
	w, err := frontier.New(s, services, c.Config)
	if err != nil {
		return found, cli.UsageError("crawl", fmt.Sprint(err)) // the checks of the flags do not find every invalid value
	}
	if c.Discovery != nil {
		display.Found = w.Found
	}
	err = display.Watch(ctx, w)
	return w.Found(), err
}

// metricsLimits are the limits of the port of --metrics-addr. Its clients do not authenticate.
var metricsLimits = door.Limits{Total: 64, PerAddress: 32, Strangers: 64}

// serveMetrics serves metrics until stop is called. There are none if no address is given.
func serveMetrics(address string, logger *slog.Logger) (metrics *frontier.Metrics, url string, stop func(), err error) {
	if address == "" {
		return nil, "", func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", nil, cli.UsageError("--metrics-addr", fmt.Sprintf("%v: give an address of this machine with a free port", err))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics = frontier.NewMetrics(registry)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", webapi.Cached(promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})))
	server := &http.Server{
		Handler: door.Limit(mux, func(*http.Request) bool { return false }), ConnContext: door.ConnContext, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(door.Listen(l, metricsLimits)) // returns after Close
	}()
	return metrics, fmt.Sprintf("http://%s/metrics", l.Addr()), func() {
		_ = server.Close()
		<-done
	}, nil
}
