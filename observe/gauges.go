package observe

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Gauges are the functions that each scrape asks. They must return at once. One
// that is nil reads as zero.
type Gauges struct {
	// Fetches returns how many are under way, and how many may be.
	Fetches func() (inFlight, limit int)
	// HoldBack is [fetch.Client.HoldBack].
	HoldBack func() (granted, budget int64)
	// Unread returns the bytes of the answers that callers have not read.
	Unread func() int64
	// Draining tells that the server is shutting down.
	Draining func() bool
}

// Gauges takes the functions that are asked with each scrape. Those of a second
// server take the place of the first's.
func (m *Metrics) Gauges(g Gauges) {
	if g.Fetches == nil {
		g.Fetches = func() (int, int) { return 0, 0 }
	}
	if g.HoldBack == nil {
		g.HoldBack = func() (int64, int64) { return 0, 0 }
	}
	if g.Unread == nil {
		g.Unread = func() int64 { return 0 }
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
		{"fetchd_fetches_in_flight", "Fetches under way.", func(g *Gauges) float64 {
			n, _ := g.Fetches()
			return float64(n)
		}},
		{"fetchd_fetches_limit", "Fetches that may be under way at once.", func(g *Gauges) float64 {
			_, limit := g.Fetches()
			return float64(limit)
		}},
		{"fetchd_hold_back_bytes", "Bytes of bodies that may be held back by the fetches under way.", func(g *Gauges) float64 {
			granted, _ := g.HoldBack()
			return float64(granted)
		}},
		{"fetchd_hold_back_budget_bytes", "Bytes of bodies that all fetches together may hold back.", func(g *Gauges) float64 {
			_, budget := g.HoldBack()
			return float64(budget)
		}},
		{"fetchd_unread_answer_bytes", "Bytes of long answers that their callers have not read.", func(g *Gauges) float64 {
			return float64(g.Unread())
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
}
