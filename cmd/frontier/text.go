package main

import (
	"regexp"
	"strings"
	"time"

	"fetchd/internal/cli"
)

// secrets matches the parts of an address that may contain a password. For an address of a database
// it prefers to match too much.
var secrets = regexp.MustCompile(`(?i)(postgres(?:ql)?://)\S*@|(://)[^\s/?#]*@|(password\s*=\s*)(?:'[^']*'|[^\s&]+)`)

// safe makes text safe for one line of output: no control characters, no passwords.
func safe(s string) string {
	return cli.Escape(secrets.ReplaceAllStringFunc(strings.Join(strings.Fields(s), " "), func(match string) string {
		if strings.HasSuffix(match, "@") {
			return match[:strings.Index(match, "://")+3] + "xxxxx@"
		}
		name, _, _ := strings.Cut(match, "=")
		return name + "=xxxxx"
	}))
}

// stamp formats a time: RFC 3339 in UTC with milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
