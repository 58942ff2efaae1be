package robots_test

import (
	"strings"
	"testing"
	"time"

	"fetchd/frontier/robots"
)

// TestCrawlDelayIsThatOfItsDefinition compares every short file with the definition: an agent line
// gets the longest delay that follows it, and an agent gets the longest delay of its lines.
func TestCrawlDelayIsThatOfItsDefinition(t *testing.T) {
	t.Parallel()
	lines := []string{"User-agent: a", "User-agent: b", "Crawl-delay: 1", "Crawl-delay: 2", "Crawl-delay: 3", "Disallow: /"}
	const length = 6
	file := make([]string, length)
	var each func(n int)
	each = func(n int) {
		if n < length {
			for _, line := range lines {
				file[n] = line
				each(n + 1)
			}
			return
		}
		text := strings.Join(file, "\n")
		for _, agent := range []string{"a", "b"} {
			if got, want := robots.Parse([]byte(text), agent).CrawlDelay, defined(file, agent); got != want {
				t.Errorf("agent %s: delay %v, want %v; file:\n%s", agent, got, want, text)
			}
		}
	}
	each(0)
}

// defined implements the definition: it visits all agents of a group for each delay.
func defined(file []string, agent string) (longest time.Duration) {
	var group []string
	ruled := false
	for _, line := range file {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "User-agent":
			if ruled {
				group, ruled = nil, false
			}
			group = append(group, value)
		case "Disallow":
			ruled = len(group) > 0
		case "Crawl-delay":
			for _, a := range group {
				if a == agent {
					longest = max(longest, time.Duration(value[0]-'0')*time.Second)
				}
			}
		}
	}
	return longest
}
