package cli

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tt := range []struct {
		text string
		want time.Duration // -1: an error
	}{
		{"90s", 90 * time.Second},
		{"1h30m", 90 * time.Minute},
		{"0", 0},
		{"-5s", -5 * time.Second},
		{"7d", 7 * day},
		{"2w", 14 * day},
		{"1w1d", 8 * day},
		{"1d12h", 36 * time.Hour},
		{"1d0.5h", day + 30*time.Minute},
		{"0d", 0},
		{"9999w9999d", (9999*7 + 9999) * day},
		{"", -1},
		{"7", -1},
		{"d", -1},
		{"w1d", -1},
		{"1d1w", -1},
		{"12h1d", -1},
		{"1.5d", -1},
		{"-1d", -1},
		{"1d-1h", -1},
		{"1d+1h", -1},
		{"1d 1h", -1},
		{"10000d", -1},
		{"9999w2562047h", -1}, // beyond 292 years
		{"1dx", -1},
	} {
		got, err := ParseDuration(tt.text)
		if tt.want == -1 && err == nil || tt.want != -1 && (err != nil || got != tt.want) {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
}
