package main

import (
	"context"
	"fmt"
	"strings"

	"fetchd/frontier"
	"fetchd/frontier/normal"
	"fetchd/frontier/robots"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// robotsCmd is "frontier robots".
type robotsCmd struct {
	database
	Host      string   `arg:"" help:"A host, or a URL of it."`
	URL       []string `name:"url" sep:"none" placeholder:"URL" help:"Also say whether this URL of the host is allowed, and by which line. Repeatable."`
	Refresh   bool     `help:"Have the files fetched again, by the next worker that needs them."`
	JSON      bool     `name:"json" help:"Print one line of JSON."`
	UserAgent string   `default:"${agent}" help:"Name of the crawler, as for \"frontier run\". Its leading letters, _ and - select the rules."`
}

func (c *robotsCmd) run(ctx context.Context, a *app) int {
	host, err := hostKey(c.Host)
	if err != nil {
		return a.end(ctx, err)
	}
	urls, err := c.urls(host)
	if err != nil {
		return a.end(ctx, err)
	}
	m := readOnly
	if c.Refresh {
		m = existing
	}
	return c.with(ctx, a, m, func(s store.Store) error {
		note, err := unknownHost(ctx, s, host)
		if err != nil {
			return err
		}
		if c.Refresh {
			if _, err := s.RefreshRobots(ctx, originsOf(host)); err != nil {
				return err
			}
		}
		found, err := c.read(ctx, s, host, urls)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		if c.JSON {
			writeJSON(out, found.figures())
		} else {
			out.Printf("%s%s", found.text(), note)
		}
		if err := out.End(); err != nil || found.any() {
			return err
		}
		return cli.PrintedError(cli.ExitNothing, "no robots.txt of the host was read yet")
	})
}

// urls returns the normal forms of --url.
func (c *robotsCmd) urls(host string) ([]string, error) {
	var urls []string
	for _, raw := range c.URL {
		u, err := normalURL("--url", raw)
		if err != nil {
			return nil, err
		}
		if of, err := normal.ExtractHost(u); err != nil || of != host {
			return nil, cli.UsageError("--url", fmt.Sprintf("%.80q is not a URL of %s: give one of this host", u, host))
		}
		urls = append(urls, u)
	}
	return urls, nil
}

// originsOf returns the origins of a host, each of which may have a robots.txt.
func originsOf(host string) []string { return []string{"https://" + host, "http://" + host} }

// hostRobots is what is known about the robots.txt files of a host.
type hostRobots struct {
	host  string
	files []frontier.RobotsState
	urls  []checkedURL
}

// checkedURL is a URL of --url, and what robots.txt says about it.
type checkedURL struct {
	url   string
	state frontier.RobotsState
}

func (c *robotsCmd) read(ctx context.Context, s store.Store, host string, urls []string) (*hostRobots, error) {
	found := &hostRobots{host: host}
	for _, origin := range originsOf(host) {
		state, err := frontier.AskRobots(ctx, s, c.UserAgent, origin+"/")
		if err != nil {
			return nil, err
		}
		found.files = append(found.files, state)
	}
	for _, u := range urls {
		state, err := frontier.AskRobots(ctx, s, c.UserAgent, u)
		if err != nil {
			return nil, err
		}
		found.urls = append(found.urls, checkedURL{u, state})
	}
	return found, nil
}

// any reports whether a file was read, or is to be read again.
func (h *hostRobots) any() bool {
	for _, f := range h.files {
		if f.Known || f.Refresh {
			return true
		}
	}
	return false
}

// text formats the files for people.
func (h *hostRobots) text() string {
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
func verdictOf(r *frontier.RobotsState) string {
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
func fileFacts(r *frontier.RobotsState) []fact {
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
func ruleFact(r *frontier.RobotsState) string {
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

// robotsReport is the JSON of robots.
type robotsReport struct {
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

func (h *hostRobots) figures() robotsReport {
	report := robotsReport{Host: h.host}
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
