package observe

import (
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"fetchd/fetch"
)

// Gauges holds the functions that each scrape calls. They must not block. The value
// of a nil function is zero.
type Gauges struct {
	// Fetches returns the number of fetches in flight and its limit.
	Fetches func() (inFlight, limit int)
	// Callers returns the number of fetches in flight of each caller that has some.
	Callers func() map[string]int
	// Memory returns the bytes held for callers, by kind, and the memory budget.
	Memory func() (byKind map[string]int64, budget int64)
	// Draining reports whether the server is shutting down.
	Draining func() bool
	// Connections returns the numbers of connections to origins.
	Connections func() fetch.ConnectionStats
	// Stores returns the numbers of each store for bodies, by its name.
	Stores func() iter.Seq2[string, StoreStats]
	// Archives returns the numbers of each store for records, by its name.
	Archives func() iter.Seq2[string, ArchiveStats]
}

// StoreStats are numbers of a store for bodies.
type StoreStats struct {
	Up       bool // false while the store refuses bodies
	InFlight int  // uploads

	Committed, Failed, Aborted uint64 // uploads that ended; Failed by the store
	Bytes                      uint64 // of committed objects
	RequestErrors              uint64
}

// ArchiveStats are numbers of a store for records.
type ArchiveStats struct {
	Up bool // false while the store refuses records

	Requests, Responses, Revisits uint64 // records that were written
	Bytes                         uint64 // of these records, in the files
	Errors                        uint64 // operations on files, and uploads, that failed

	SpoolBytes    int64         // of exchanges in flight, in temporary files
	OpenFiles     int           // files that are not whole
	WaitingFiles  int           // whole files that wait for their upload
	WaitingBytes  int64         // of these files
	OldestWaiting time.Duration // how long the oldest of them has waited
}

// Gauges sets the functions that each scrape calls. It replaces those of an earlier
// call.
func (m *Metrics) Gauges(g Gauges) {
	if g.Fetches == nil {
		g.Fetches = func() (int, int) { return 0, 0 }
	}
	if g.Callers == nil {
		g.Callers = func() map[string]int { return nil }
	}
	if g.Memory == nil {
		g.Memory = func() (map[string]int64, int64) { return nil, 0 }
	}
	if g.Draining == nil {
		g.Draining = func() bool { return false }
	}
	if g.Connections == nil {
		g.Connections = func() fetch.ConnectionStats { return fetch.ConnectionStats{} }
	}
	if g.Stores == nil {
		g.Stores = func() iter.Seq2[string, StoreStats] { return func(func(string, StoreStats) bool) {} }
	}
	if g.Archives == nil {
		g.Archives = func() iter.Seq2[string, ArchiveStats] { return func(func(string, ArchiveStats) bool) {} }
	}
	m.gauges.Store(&g)
}

func (m *Metrics) makeGauges(series promauto.Factory) {
	m.Gauges(Gauges{})
	for _, row := range []struct {
		name, help string
		value      func(*Gauges) float64
	}{
		{"fetchd_fetches_in_flight", "Fetches in flight.", func(g *Gauges) float64 {
			n, _ := g.Fetches()
			return float64(n)
		}},
		{"fetchd_fetches_limit", "Maximum number of fetches in flight.", func(g *Gauges) float64 {
			_, limit := g.Fetches()
			return float64(limit)
		}},
		{"fetchd_memory_budget_bytes", "Maximum number of bytes held for callers.", func(g *Gauges) float64 {
			_, budget := g.Memory()
			return float64(budget)
		}},
		{"fetchd_draining", "1 while the server is shutting down.", func(g *Gauges) float64 {
			if g.Draining() {
				return 1
			}
			return 0
		}},
	} {
		series.NewGaugeFunc(prometheus.GaugeOpts{Name: row.name, Help: row.help},
			func() float64 { return row.value(m.gauges.Load()) })
	}
	m.registry.MustRegister(&memoryCollector{m}, &callerCollector{m}, &connectionCollector{m}, &storeCollector{m}, &archiveCollector{m})
}

// memoryCollector collects the bytes of all kinds at the same instant.
type memoryCollector struct{ metrics *Metrics }

var memoryBytes = prometheus.NewDesc("fetchd_memory_bytes", "Bytes held for callers, by kind, and for idle connections to origins.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (c *memoryCollector) Describe(to chan<- *prometheus.Desc) { to <- memoryBytes }

// Collect implements prometheus.Collector.
func (c *memoryCollector) Collect(to chan<- prometheus.Metric) {
	byKind, _ := c.metrics.gauges.Load().Memory()
	for kind, n := range byKind {
		to <- prometheus.MustNewConstMetric(memoryBytes, prometheus.GaugeValue, float64(n), kind)
	}
}

// connectionCollector collects the numbers of connections to origins at the same instant.
type connectionCollector struct{ metrics *Metrics }

var (
	connectionsOpen    = prometheus.NewDesc("fetchd_connections_open", "Open connections to origins.", nil, nil)
	connectionsIdle    = prometheus.NewDesc("fetchd_connections_idle", "Open connections to origins that no request uses.", nil, nil)
	connectionsDialled = prometheus.NewDesc("fetchd_connections_dialled_total", "Connections to origins that were made.", nil, nil)
	connectionsReused  = prometheus.NewDesc("fetchd_connections_reused_total",
		"Requests that used a connection that had carried another request.", nil, nil)
	connectionsStale = prometheus.NewDesc("fetchd_connections_stale_total",
		"Idle connections to origins that were found dead. No request was sent on them.", nil, nil)
	connectionsSurplus = prometheus.NewDesc("fetchd_connections_surplus_total",
		"Connections that were closed because the origin sent bytes over HTTP/1.1 that were not requested. Connections to it are not reused for a minute.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *connectionCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsOpen, connectionsIdle, connectionsDialled, connectionsReused, connectionsStale, connectionsSurplus} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *connectionCollector) Collect(to chan<- prometheus.Metric) {
	n := c.metrics.gauges.Load().Connections()
	to <- prometheus.MustNewConstMetric(connectionsOpen, prometheus.GaugeValue, float64(n.Open))
	to <- prometheus.MustNewConstMetric(connectionsIdle, prometheus.GaugeValue, float64(n.Idle))
	to <- prometheus.MustNewConstMetric(connectionsDialled, prometheus.CounterValue, float64(n.Dialled))
	to <- prometheus.MustNewConstMetric(connectionsReused, prometheus.CounterValue, float64(n.Reused))
	to <- prometheus.MustNewConstMetric(connectionsStale, prometheus.CounterValue, float64(n.Stale))
	to <- prometheus.MustNewConstMetric(connectionsSurplus, prometheus.CounterValue, float64(n.Surplus))
}

// storeCollector collects the numbers of each store at the same instant.
type storeCollector struct{ metrics *Metrics }

var (
	storeUp       = prometheus.NewDesc("fetchd_store_up", "0 while a store refuses bodies because the last uploads failed. 1 again if no fetch has tried it for a minute.", []string{"store"}, nil)
	storeInFlight = prometheus.NewDesc("fetchd_store_uploads_in_flight", "Uploads to a store that have not ended.", []string{"store"}, nil)
	storeUploads  = prometheus.NewDesc("fetchd_store_uploads_total",
		"Uploads that ended: committed, failed (by the store) or aborted (the fetch did not succeed).", []string{"store", "result"}, nil)
	storeBytes  = prometheus.NewDesc("fetchd_store_bytes_total", "Bytes of the objects that were committed.", []string{"store"}, nil)
	storeErrors = prometheus.NewDesc("fetchd_store_request_errors_total",
		"Requests to a store that failed, including those that were repeated.", []string{"store"}, nil)
)

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeUp, storeInFlight, storeUploads, storeBytes, storeErrors} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(to chan<- prometheus.Metric) {
	for name, n := range c.metrics.gauges.Load().Stores() {
		up := 0.0
		if n.Up {
			up = 1
		}
		to <- prometheus.MustNewConstMetric(storeUp, prometheus.GaugeValue, up, name)
		to <- prometheus.MustNewConstMetric(storeInFlight, prometheus.GaugeValue, float64(n.InFlight), name)
		to <- prometheus.MustNewConstMetric(storeUploads, prometheus.CounterValue, float64(n.Committed), name, "committed")
		to <- prometheus.MustNewConstMetric(storeUploads, prometheus.CounterValue, float64(n.Failed), name, "failed")
		to <- prometheus.MustNewConstMetric(storeUploads, prometheus.CounterValue, float64(n.Aborted), name, "aborted")
		to <- prometheus.MustNewConstMetric(storeBytes, prometheus.CounterValue, float64(n.Bytes), name)
		to <- prometheus.MustNewConstMetric(storeErrors, prometheus.CounterValue, float64(n.RequestErrors), name)
	}
}

// archiveCollector collects the numbers of each store for records at the same instant.
type archiveCollector struct{ metrics *Metrics }

var (
	archiveUp = prometheus.NewDesc("fetchd_archive_up",
		"0 while a store refuses records, because the last ones could not be written or the space is used up.", []string{"store"}, nil)
	archiveRecords = prometheus.NewDesc("fetchd_archive_records_total", "Records that were written, by type.", []string{"store", "type"}, nil)
	archiveBytes   = prometheus.NewDesc("fetchd_archive_bytes_total", "Bytes of these records, in the files.", []string{"store"}, nil)
	archiveErrors  = prometheus.NewDesc("fetchd_archive_errors_total", "Operations on files, and uploads, that failed.", []string{"store"}, nil)
	archiveSpools  = prometheus.NewDesc("fetchd_archive_spool_bytes", "Bytes of exchanges in flight in temporary files.", []string{"store"}, nil)
	archiveOpen    = prometheus.NewDesc("fetchd_archive_files_open", "WARC files that are not whole.", []string{"store"}, nil)
	archiveWaiting = prometheus.NewDesc("fetchd_archive_files_waiting", "Whole WARC files that wait for their upload.", []string{"store"}, nil)
	archiveWaits   = prometheus.NewDesc("fetchd_archive_waiting_bytes", "Bytes of the WARC files that wait for their upload.", []string{"store"}, nil)
	archiveOldest  = prometheus.NewDesc("fetchd_archive_oldest_waiting_seconds",
		"How long the oldest WARC file has waited for its upload. 0 if none waits.", []string{"store"}, nil)
)

// Describe implements prometheus.Collector.
func (c *archiveCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{archiveUp, archiveRecords, archiveBytes, archiveErrors, archiveSpools, archiveOpen, archiveWaiting,
		archiveWaits, archiveOldest} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *archiveCollector) Collect(to chan<- prometheus.Metric) {
	for name, n := range c.metrics.gauges.Load().Archives() {
		gauge := func(d *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, name)
		}
		count := func(d *prometheus.Desc, value uint64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), append([]string{name}, labels...)...)
		}
		up := 0.0
		if n.Up {
			up = 1
		}
		gauge(archiveUp, up)
		count(archiveRecords, n.Requests, "request")
		count(archiveRecords, n.Responses, "response")
		count(archiveRecords, n.Revisits, "revisit")
		count(archiveBytes, n.Bytes)
		count(archiveErrors, n.Errors)
		gauge(archiveSpools, float64(n.SpoolBytes))
		gauge(archiveOpen, float64(n.OpenFiles))
		gauge(archiveWaiting, float64(n.WaitingFiles))
		gauge(archiveWaits, float64(n.WaitingBytes))
		gauge(archiveOldest, n.OldestWaiting.Seconds())
	}
}
