package frontier

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"fetchd/cmd/frontier/site"
)

// TestMetrics checks the counters after a crawl, and the gauges of the tables.
func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	r := newRig(t, time.Millisecond, site.Config{})
	r.config.Metrics, r.config.IgnoreRobots = NewMetrics(registry), false
	r.add(r.site.URL("a", "/p/1"), r.site.URL("a", "/nothing"), r.site.URL("b", "/p/2"))
	r.crawl()
	must(t, r.store.Pause(t.Context(), ""))
	counts, err := r.store.Counts(t.Context())
	must(t, err)
	r.config.Metrics.Counted(counts)
	want := `
# HELP frontier_outcomes_total Recorded outcomes, by status of the URL and by error class.
# TYPE frontier_outcomes_total counter
frontier_outcomes_total{error_class="",status="fetched"} 2
frontier_outcomes_total{error_class="http_client_error",status="dead"} 1
# HELP frontier_paused 1 while the whole crawl is paused.
# TYPE frontier_paused gauge
frontier_paused 1
# HELP frontier_robots_total Fetches of a robots.txt, successful or not.
# TYPE frontier_robots_total counter
frontier_robots_total 2
# HELP frontier_urls URLs in the frontier, by status.
# TYPE frontier_urls gauge
frontier_urls{status="dead"} 1
frontier_urls{status="failed"} 0
frontier_urls{status="fetched"} 2
frontier_urls{status="fetching"} 0
frontier_urls{status="pending"} 0
`
	names := []string{"frontier_outcomes_total", "frontier_robots_total", "frontier_urls", "frontier_paused"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
