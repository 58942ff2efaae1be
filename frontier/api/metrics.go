package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// Metrics counts calls, also those that are rejected. A nil one counts nothing.
type Metrics struct {
	calls *prometheus.HistogramVec
}

// NewMetrics registers the metrics of a server.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "frontier_api_call_duration_seconds",
		Help: "Duration of calls of the API, gRPC and HTTP, by method and gRPC code.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"method", "code"})}
	r.MustRegister(m.calls)
	return m
}

func (m *Metrics) ended(method string, code codes.Code, took time.Duration) {
	if m != nil {
		m.calls.WithLabelValues(method, code.String()).Observe(took.Seconds())
	}
}
