package main

import (
	"context"
	"fmt"
	"time"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/progress"
	"fetchd/frontier"
	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// retryCmd is "frontier retry".
type retryCmd struct {
	database
	Class         *string        `placeholder:"CLASS" help:"Only URLs that failed with this error class, such as http_server_error. Without it, all failed URLs."`
	Host          *string        `placeholder:"HOST" help:"Only URLs of this host, such as example.org:8080, or of the host of a URL."`
	FetchedBefore *time.Duration `placeholder:"DURATION" help:"Instead of failed URLs, take those that were fetched at least this long ago, such as 168h; 0s means all fetched URLs."`
}

func (c *retryCmd) run(ctx context.Context, a *app) int {
	host, err := "", c.check()
	if err == nil && c.Host != nil {
		host, err = hostKey(*c.Host)
	}
	if err != nil {
		return a.end(ctx, err)
	}
	return c.withHost(ctx, a, existing, host, func(s store.Store, note string) error {
		return c.retry(ctx, a, s, host, note)
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

// retryStore makes URLs pending again.
type retryStore interface {
	RetryFailed(ctx context.Context, class, host string, progress func(done int64)) (int64, error)
	Refetch(ctx context.Context, age time.Duration, host string, progress func(done int64)) (int64, error)
	crawl.Settings
}

// retry makes URLs pending and prints the result, with a note.
func (c *retryCmd) retry(ctx context.Context, a *app, s retryStore, host, note string) error {
	m := progress.NewLine(a.Err)
	n, one, many, err := c.again(ctx, s, host, func(done int64) { m.Show(done, cli.Count(done, "URL")) })
	m.Clear()
	if err == nil && n > 0 && host == "" {
		err = c.clearLeftOut(ctx, s)
	}
	done := isAre(n, one, many) + " pending again"
	return a.changed(ctx, err, n > 0, done, "They stay pending. Run the same command again to continue with the others.", note)
}

// clearLeftOut clears what the budgets of a crawl have left out of the URLs that are pending again.
func (c *retryCmd) clearLeftOut(ctx context.Context, s retryStore) error {
	switch {
	case c.FetchedBefore != nil && *c.FetchedBefore == 0:
		return crawl.ClearLeftOut(ctx, s, crawl.OverURLs, crawl.OverHostURLs)
	case c.FetchedBefore == nil && (c.Class == nil || *c.Class == frontier.ClassOverBudget):
		return crawl.ClearLeftOut(ctx, s, crawl.OverHosts)
	}
	return nil
}

// again makes URLs pending. It returns their number and a description of one and of many of them.
func (c *retryCmd) again(ctx context.Context, s retryStore, host string, progress func(int64)) (n int64, one, many string, err error) {
	of, which := "", "failed"
	if host != "" {
		of = " of " + host
	}
	verb := [2]string{"that had", "that had"}
	switch {
	case c.FetchedBefore != nil:
		n, err = s.Refetch(ctx, *c.FetchedBefore, host, progress)
		verb, which = [2]string{"that was", "that were"}, "fetched"
		if *c.FetchedBefore > 0 {
			which += fmt.Sprintf(" at least %v ago", *c.FetchedBefore)
		}
	case c.Class != nil:
		n, err = s.RetryFailed(ctx, *c.Class, host, progress)
		which = "failed with " + *c.Class
	default:
		n, err = s.RetryFailed(ctx, "", host, progress)
	}
	return n, fmt.Sprintf("URL%s %s %s", of, verb[0], which), fmt.Sprintf("URLs%s %s %s", of, verb[1], which), err
}
