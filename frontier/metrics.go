package frontier

import (
	"context"
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
	cut       *prometheus.CounterVec
	errors    *prometheus.CounterVec
	storeTime *prometheus.HistogramVec
	queue     *QueueMetrics
}

// QueueMetrics are the Prometheus metrics of a frontier as a whole, which "frontier crawl" and "frontier serve" have.
type QueueMetrics struct {
	urls    *prometheus.GaugeVec
	waits   *prometheus.GaugeVec
	hosts   *prometheus.GaugeVec
	origins prometheus.Gauge
	last    prometheus.Gauge
	paused  prometheus.Gauge
}

// NewQueueMetrics registers the metrics of a frontier with r.
func NewQueueMetrics(r prometheus.Registerer) *QueueMetrics {
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	q := &QueueMetrics{
		urls:    prometheus.NewGaugeVec(gauge("frontier_urls", "URLs in the frontier, by status."), []string{"status"}),
		waits:   prometheus.NewGaugeVec(gauge("frontier_waiting_urls", "Pending and failed URLs, by the first cause for which they wait."), []string{"cause"}),
		hosts:   prometheus.NewGaugeVec(gauge("frontier_hosts", "Hosts in the frontier, by state; one host may be in several."), []string{"state"}),
		origins: prometheus.NewGauge(gauge("frontier_origins_deferred", "Origins whose URLs wait for an unreachable robots.txt.")),
		last:    prometheus.NewGauge(gauge("frontier_last_outcome_timestamp_seconds", "When the last outcome was recorded, by the clock of the database; 0 if there is none.")),
		paused:  prometheus.NewGauge(gauge("frontier_paused", "1 while the whole crawl is paused.")),
	}
	r.MustRegister(q.urls, q.waits, q.hosts, q.origins, q.last, q.paused)
	return q
}

const (
	// countEvery is how often the queue is counted. If counting takes long, it is done less often, so that it
	// uses at most a share of the time.
	countEvery = 10 * time.Second
	countShare = 100
)

// Count sets the metrics again and again until ctx ends. It uses at most a hundredth of the time of one connection to
// the database, and calls fail with each error.
func (q *QueueMetrics) Count(ctx context.Context, s interface {
	Counts(ctx context.Context) (store.Counts, error)
}, fail func(error)) {
	for ctx.Err() == nil {
		started := time.Now()
		c, err := s.Counts(ctx)
		switch {
		case err == nil:
			q.Set(c)
		case ctx.Err() == nil:
			fail(err)
		}
		sleep(ctx, max(countEvery, countShare*time.Since(started)))
	}
}

// Set sets the metrics.
func (q *QueueMetrics) Set(c store.Counts) {
	for status, n := range map[store.Status]int64{store.Pending: c.Pending, store.Fetching: c.Fetching, store.Fetched: c.Fetched, store.Failed: c.Failed, store.Dead: c.Dead} {
		q.urls.WithLabelValues(string(status)).Set(float64(n))
	}
	for _, w := range c.Waits.List() {
		q.waits.WithLabelValues(w.Code).Set(float64(w.URLs))
	}
	for state, n := range map[string]int64{"all": c.Hosts, "in_flight": c.HostsInFlight, "blocked": c.HostsBlocked, "waiting": c.HostsWaiting, "due": c.HostsDue, "paused": c.HostsPaused} {
		q.hosts.WithLabelValues(state).Set(float64(n))
	}
	q.origins.Set(float64(c.OriginsDeferred))
	q.last.Set(0)
	if !c.LastOutcome.IsZero() {
		q.last.Set(float64(c.LastOutcome.UnixMilli()) / 1000)
	}
	q.paused.Set(0)
	if c.Paused {
		q.paused.Set(1)
	}
}

// NewMetrics registers a worker's metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	m := &Metrics{
		outcomes:  prometheus.NewCounterVec(counter("frontier_outcomes_total", "Recorded outcomes, by status of the URL and by error class."), []string{"status", "error_class"}),
		retries:   prometheus.NewCounter(counter("frontier_retries_total", "Retries within fetches.")),
		bytes:     prometheus.NewCounter(counter("frontier_body_bytes_total", "Bytes of fetched bodies.")),
		lost:      prometheus.NewCounter(counter("frontier_lost_fetches_total", "Fetches whose service was lost before it reported the outcome.")),
		stale:     prometheus.NewCounter(counter("frontier_stale_outcomes_total", "Outcomes not recorded because their lease was lost.")),
		blocks:    prometheus.NewCounter(counter("frontier_blocks_total", "Times that a host was closed because it answered 429 or 503.")),
		robots:    prometheus.NewCounter(counter("frontier_robots_total", "Fetches of a robots.txt, successful or not.")),
		cut:       prometheus.NewCounterVec(counter("frontier_cut_pages_total", "Pages of which a limit has left out links, by the limit."), []string{"limit"}),
		errors:    prometheus.NewCounterVec(counter("frontier_troubles_total", "Errors of the store, or of the place of bodies, by operation."), []string{"doing"}),
		storeTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "frontier_store_duration_seconds", Help: "Duration of calls to the store.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8)}, []string{"call", "result"}),
		queue:     NewQueueMetrics(r),
	}
	r.MustRegister(m.outcomes, m.retries, m.bytes, m.lost, m.stale, m.blocks, m.errors, m.storeTime, m.robots, m.cut)
	return m
}

// Counted sets the metrics of the frontier. It does nothing on a nil m.
func (m *Metrics) Counted(c store.Counts) {
	if m != nil {
		m.queue.Set(c)
	}
}

func (m *Metrics) storeCall(call string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.storeTime.WithLabelValues(call, result).Observe(took.Seconds())
}
