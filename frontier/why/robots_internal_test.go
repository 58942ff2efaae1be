package why

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fetchd/frontier"
	"fetchd/frontier/robots"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
)

func TestRobotsFact(t *testing.T) {
	t.Parallel()
	decision := func(allowed bool, r robots.Reason) robots.Decision {
		return robots.Decision{Allowed: allowed, Reason: r, Line: robots.Line{Number: 3, Text: "Disallow: /p/"}}
	}
	for _, tt := range []struct {
		name  string
		state rulebook.State
		want  string
	}{
		{"not read", rulebook.State{}, "not read yet"},
		{"forbidden", rulebook.State{Known: true, Age: time.Hour, Decision: decision(false, robots.ByRule)}, "line 3, Disallow: /p/ (read 1h0m0s ago)"},
		{"forbidden by what is left", rulebook.State{Known: true, Cause: "status 503", UnreachableFor: 31 * 24 * time.Hour, Decision: decision(false, robots.ByRule)},
			"line 3, Disallow: /p/ (as last read; unreachable for 31d0h: status 503)"},
		{"no rule", rulebook.State{Known: true, Decision: decision(true, robots.NoRule)}, "no line matches it (read 0s ago)"},
		{"no file", rulebook.State{Known: true, Cause: "status 404", Age: time.Minute, Decision: decision(true, robots.Unavailable)},
			"there is none, so everything is allowed: status 404 (fetched 1m0s ago)"},
		{"out of reach", rulebook.State{Known: true, Cause: "dns_not_found", Age: time.Minute, UnreachableFor: 3 * time.Hour, Decision: decision(false, robots.Unreachable)},
			"unreachable for 3h0m0s: dns_not_found (tried 1m0s ago)"},
		{"the file itself", rulebook.State{Known: true, Decision: decision(true, robots.RobotsTxt)}, "is always allowed (read 0s ago)"},
	} {
		if got := RobotsFact(&tt.state); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRobotsReason(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	away := rulebook.State{Origin: "https://a.test", Known: true, Cause: "dns_not_found", UnreachableFor: 3 * time.Hour}
	e := &Evidence{Explanation: store.Explanation{Now: now}, Robots: away}
	const text = "The robots.txt of its origin, https://a.test, is unreachable for 3h0m0s: dns_not_found"
	const next = ". No URL of this origin is fetched until it can be read; it is tried again "
	diff(t, "out of reach", text+next+"with the next turn of the host.", robotsReason(e).Text)
	e.Deferred = now.Add(time.Minute)
	diff(t, "held back", text+next+"in 1m0s at the earliest.", robotsReason(e).Text)
	e.URL.ReadyAt = now.Add(2 * time.Minute)
	diff(t, "held back, and the URL waits", text+next+"in 2m0s at the earliest.", robotsReason(e).Text)
	e.Robots.Text = "there is no such \x1bname."
	diff(t, "with what fetchd said", text+`: there is no such \x1bname`+next+"in 2m0s at the earliest.", robotsReason(e).Text)
	e.Robots.Text = ""
	e.Robots.Decision = robots.Decision{Reason: robots.ByRule, Line: robots.Line{Number: 2, Text: "Disallow: /"}}
	diff(t, "forbidden by what is left", "robots.txt forbids it: line 2, Disallow: / (as last read; unreachable for 3h0m0s: dns_not_found).", robotsReason(e).Text)
	e.URL.ErrorClass = frontier.ClassRobotsDisallowed
	diff(t, "dead", "; robots.txt: line 2, Disallow: / (as last read; unreachable for 3h0m0s: dns_not_found)", robotsNow(e))
	e.Robots = rulebook.State{}
	diff(t, "dead, and nothing known", "", robotsNow(e))
}

func diff(t *testing.T, what, want, got string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
