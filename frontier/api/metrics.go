package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// metrics counts calls. A nil one counts nothing.
type metrics struct {
	calls *prometheus.HistogramVec
}

func newMetrics(r *prometheus.Registry) *metrics {
	if r == nil {
		return nil
	}
	m := &metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "frontier_api_call_duration_seconds",
		Help: "Duration of calls of the API, gRPC and HTTP, by method and gRPC code.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"method", "code"})}
	r.MustRegister(m.calls)
	return m
}

func (m *metrics) ended(method string, code codes.Code, took time.Duration) {
	if m != nil {
		m.calls.WithLabelValues(method, code.String()).Observe(took.Seconds())
	}
}
