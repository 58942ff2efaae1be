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
	Class         *string        `placeholder:"CLASS" help:"Only what failed in this class, such as http_server_error. Without it, whatever failed."`
	FetchedBefore *time.Duration `placeholder:"DURATION" help:"Fetch again what was fetched at least so long ago, such as 168h, and leave alone what failed; 0s is all that was fetched."`
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
		return cli.UsageError("--fetched-before", "what was fetched has no error class: leave out --class")
	case *c.FetchedBefore < 0:
		return cli.UsageError("--fetched-before", fmt.Sprintf("%v is negative: give a duration such as 168h, or 0s for all", *c.FetchedBefore))
	}
	return nil
}

// again makes URLs pending, and says how many and what one and many of them are.
func (c *retryCmd) again(ctx context.Context, s store.Store) (n int64, one, many string, err error) {
	switch {
	case c.FetchedBefore != nil:
		n, err = s.Refetch(ctx, *c.FetchedBefore)
		age := ""
		if *c.FetchedBefore > 0 {
			age = fmt.Sprintf(" %v ago or before", *c.FetchedBefore)
		}
		return n, "URL that was fetched" + age, "URLs that were fetched" + age, err
	case c.Class != nil:
		n, err = s.RetryFailed(ctx, *c.Class)
		return n, "URL that had failed with " + *c.Class, "URLs that had failed with " + *c.Class, err
	}
	n, err = s.RetryFailed(ctx, "")
	return n, "URL that had failed", "URLs that had failed", err
}
