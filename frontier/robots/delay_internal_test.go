package robots

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A Crawl-delay line looks at delays, and never at agents: at those that it takes
// out, each of which was put in once, and at one more.
func TestCrawlDelaysTakeStepsAsTheirLines(t *testing.T) {
	t.Parallel()
	const lines = 1 << 14
	for _, row := range []struct {
		name string
		line func(i int) string
	}{
		{"one delay", func(int) string { return "Crawl-delay: 1" }},
		{"rising", func(i int) string { return fmt.Sprint("Crawl-delay: ", i) }},
		{"falling", func(i int) string { return fmt.Sprint("Crawl-delay: ", lines-i) }},
		{"falling, then one that is longer", func(i int) string { return fmt.Sprint("Crawl-delay: ", lines-i%100) }},
		{"an agent before each", func(i int) string {
			return [...]string{"User-agent: b", fmt.Sprint("Crawl-delay: ", lines-i)}[i%2]
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := parser{file: &File{}}
			for i := range lines {
				p.line(i, "User-agent: a")
			}
			agents, steps := len(p.group.agents), 0
			for i := range lines {
				before := len(p.group.delays)
				p.line(lines+i, row.line(i))
				steps += max(0, before-len(p.group.delays)) + 2
			}
			if steps > 3*lines {
				t.Errorf("%d lines after %d agents: %d delays looked at, want at most 3 a line", lines, agents, steps)
			}
			if got := p.file.Rules("a").CrawlDelay; got == 0 {
				t.Error("the delay of the first agent is zero")
			}
		})
	}
}

// Every short group says what the definition says: each agent line has the longest
// delay told after it, and an agent the longest of its lines.
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
			if got, want := Parse([]byte(text)).Rules(agent).CrawlDelay, defined(file, agent); got != want {
				t.Errorf("agent %s: delay %v, want %v; file:\n%s", agent, got, want, text)
			}
		}
	}
	each(0)
}

// defined walks all agents of a group at each delay.
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
