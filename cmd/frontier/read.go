package main

import (
	"context"
	"errors"
	"fmt"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/show"
	"fetchd/frontier/normal"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

// statusCmd is "frontier status".
type statusCmd struct {
	database
	JSON    bool `name:"json" help:"Print one line of JSON."`
	Classes bool `help:"Also count failed URLs by error class. This reads the whole table row by row."`
}

func (c *statusCmd) run(ctx context.Context, a *app) int {
	return c.with(ctx, a, readOnly, func(s store.Store) error {
		n, err := show.ReadStatus(ctx, s, c.Classes)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		if c.JSON {
			writeJSON(out, n)
		} else {
			out.Printf("%s", n.Table())
		}
		return out.End()
	})
}

// whyCmd is "frontier why".
type whyCmd struct {
	database
	URL       string `arg:"" help:"The URL, in any form."`
	JSON      bool   `name:"json" help:"Print one line of JSON."`
	UserAgent string `default:"${agent}" help:"Name of the crawler, as for \"frontier crawl\". Its leading letters, _ and - select the rules of robots.txt."`
}

func (c *whyCmd) run(ctx context.Context, a *app) int {
	url, err := normalURL("URL", c.URL)
	if err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, readOnly, func(s store.Store) error {
		e, err := why.Ask(ctx, s, c.UserAgent, url)
		if errors.Is(err, store.ErrUnknownURL) {
			a.Errorf(`the frontier does not have %s: add it with "frontier add"`, url)
			if text := why.Unknown(url); text != "" {
				a.Hintf("%s", text)
			}
			return cli.PrintedError(cli.ExitNothing, "unknown URL")
		}
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		if c.JSON {
			writeJSON(out, show.ExplanationOf(e))
		} else {
			out.Printf("%s", show.Explain(e))
		}
		return out.End()
	})
}

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

// exportCmd is "frontier export".
type exportCmd struct {
	database
	What   string   `enum:"urls,fetches" default:"urls" help:"urls (each URL with its state) or fetches (each recorded fetch). Default: urls."`
	Output string   `short:"o" placeholder:"FILE" help:"Write to FILE instead of standard output. FILE appears when it is complete."`
	WACZ   string   `name:"wacz" placeholder:"FILE" help:"Pack the WARC files of --warc for replay programs as WACZ, with the pages of the database. FILE appears when it is complete; - is standard output."`
	WARC   []string `name:"warc" sep:"none" placeholder:"DIR" help:"Directory with the WARC files for --wacz. Repeatable."`
}

func (c *exportCmd) run(ctx context.Context, a *app) int {
	if err := c.check(a); err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, readOnly, func(s store.Store) error {
		if c.WACZ != "" {
			return c.pack(ctx, a, s)
		}
		out, err := cli.OpenOutput(c.Output, a.Out)
		if err != nil {
			return err
		}
		defer out.Discard()
		if c.What == "fetches" {
			err = show.Fetches(out, s.Fetches(ctx))
		} else {
			err = show.URLs(out, s.URLs(ctx))
		}
		if err != nil {
			return err
		}
		return out.Keep()
	})
}
