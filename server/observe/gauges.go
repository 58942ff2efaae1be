package observe

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
func (o *Observer) Gauges(g Gauges) {
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
	o.gauges.Store(&g)
}

func (o *Observer) makeGauges() {
	o.Gauges(Gauges{})
	service := func() iter.Seq2[string, *Gauges] { return one(o.gauges.Load()) }
	memory := func() iter.Seq2[string, int64] {
		byKind, _ := o.gauges.Load().Memory()
		return maps.All(byKind)
	}
	connections := func() iter.Seq2[string, fetch.ConnectionStats] { return one(o.gauges.Load().Connections()) }
	stores := func() iter.Seq2[string, StoreStats] { return o.gauges.Load().Stores() }
	archives := func() iter.Seq2[string, ArchiveStats] { return o.gauges.Load().Archives() }
	o.registry.MustRegister(&collector[*Gauges]{"", service, serviceSeries}, &collector[int64]{"kind", memory, memorySeries},
		&collector[int]{"caller", o.callersInFlight, callersInFlight}, &collector[fetch.ConnectionStats]{"", connections, connectionSeries},
		&collector[StoreStats]{"store", stores, storeSeries}, &collector[ArchiveStats]{"store", archives, archiveSeries})
}

// one returns a value without a name.
func one[T any](value T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { yield("", value) }
}

// collector collects the numbers of all things of a kind at the same instant.
type collector[T any] struct {
	label  string // whose values are the names of the things; empty if there is one thing
	each   func() iter.Seq2[string, T]
	series []series[T]
}

// series is a metric, or the part of it with one value of a further label.
type series[T any] struct {
	kind         prometheus.ValueType
	name, help   string
	value        func(T) float64
	label, other string // the further label and its value
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func (c *collector[T]) desc(s *series[T]) *prometheus.Desc {
	labels := slices.DeleteFunc([]string{c.label, s.label}, func(name string) bool { return name == "" })
	return prometheus.NewDesc(s.name, s.help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *collector[T]) Describe(to chan<- *prometheus.Desc) {
	for i := range c.series {
		to <- c.desc(&c.series[i])
	}
}

// Collect implements prometheus.Collector.
func (c *collector[T]) Collect(to chan<- prometheus.Metric) {
	for name, thing := range c.each() {
		for i := range c.series {
			s := &c.series[i]
			var values []string
			if c.label != "" {
				values = append(values, name)
			}
			if s.label != "" {
				values = append(values, s.other)
			}
			to <- prometheus.MustNewConstMetric(c.desc(s), s.kind, s.value(thing), values...)
		}
	}
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

var serviceSeries = []series[*Gauges]{
	{gauge, "fetchd_fetches_in_flight", "Fetches in flight.", func(g *Gauges) float64 {
		n, _ := g.Fetches()
		return float64(n)
	}, "", ""},
	{gauge, "fetchd_fetches_limit", "Maximum number of fetches in flight.", func(g *Gauges) float64 {
		_, limit := g.Fetches()
		return float64(limit)
	}, "", ""},
	{gauge, "fetchd_memory_budget_bytes", "Maximum number of bytes held for callers.", func(g *Gauges) float64 {
		_, budget := g.Memory()
		return float64(budget)
	}, "", ""},
	{gauge, "fetchd_draining", "1 while the server is shutting down.", func(g *Gauges) float64 { return flag(g.Draining()) }, "", ""},
}

var memorySeries = []series[int64]{
	{gauge, "fetchd_memory_bytes", "Bytes held for callers, by kind, and for idle connections to origins.", func(n int64) float64 { return float64(n) }, "", ""},
}

var connectionSeries = []series[fetch.ConnectionStats]{
	{gauge, "fetchd_connections_open", "Open connections to origins.", func(n fetch.ConnectionStats) float64 { return float64(n.Open) }, "", ""},
	{gauge, "fetchd_connections_idle", "Open connections to origins that no request uses.", func(n fetch.ConnectionStats) float64 { return float64(n.Idle) }, "", ""},
	{counter, "fetchd_connections_dialled_total", "Connections to origins that were made.", func(n fetch.ConnectionStats) float64 { return float64(n.Dialled) }, "", ""},
	{counter, "fetchd_connections_reused_total", "Requests that used a connection that had carried another request.",
		func(n fetch.ConnectionStats) float64 { return float64(n.Reused) }, "", ""},
	{counter, "fetchd_connections_stale_total", "Idle connections to origins that were found dead. No request was sent on them.",
		func(n fetch.ConnectionStats) float64 { return float64(n.Stale) }, "", ""},
	{counter, "fetchd_connections_surplus_total",
		"Connections that were closed because the origin sent bytes over HTTP/1.1 that were not requested. Connections to it are not reused for a minute.",
		func(n fetch.ConnectionStats) float64 { return float64(n.Surplus) }, "", ""},
}

const uploads = "Uploads that ended: committed, failed (by the store) or aborted (the fetch did not succeed)."

var storeSeries = []series[StoreStats]{
	{gauge, "fetchd_store_up", "0 while a store refuses bodies because the last uploads failed. 1 again if no fetch has tried it for a minute.",
		func(n StoreStats) float64 { return flag(n.Up) }, "", ""},
	{gauge, "fetchd_store_uploads_in_flight", "Uploads to a store that have not ended.", func(n StoreStats) float64 { return float64(n.InFlight) }, "", ""},
	{counter, "fetchd_store_uploads_total", uploads, func(n StoreStats) float64 { return float64(n.Committed) }, "result", "committed"},
	{counter, "fetchd_store_uploads_total", uploads, func(n StoreStats) float64 { return float64(n.Failed) }, "result", "failed"},
	{counter, "fetchd_store_uploads_total", uploads, func(n StoreStats) float64 { return float64(n.Aborted) }, "result", "aborted"},
	{counter, "fetchd_store_bytes_total", "Bytes of the objects that were committed.", func(n StoreStats) float64 { return float64(n.Bytes) }, "", ""},
	{counter, "fetchd_store_request_errors_total", "Requests to a store that failed, including those that were repeated.",
		func(n StoreStats) float64 { return float64(n.RequestErrors) }, "", ""},
}

const records = "Records that were written, by type."

var archiveSeries = []series[ArchiveStats]{
	{gauge, "fetchd_archive_up", "0 while a store refuses records, because the last ones could not be written or the space is used up.",
		func(n ArchiveStats) float64 { return flag(n.Up) }, "", ""},
	{counter, "fetchd_archive_records_total", records, func(n ArchiveStats) float64 { return float64(n.Requests) }, "type", "request"},
	{counter, "fetchd_archive_records_total", records, func(n ArchiveStats) float64 { return float64(n.Responses) }, "type", "response"},
	{counter, "fetchd_archive_records_total", records, func(n ArchiveStats) float64 { return float64(n.Revisits) }, "type", "revisit"},
	{counter, "fetchd_archive_bytes_total", "Bytes of these records, in the files.", func(n ArchiveStats) float64 { return float64(n.Bytes) }, "", ""},
	{counter, "fetchd_archive_errors_total", "Operations on files, and uploads, that failed.", func(n ArchiveStats) float64 { return float64(n.Errors) }, "", ""},
	{gauge, "fetchd_archive_spool_bytes", "Bytes of exchanges in flight in temporary files.", func(n ArchiveStats) float64 { return float64(n.SpoolBytes) }, "", ""},
	{gauge, "fetchd_archive_files_open", "WARC files that are not whole.", func(n ArchiveStats) float64 { return float64(n.OpenFiles) }, "", ""},
	{gauge, "fetchd_archive_files_waiting", "Whole WARC files that wait for their upload.", func(n ArchiveStats) float64 { return float64(n.WaitingFiles) }, "", ""},
	{gauge, "fetchd_archive_waiting_bytes", "Bytes of the WARC files that wait for their upload.", func(n ArchiveStats) float64 { return float64(n.WaitingBytes) }, "", ""},
	{gauge, "fetchd_archive_oldest_waiting_seconds", "How long the oldest WARC file has waited for its upload. 0 if none waits.",
		func(n ArchiveStats) float64 { return n.OldestWaiting.Seconds() }, "", ""},
}
