package frontier

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fetchd/frontier/store"
)

// Metrics are the Prometheus metrics of a worker.
type Metrics struct {
	outcomes  *prometheus.CounterVec
	retries   prometheus.Counter
	bytes     prometheus.Counter
	lost      prometheus.Counter
	stale     prometheus.Counter
	blocks    prometheus.Counter
	robots    prometheus.Counter
	errors    *prometheus.CounterVec
	storeTime *prometheus.HistogramVec
	urls      *prometheus.GaugeVec
	hosts     *prometheus.GaugeVec
	paused    prometheus.Gauge
}

// NewMetrics registers a worker's metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	m := &Metrics{
		outcomes:  prometheus.NewCounterVec(counter("frontier_outcomes_total", "Recorded outcomes, by status of the URL and by error class."), []string{"status", "error_class"}),
		retries:   prometheus.NewCounter(counter("frontier_retries_total", "Retries within fetches.")),
		bytes:     prometheus.NewCounter(counter("frontier_body_bytes_total", "Bytes of fetched bodies.")),
		lost:      prometheus.NewCounter(counter("frontier_lost_fetches_total", "Fetches whose service was lost before it reported the outcome.")),
		stale:     prometheus.NewCounter(counter("frontier_stale_outcomes_total", "Outcomes not recorded because their lease was lost.")),
		blocks:    prometheus.NewCounter(counter("frontier_blocks_total", "Times that a host was closed because it answered 429 or 503.")),
		robots:    prometheus.NewCounter(counter("frontier_robots_total", "Fetches of a robots.txt, successful or not.")),
		errors:    prometheus.NewCounterVec(counter("frontier_troubles_total", "Errors of the store, or of the place of bodies, by operation."), []string{"doing"}),
		storeTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "frontier_store_duration_seconds", Help: "Duration of calls to the store.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8)}, []string{"call", "result"}),
		urls:      prometheus.NewGaugeVec(gauge("frontier_urls", "URLs in the frontier, by status."), []string{"status"}),
		hosts:     prometheus.NewGaugeVec(gauge("frontier_hosts", "Hosts in the frontier, by state; one host may be in several."), []string{"state"}),
		paused:    prometheus.NewGauge(gauge("frontier_paused", "1 while the whole crawl is paused.")),
	}
	r.MustRegister(m.outcomes, m.retries, m.bytes, m.lost, m.stale, m.blocks, m.errors, m.storeTime, m.urls, m.hosts, m.paused, m.robots)
	return m
}

// Counted sets the gauges of URLs and hosts, and whether the crawl is paused. It does nothing on a
// nil m.
func (m *Metrics) Counted(c store.Counts) {
	if m == nil {
		return
	}
	for status, n := range map[store.Status]int64{store.Pending: c.Pending, store.Fetching: c.Fetching, store.Fetched: c.Fetched, store.Failed: c.Failed, store.Dead: c.Dead} {
		m.urls.WithLabelValues(string(status)).Set(float64(n))
	}
	for state, n := range map[string]int64{"all": c.Hosts, "in_flight": c.HostsInFlight, "blocked": c.HostsBlocked, "waiting": c.HostsWaiting, "due": c.HostsDue, "paused": c.HostsPaused} {
		m.hosts.WithLabelValues(state).Set(float64(n))
	}
	m.paused.Set(0)
	if c.Paused {
		m.paused.Set(1)
	}
}

func (m *Metrics) recorded(r Record) {
	m.outcomes.WithLabelValues(r.Status, r.ErrorClass).Inc()
	m.retries.Add(float64(r.RetryCount))
	m.bytes.Add(float64(r.Bytes))
}

func (m *Metrics) storeCall(call string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.storeTime.WithLabelValues(call, result).Observe(took.Seconds())
}
