package main

import (
	"context"
	"fmt"
	"time"

	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// retryCmd is "frontier retry".
type retryCmd struct {
	database
	Class         *string        `placeholder:"CLASS" help:"Only URLs that failed with this error class, such as http_server_error. Without it, all failed URLs."`
	FetchedBefore *time.Duration `placeholder:"DURATION" help:"Instead of failed URLs, take those that were fetched at least this long ago, such as 168h; 0s means all fetched URLs."`
}

func (c *retryCmd) run(ctx context.Context, a *app) int {
	if err := c.check(); err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, existing, func(s store.Store) error {
		out := &cli.Printer{W: a.Out}
		n, one, many, err := c.again(ctx, s)
		if err != nil {
			return err
		}
		out.Printf("%s pending again.\n", isAre(n, one, many))
		return out.End()
	})
}

func (c *retryCmd) check() error {
	if c.Class != nil {
		if err := frontier.CheckClass(*c.Class); err != nil {
			return cli.UsageError("--class", fmt.Sprint(err))
		}
	}
	switch {
	case c.FetchedBefore == nil:
		return nil
	case c.Class != nil:
		return cli.UsageError("--fetched-before", "fetched URLs have no error class: remove --class")
	case *c.FetchedBefore < 0:
		return cli.UsageError("--fetched-before", fmt.Sprintf("%v is negative: give a duration such as 168h, or 0s for all", *c.FetchedBefore))
	}
	return nil
}

// again makes URLs pending. It returns their number and a description of one and of many of them.
func (c *retryCmd) again(ctx context.Context, s store.Store) (n int64, one, many string, err error) {
	switch {
	case c.FetchedBefore != nil:
		n, err = s.Refetch(ctx, *c.FetchedBefore)
		age := ""
		if *c.FetchedBefore > 0 {
			age = fmt.Sprintf(" at least %v ago", *c.FetchedBefore)
		}
		return n, "URL that was fetched" + age, "URLs that were fetched" + age, err
	case c.Class != nil:
		n, err = s.RetryFailed(ctx, *c.Class)
		return n, "URL that had failed with " + *c.Class, "URLs that had failed with " + *c.Class, err
	}
	n, err = s.RetryFailed(ctx, "")
	return n, "URL that had failed", "URLs that had failed", err
}
