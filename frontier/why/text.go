package why

import (
	"fmt"
	"time"
)

// Relative formats t relative to now: "in 4m10s", "3s ago", "now".
func Relative(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d >= time.Second/2:
		return "in " + Span(d)
	case d <= -time.Second/2:
		return Span(-d) + " ago"
	}
	return "now"
}

// Span formats a duration in seconds, or in hours from two days on.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return d.Round(time.Second).String()
}
