package frontier

import (
	"testing"

	"fetchd/cmd/frontier/site"
)

// TestSeen checks that a worker is listed while it runs, and not after a clean stop.
func TestSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, site.Config{})
	r.config.Name, r.config.Endless = "w1", true
	names := func() (names []string) {
		t.Helper()
		all, err := r.store.Workers(t.Context())
		must(t, err)
		for _, w := range all {
			names = append(names, w.Name)
		}
		return names
	}
	stop := r.start(r.worker())
	r.await("the worker", func() bool { n := names(); return len(n) == 1 && n[0] == "w1" })
	stop()
	if n := names(); len(n) > 0 {
		t.Errorf("workers after the stop: %q, want none", n)
	}
}
