package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"

	"fetchd/frontier"
	"fetchd/frontier/api"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/tlswatch"
	"fetchd/server/observe"
)

// metricLines returns the metrics that fetchd and frontier register, with their types and labels. Those of Go and of the
// process are not ours.
func metricLines() ([]string, error) {
	all := &registry{scraped: make(map[string]string)}
	observer, err := observe.New(observe.Config{})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	pb.RegisterFetchServiceServer(server, pb.UnimplementedFetchServiceServer{})
	// Metrics of stores and of memory have samples only if there are some.
	observer.Serving(server, observe.Gauges{
		Memory:   func() (map[string]int64, int64) { return map[string]int64{"": 0}, 0 },
		Stores:   one[observe.StoreStats],
		Archives: one[observe.ArchiveStats],
	})
	observer.Denied("", "", false)
	scraped := new(page)
	observer.Handler().ServeHTTP(scraped, new(http.Request))
	for _, m := range typeLine.FindAllStringSubmatch(scraped.String(), -1) {
		all.scraped[m[1]] = m[2]
	}
	collected, ok := observer.Gatherer().(prometheus.Collector)
	if !ok {
		return nil, errors.New("the metrics of fetchd are not described")
	}
	all.MustRegister(collected, certificates("fetchd"))
	frontier.NewMetrics(all)
	api.NewMetrics(all)
	all.MustRegister(certificates("frontier_api"))
	return sortedUnique(all.lines), all.err
}

// page is an [http.ResponseWriter] that keeps the body.
type page struct{ bytes.Buffer }

// Header implements http.ResponseWriter.
func (*page) Header() http.Header { return make(http.Header) }

// WriteHeader implements http.ResponseWriter.
func (*page) WriteHeader(int) {}

func one[T any]() iter.Seq2[string, T] { return maps.All(map[string]T{"": *new(T)}) }

// certificates returns the metrics of TLS, with a certificate.
func certificates(prefix string) prometheus.Collector {
	logger := slog.New(slog.DiscardHandler)
	watch := tlswatch.NewWatch(logger)
	watch.Set([]tlswatch.Certificate{{}})
	return tlswatch.NewCollector(prefix, watch, tlswatch.NewHandshakes(logger, func() bool { return false }))
}

// registry writes a line for each metric that is registered with it.
type registry struct {
	prometheus.Registerer
	scraped map[string]string // types by name, from a page of metrics
	lines   []string
	err     error
}

var (
	// described is how a description shows itself: it has no accessors.
	described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .*variableLabels: \{([^{}]*)\}\}$`)
	typeLine  = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
)

// MustRegister implements [prometheus.Registerer].
func (r *registry) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		types := make(map[string]string)
		for m := range drain(c.Collect) {
			types[m.Desc().String()] = typeOfMetric(m)
		}
		for d := range drain(c.Describe) {
			m := described.FindStringSubmatch(d.String())
			if m == nil {
				r.err = fmt.Errorf("no name and labels are found in %s", d)
				return
			}
			name, labels := m[1], m[2]
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			kind := cmp.Or(types[d.String()], r.scraped[name])
			switch c.(type) {
			case *prometheus.CounterVec:
				kind = "counter"
			case *prometheus.GaugeVec:
				kind = "gauge"
			case *prometheus.HistogramVec:
				kind = "histogram"
			}
			if kind == "" {
				r.err = fmt.Errorf("%s has no sample that shows its type: make one", name)
			}
			r.lines = append(r.lines, fmt.Sprintf("%s{%s} %s", name, labels, kind))
		}
	}
}

// drain returns what a function sends.
func drain[T any](send func(chan<- T)) iter.Seq[T] {
	return func(yield func(T) bool) {
		values := make(chan T)
		go func() {
			defer close(values)
			send(values)
		}()
		for v := range values {
			yield(v) // its users read all
		}
	}
}

func typeOfMetric(m prometheus.Metric) string {
	var written dto.Metric
	switch err := m.Write(&written); {
	case err != nil:
		return ""
	case written.Counter != nil:
		return "counter"
	case written.Gauge != nil:
		return "gauge"
	case written.Histogram != nil:
		return "histogram"
	}
	return ""
}
