package main

import (
	"context"

	"fetchd/cmd/frontier/show"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// exportCmd is "frontier export".
type exportCmd struct {
	database
	Format string `enum:"jsonl,csv" default:"jsonl" help:"jsonl (one JSON object per line) or csv. Default: jsonl."`
	What   string `enum:"urls,fetches" default:"urls" help:"urls (each URL with its state) or fetches (each recorded fetch). Default: urls."`
	Output string `short:"o" placeholder:"FILE" help:"Write to FILE instead of standard output. FILE appears when it is complete."`
}

func (c *exportCmd) run(ctx context.Context, a *app) int {
	return c.with(ctx, a, readOnly, func(s store.Store) error {
		out, err := cli.OpenOutput(c.Output, a.Out)
		if err != nil {
			return err
		}
		defer out.Discard()
		if c.What == "fetches" {
			err = show.Fetches(out, c.Format, s.Fetches(ctx))
		} else {
			err = show.URLs(out, c.Format, s.URLs(ctx))
		}
		if err != nil {
			return err
		}
		return out.Keep()
	})
}
