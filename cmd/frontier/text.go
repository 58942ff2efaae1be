package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"fetchd/frontier/normal"
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

// normalURL returns the normal form of a URL of the command line, or a usage error. A text with an @ may
// contain a password, so it is not repeated.
func normalURL(field, text string) (string, error) {
	u, err := normal.NormalizeURL(text)
	if err == nil {
		return u, nil
	}
	if err := cli.CheckScheme(field, text); err != nil {
		return "", err
	}
	shown := "it"
	if !strings.Contains(text, "@") {
		shown = fmt.Sprintf("%.80q", text)
	}
	return "", cli.UsageError(field, fmt.Sprintf("%s is not usable: %v: give a complete URL, such as https://example.org/", shown, err))
}

// stamp formats a time: RFC 3339 in UTC with milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
