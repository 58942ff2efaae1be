package observe

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Flush exports the spans so far.
func (o *Observer) Flush(ctx context.Context) error { return o.traces.queue.ForceFlush(ctx) }

// Break registers a collector that fails every scrape.
func (o *Observer) Break() error { return o.registry.Register(broken{}) }

// broken is a prometheus.Collector.
type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}

func (broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("cannot be told"))
}
