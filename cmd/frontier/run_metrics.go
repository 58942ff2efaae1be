package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fetchd/frontier"
	"fetchd/internal/cli"
	"fetchd/internal/door"
	"fetchd/internal/webapi"
)

// metricsLimits are the limits of the port of --metrics-addr. Its clients do not authenticate.
var metricsLimits = door.Limits{Total: 64, PerAddress: 32, Strangers: 64}

// serveMetrics adds metrics to config, and serves them until stop is called. url is empty if no
// address is set.
func (c *runCmd) serveMetrics(config *frontier.Config) (url string, stop func(), err error) {
	if c.Metrics == "" {
		return "", func() {}, nil
	}
	l, err := net.Listen("tcp", c.Metrics)
	if err != nil {
		return "", nil, cli.UsageError("--metrics-addr", fmt.Sprintf("%v: give an address of this machine with a free port", err))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	config.Metrics = frontier.NewMetrics(registry)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", webapi.Cached(promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})))
	server := &http.Server{
		Handler: door.Limit(mux, func(*http.Request) bool { return false }), ConnContext: door.ConnContext, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(config.Logger.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(door.Listen(l, metricsLimits)) // returns after Close
	}()
	return fmt.Sprintf("http://%s/metrics", l.Addr()), func() {
		_ = server.Close()
		<-done
	}, nil
}
