package main

import (
	"context"
	"fmt"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/show"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// robotsCmd is "frontier robots".
type robotsCmd struct {
	database
	Host      string   `arg:"" help:"A host, or a URL of it."`
	URL       []string `name:"url" sep:"none" placeholder:"URL" help:"Also say whether this URL of the host is allowed, and by which line. Repeatable."`
	Refresh   bool     `help:"Have the files fetched again, by the next worker that needs them."`
	JSON      bool     `name:"json" help:"Print one line of JSON."`
	UserAgent string   `default:"${agent}" help:"Name of the crawler, as for \"frontier crawl\". Its leading letters, _ and - select the rules."`
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
	return c.withHost(ctx, a, m, host, func(s store.Store, note string) error {
		if c.Refresh {
			if _, err := s.RefreshRobots(ctx, crawl.Origins(host)); err != nil {
				return err
			}
		}
		found, err := show.ReadRobots(ctx, s, c.UserAgent, host, urls)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		if c.JSON {
			writeJSON(out, found.Report())
		} else {
			out.Printf("%s%s", found.Text(), note)
		}
		if err := out.End(); err != nil || found.Any() {
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
