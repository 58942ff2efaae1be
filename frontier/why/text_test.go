package why

import (
	"testing"
	"time"
)

func TestRelative(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "now"},
		{499 * time.Millisecond, "now"},
		{-499 * time.Millisecond, "now"},
		{500 * time.Millisecond, "in 1s"},
		{-time.Second, "1s ago"},
		{4*time.Minute + 10*time.Second, "in 4m10s"},
		{47*time.Hour + time.Minute, "in 47h1m0s"},
		{-51 * time.Hour, "2d3h ago"},
	} {
		if got := Relative(now.Add(tt.d), now); got != tt.want {
			t.Errorf("Relative(now%+v) = %q, want %q", tt.d, got, tt.want)
		}
	}
}

func TestRemedy(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{
		"":              `"frontier retry" tries again`,
		"a new one\x1b": `"frontier retry --class a new one\x1b" tries these URLs again`,
		"deadline":      `the fetch took longer than --total-timeout: raise it; "frontier retry --class deadline" tries these URLs again`,
	} {
		if got := Remedy(class); got != want {
			t.Errorf("Remedy(%q) = %q, want %q", class, got, want)
		}
	}
}
