package observe

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// MetricsOf are an observer's.
func MetricsOf(o *Observer) *Metrics { return o.metrics }

// Flush sends what spans there are.
func (o *Observer) Flush(ctx context.Context) error { return o.traces.queue.ForceFlush(ctx) }

// Break registers something that fails with each scrape.
func (m *Metrics) Break() error { return m.registry.Register(broken{}) }

// broken is a prometheus.Collector.
type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}

func (broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("cannot be told"))
}
