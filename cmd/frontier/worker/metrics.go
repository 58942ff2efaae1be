package worker

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
