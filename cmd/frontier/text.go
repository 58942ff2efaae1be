package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"fetchd/internal/cli"
)

// secrets are the places of an address where a password can stand. In that of a
// database what is taken for one is rather too long than too short.
var secrets = regexp.MustCompile(`(?i)(postgres(?:ql)?://)\S*@|(://)[^\s/?#]*@|(password\s*=\s*)(?:'[^']*'|[^\s&]+)`)

// safe makes text fit for one line that anyone may read: no controls, no passwords.
func safe(s string) string {
	return cli.Escape(secrets.ReplaceAllStringFunc(strings.Join(strings.Fields(s), " "), func(match string) string {
		if strings.HasSuffix(match, "@") {
			return match[:strings.Index(match, "://")+3] + "xxxxx@"
		}
		name, _, _ := strings.Cut(match, "=")
		return name + "=xxxxx"
	}))
}

// relative says how far t is from now: "in 4m10s", "3s ago", "now".
func relative(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d >= time.Second/2:
		return "in " + span(d)
	case d <= -time.Second/2:
		return span(-d) + " ago"
	}
	return "now"
}

// span writes a duration to the second, and one of two days or more to the hour.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return d.Round(time.Second).String()
}

// stamp is a time as this program writes it: RFC 3339 in UTC, to the millisecond.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
