package robots

import (
	"slices"
	"strings"
)

const (
	// MaxSitemaps is how many Sitemap lines of a file count.
	MaxSitemaps = 1000
	// maxSitemap is the maximum length of their URLs, in bytes.
	maxSitemap = 8 << 10
)

// Sitemaps returns the values of the Sitemap lines of a file, each once. They belong to no group,
// and may be anything: https://www.sitemaps.org/protocol.html#submit_robots.
func Sitemaps(body []byte) []string {
	if len(body) > MaxBytes {
		body = wholeLines(body[:MaxBytes+1])
	}
	rest := string(trimMark(body))
	var found []string
	for rest != "" && len(found) < MaxSitemaps {
		var line string
		line, rest = nextLine(rest)
		line, _, _ = strings.Cut(line, "#")
		name, value := record(line)
		if strings.EqualFold(name, "sitemap") && value != "" && len(value) <= maxSitemap && !slices.Contains(found, value) {
			found = append(found, strings.Clone(value))
		}
	}
	return found
}
