package frontier

import (
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
)

// TestHostBudget checks that a host over its budget is aborted, and another one is not.
func TestHostBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	slow, fast := r.site.URL("slow", "/slow/300/1"), r.site.URL("fast", "/p/1")
	r.add(slow, r.site.URL("slow", "/p/1"), r.site.URL("slow", "/p/2"), fast, r.site.URL("fast", "/p/2"))
	r.config.Budget.HostBytes = 1
	r.crawl()
	for u, want := range map[string]string{slow: "", r.site.URL("slow", "/p/1"): ClassOverBudget, r.site.URL("slow", "/p/2"): ClassOverBudget, fast: ""} {
		if row := r.row(u); row.ErrorClass != want {
			t.Errorf("%s: class %q, want %q", u, row.ErrorClass, want)
		}
	}
	for _, p := range r.paths() {
		if p == "slow.demo.test/p/1" || p == "slow.demo.test/p/2" {
			t.Errorf("request of %s", p)
		}
	}
}
