package frontier

import (
	"context"
	"errors"
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
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range all {
			names = append(names, w.Name)
		}
		return names
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := r.run(ctx, r.worker())
	r.await("the worker", func() bool { n := names(); return len(n) == 1 && n[0] == "w1" })
	cancel(errEnough)
	if err := <-ended; !errors.Is(err, errEnough) {
		t.Errorf("Run = %v, want what ended it", err)
	}
	if n := names(); len(n) > 0 {
		t.Errorf("workers after the stop: %q, want none", n)
	}
}
