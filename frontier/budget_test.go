package frontier

import (
	"testing"
	"time"

	"fetchd/cmd/frontier/site"
	"fetchd/frontier/store"
)

func TestBudgetOver(t *testing.T) {
	t.Parallel()
	used := store.Use{Bytes: 1000, Duration: time.Minute}
	for _, row := range []struct {
		name   string
		budget Budget
		want   string
	}{
		{"no budget", Budget{}, ""},
		{"budgets of the crawl", Budget{Bytes: 1, Time: 1}, ""},
		{"more bytes", Budget{HostBytes: 1001}, ""},
		{"all bytes", Budget{HostBytes: 1000}, "the host has used 1000 bytes of 1000"},
		{"fewer bytes", Budget{HostBytes: 10, HostTime: time.Hour}, "the host has used 1000 bytes of 10"},
		{"more time", Budget{HostTime: time.Minute + 1}, ""},
		{"all time", Budget{HostTime: time.Minute}, "the fetches of the host took 1m0s of 1m0s"},
	} {
		if got := row.budget.over(used); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// TestHostBudget checks that a host over its time is aborted, and another one is not.
func TestHostBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, time.Millisecond, site.Config{})
	slow, fast := r.site.URL("slow", "/slow/300/1"), r.site.URL("fast", "/p/1")
	r.add(slow, r.site.URL("slow", "/p/1"), r.site.URL("slow", "/p/2"), fast, r.site.URL("fast", "/p/2"))
	r.config.Budget.HostTime = 300 * time.Millisecond
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
