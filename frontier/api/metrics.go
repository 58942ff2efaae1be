package api

import (
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

const (
	// maxNamedCallers limits the callers with their own series.
	maxNamedCallers = 256
	// otherCallers is the label value of all others.
	otherCallers = "other"
)

// Metrics counts calls, also those that are rejected. A nil one counts nothing.
type Metrics struct {
	calls    *prometheus.HistogramVec
	byCaller *prometheus.CounterVec
	named    atomic.Pointer[[]string] // sorted
}

// NewMetrics registers the metrics of a server.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "frontier_api_call_duration_seconds",
		Help: "Duration of calls of the API, gRPC and HTTP, by method and gRPC code.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"method", "code"}),
		byCaller: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "frontier_api_caller_calls_total",
			Help: "Calls of the API, gRPC and HTTP, by caller and gRPC code."}, []string{"caller", "code"})}
	m.named.Store(new([]string))
	r.MustRegister(m.calls, m.byCaller)
	return m
}

func (m *Metrics) ended(method, caller string, code codes.Code, took time.Duration) {
	if m == nil {
		return
	}
	m.calls.WithLabelValues(method, code.String()).Observe(took.Seconds())
	if _, named := slices.BinarySearch(*m.named.Load(), caller); !named {
		caller = otherCallers
	}
	m.byCaller.WithLabelValues(caller, code.String()).Inc()
}

func (m *Metrics) setCallers(names []string) {
	if m == nil {
		return
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	names = slices.DeleteFunc(names, func(name string) bool { return !utf8.ValidString(name) }) // no label value
	names = names[:min(len(names), maxNamedCallers)]
	for _, before := range *m.named.Swap(&names) {
		if !slices.Contains(names, before) && before != otherCallers {
			m.byCaller.DeletePartialMatch(prometheus.Labels{"caller": before})
		}
	}
}
