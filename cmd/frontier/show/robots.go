package show

import (
	"context"
	"fmt"
	"strings"

	"fetchd/cmd/frontier/crawl"
	"fetchd/frontier/robots"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// Robots is what is known about the robots.txt files of a host.
type Robots struct {
	host  string
	files []rulebook.State
	urls  []checkedURL
}

// checkedURL is a URL of --url, and what robots.txt says about it.
type checkedURL struct {
	url   string
	state rulebook.State
}

// ReadRobots reads what is known, and what applies to URLs of the host.
func ReadRobots(ctx context.Context, s store.Store, userAgent, host string, urls []string) (*Robots, error) {
	found := &Robots{host: host}
	for _, origin := range crawl.Origins(host) {
		state, err := rulebook.Ask(ctx, s, userAgent, origin+"/")
		if err != nil {
			return nil, err
		}
		found.files = append(found.files, state)
	}
	for _, u := range urls {
		state, err := rulebook.Ask(ctx, s, userAgent, u)
		if err != nil {
			return nil, err
		}
		found.urls = append(found.urls, checkedURL{u, state})
	}
	return found, nil
}

// Any reports whether a file was read, or is to be read again.
func (h *Robots) Any() bool {
	for _, f := range h.files {
		if f.Known || f.Refresh {
			return true
		}
	}
	return false
}

// Text formats the files for people.
func (h *Robots) Text() string {
	var b strings.Builder
	for _, f := range h.files {
		fmt.Fprintf(&b, "%s/robots.txt\n", cli.Escape(f.Origin))
		for _, line := range fileFacts(&f) {
			fmt.Fprintf(&b, "  %-12s %s\n", line.name, cli.Escape(line.text))
		}
	}
	for _, u := range h.urls {
		fmt.Fprintf(&b, "%s\n  %-12s %s\n", cli.Escape(u.url), verdictOf(&u.state), cli.Escape(why.RobotsFact(&u.state)))
	}
	return b.String()
}

// verdictOf says whether a URL may be fetched.
func verdictOf(r *rulebook.State) string {
	switch {
	case !r.Known:
		return "not known"
	case r.Decision.Allowed:
		return "allowed"
	case r.Decision.Reason == robots.Unreachable:
		return "waits"
	}
	return "forbidden"
}

// fileFacts returns what is known about a file.
func fileFacts(r *rulebook.State) []fact {
	switch {
	case r.Refresh:
		return []fact{{"fetched", "again by the next worker that needs it"}}
	case !r.Known:
		return []fact{{"fetched", "not yet"}}
	}
	fetched := why.Span(r.Age) + " ago"
	if !r.Fresh {
		fetched += ", so it is fetched again before the next URL"
	}
	facts := []fact{{"fetched", fetched}}
	if r.Status > 0 {
		facts = append(facts, fact{"status", fmt.Sprint(r.Status)})
	}
	if r.UnreachableFor > 0 {
		facts = append(facts, fact{"unreachable", fmt.Sprintf("for %s: %s", why.Span(r.UnreachableFor), why.RobotsCause(r))})
	}
	if r.Rules == nil {
		if r.UnreachableFor == 0 {
			facts = append(facts, fact{"rules", "none: everything is allowed"})
		}
		return facts
	}
	delay := "none"
	if r.Rules.CrawlDelay > 0 {
		delay = r.Rules.CrawlDelay.String()
	}
	facts = append(facts, fact{"rules", ruleFact(r)}, fact{"crawl delay", delay}, fact{"size", fmt.Sprintf("%d bytes", r.Size)})
	for _, sitemap := range r.Sitemaps {
		facts = append(facts, fact{"sitemap", sitemap})
	}
	return facts
}

// ruleFact says which rules of a file apply.
func ruleFact(r *rulebook.State) string {
	n := fmt.Sprintf("%d", r.Rules.Len())
	switch r.Rules.Group {
	case "":
		n = "none: no group applies to this crawler"
	case "*":
		n += `, of the group for all crawlers ("*")`
	default:
		n += fmt.Sprintf(", of the group %q", r.Rules.Group)
	}
	if r.UnreachableFor > 0 {
		n += " of the last file; they apply after 30 days"
	}
	return n
}

// RobotsReport is the JSON of "frontier robots".
type RobotsReport struct {
	Host  string        `json:"host"`
	Files []robotsFile  `json:"files"`
	URLs  []robotsCheck `json:"urls,omitempty"`
}

// robotsFile is one robots.txt. If known is false, only origin and refresh have a meaning.
type robotsFile struct {
	Origin        string   `json:"origin"`
	Known         bool     `json:"known"`
	Refresh       bool     `json:"refresh"` // it will be fetched again
	Fresh         bool     `json:"fresh"`
	AgeMS         int64    `json:"age_ms"`
	Status        int      `json:"status"`
	Cause         string   `json:"cause,omitempty"` // why there is no file
	Text          string   `json:"text,omitempty"`  // what fetchd said about the error
	UnreachableMS int64    `json:"unreachable_ms"`
	Group         string   `json:"group,omitempty"`
	Rules         int      `json:"rules"`
	CrawlDelayMS  int64    `json:"crawl_delay_ms"`
	Size          int      `json:"size"`
	Sitemaps      []string `json:"sitemaps"`
}

type robotsCheck struct {
	URL string `json:"url"`
	robotsFigures
}

// Report returns the files as JSON.
func (h *Robots) Report() RobotsReport {
	report := RobotsReport{Host: h.host}
	for _, f := range h.files {
		file := robotsFile{Origin: f.Origin, Known: f.Known, Refresh: f.Refresh, Fresh: f.Fresh, AgeMS: f.Age.Milliseconds(), Status: f.Status,
			Cause: f.Cause, Text: f.Text, UnreachableMS: f.UnreachableFor.Milliseconds(), Size: f.Size, Sitemaps: append([]string{}, f.Sitemaps...)}
		if f.Rules != nil {
			file.Group, file.Rules, file.CrawlDelayMS = f.Rules.Group, f.Rules.Len(), f.Rules.CrawlDelay.Milliseconds()
		}
		report.Files = append(report.Files, file)
	}
	for _, u := range h.urls {
		report.URLs = append(report.URLs, robotsCheck{u.url, robotsFiguresOf(&u.state)})
	}
	return report
}
