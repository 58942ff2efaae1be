package frontier

import (
	"testing"
	"time"
)

// TestSlowStart checks how many URLs have started after a time if as many start as allowed.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, row := range []struct {
		name  string
		hosts int64
		delay time.Duration
		open  int
		after time.Duration
		want  int // of 1,000,000
	}{
		{"at once", 10_000, 5 * s, 256, 0, 1},
		{"after a second", 10_000, 5 * s, 256, s, 2001},
		{"just before its end", 10_000, 5 * s, 256, 5*s - time.Millisecond, 9999},
		{"after its end", 10_000, 5 * s, 256, 5 * s, 1_000_000},
		{"a long delay keeps nobody waiting for it", 10_000, time.Hour, 256, s, 501},
		{"nor after the last host has started", 10_000, time.Hour, 256, 20 * s, 1_000_000},
		{"fewer hosts than places", 256, 5 * s, 256, 0, 1_000_000},
		{"one more", 257, 5 * s, 256, 0, 1},
		{"no delay", 10_000, 0, 256, 0, 1_000_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			began := time.Unix(1_000_000, 0)
			r := newSlowStart(began, row.hosts, row.delay, row.open)
			got := 0
			for range 2 { // URLs that have started count, and no more may start at the same time
				n := r.allowed(began.Add(row.after), 1_000_000-got)
				r.add(n)
				got += n
			}
			if got != row.want {
				t.Errorf("%d may have started after %v, want %d", got, row.after, row.want)
			}
		})
	}
}
