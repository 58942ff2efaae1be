package api

import (
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"fetchd/internal/door"
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
	closed   *prometheus.CounterVec
	named    atomic.Pointer[[]string] // sorted
}

// NewMetrics registers the metrics of a server.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "frontier_api_call_duration_seconds",
		Help: "Duration of calls of the API, gRPC and HTTP, by method and gRPC code.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}, []string{"method", "code"}),
		byCaller: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "frontier_api_caller_calls_total",
			Help: "Calls of the API, gRPC and HTTP, by caller and gRPC code."}, []string{"caller", "code"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "frontier_api_connections_closed_total",
			Help: "Connections that were closed for what their client did, by caller and cause."}, []string{"caller", "cause"})}
	m.named.Store(new([]string))
	r.MustRegister(m.calls, m.byCaller, m.closed)
	return m
}

func (m *Metrics) ended(method, caller string, code codes.Code, took time.Duration) {
	if m == nil {
		return
	}
	m.calls.WithLabelValues(method, code.String()).Observe(took.Seconds())
	m.byCaller.WithLabelValues(m.label(caller), code.String()).Inc()
}

// dropped counts a connection that is closed for what it did.
func (m *Metrics) dropped(caller string, cause door.Cause) {
	if m != nil {
		m.closed.WithLabelValues(m.label(caller), string(cause)).Inc()
	}
}

// label returns the label value of a caller.
func (m *Metrics) label(caller string) string {
	if _, named := slices.BinarySearch(*m.named.Load(), caller); !named {
		return otherCallers
	}
	return caller
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
			m.closed.DeletePartialMatch(prometheus.Labels{"caller": before})
		}
	}
}
