package observe

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Gauges holds the functions that each scrape calls. They must not block. The value
// of a nil function is zero.
type Gauges struct {
	// Fetches returns the number of fetches in flight and its limit.
	Fetches func() (inFlight, limit int)
	// Memory returns the bytes held for callers, by kind, and the memory budget.
	Memory func() (byKind map[string]int64, budget int64)
	// Draining reports whether the server is shutting down.
	Draining func() bool
}

// Gauges sets the functions that each scrape calls. It replaces those of an earlier
// call.
func (m *Metrics) Gauges(g Gauges) {
	if g.Fetches == nil {
		g.Fetches = func() (int, int) { return 0, 0 }
	}
	if g.Memory == nil {
		g.Memory = func() (map[string]int64, int64) { return nil, 0 }
	}
	if g.Draining == nil {
		g.Draining = func() bool { return false }
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
	m.registry.MustRegister(&memoryCollector{m})
}

// memoryCollector collects the bytes of all kinds at the same instant.
type memoryCollector struct{ metrics *Metrics }

var memoryBytes = prometheus.NewDesc("fetchd_memory_bytes", "Bytes held for callers, by kind.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (c *memoryCollector) Describe(to chan<- *prometheus.Desc) { to <- memoryBytes }

// Collect implements prometheus.Collector.
func (c *memoryCollector) Collect(to chan<- prometheus.Metric) {
	byKind, _ := c.metrics.gauges.Load().Memory()
	for kind, n := range byKind {
		to <- prometheus.MustNewConstMetric(memoryBytes, prometheus.GaugeValue, float64(n), kind)
	}
}
