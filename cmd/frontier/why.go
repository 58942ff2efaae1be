package main

import (
	"context"
	"errors"

	"fetchd/cmd/frontier/show"
	"fetchd/frontier/rulebook"
	"fetchd/frontier/store"
	"fetchd/frontier/why"
	"fetchd/internal/cli"
)

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
		e, err := evidence(ctx, s, c.UserAgent, url)
		if errors.Is(err, store.ErrUnknownURL) {
			a.Errorf(`the frontier does not have %s: add it with "frontier add"`, url)
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

// evidence returns everything that is known about a URL in its normal form.
func evidence(ctx context.Context, s store.Store, userAgent, url string) (*why.Evidence, error) {
	found, err := s.Why(ctx, url)
	if err != nil {
		return nil, err
	}
	robots, err := rulebook.Ask(ctx, s, userAgent, url)
	return &why.Evidence{Explanation: found, Robots: robots}, err
}
