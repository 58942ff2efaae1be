package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// retry makes URLs pending and prints the result, with a note.
func (c *retryCmd) retry(ctx context.Context, a *app, s store.Store, host, note string) error {
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
func (c *retryCmd) clearLeftOut(ctx context.Context, s store.Store) error {
	switch {
	case c.FetchedBefore != nil && *c.FetchedBefore == 0:
		return crawl.ClearLeftOut(ctx, s, crawl.OverURLs, crawl.OverHostURLs)
	case c.FetchedBefore == nil && (c.Class == nil || *c.Class == frontier.ClassOverBudget):
		return crawl.ClearLeftOut(ctx, s, crawl.OverHosts)
	}
	return nil
}

// again makes URLs pending. It returns their number and a description of one and of many of them.
func (c *retryCmd) again(ctx context.Context, s store.Store, host string, progress func(int64)) (n int64, one, many string, err error) {
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

// pruneCmd is "frontier prune".
type pruneCmd struct {
	database
	OutcomesBefore *time.Duration `placeholder:"DURATION" help:"Delete outcomes that are at least this old, such as 2160h; 0s means all but the last one."`
	URLs           []string       `name:"urls" placeholder:"STATUS" help:"Delete URLs in these states: pending, fetched, failed, dead."`
	Before         *time.Duration `placeholder:"DURATION" help:"Only URLs whose last fetch ended at least this long ago. URLs that were never fetched stay."`
	Host           *string        `placeholder:"HOST" help:"Only URLs of this host, such as example.org:8080, or of the host of a URL."`
	Hosts          bool           `help:"Delete hosts without URLs that politeness does not need, robots.txt of hosts without URLs, and workers that vanished a day ago."`
	DryRun         bool           `help:"Only count."`
}

func (c *pruneCmd) run(ctx context.Context, a *app) int {
	params, err := c.params()
	if err != nil {
		return a.end(ctx, err)
	}
	m := existing
	if c.DryRun {
		m = readOnly
	}
	return c.withHost(ctx, a, m, params.Host, func(s store.Store, note string) error {
		return c.prune(ctx, a, s, params, note)
	})
}

func (c *pruneCmd) params() (store.PruneParams, error) {
	p := store.PruneParams{OutcomesAge: c.OutcomesBefore, URLsAge: c.Before, Hosts: c.Hosts, DryRun: c.DryRun}
	for _, name := range c.URLs {
		status := store.Status(name)
		if !slices.Contains([]store.Status{store.Pending, store.Fetched, store.Failed, store.Dead}, status) {
			return p, cli.UsageError("--urls", fmt.Sprintf("%.80q is not a state of URLs to delete: give pending, fetched, failed or dead", name))
		}
		p.URLs = append(p.URLs, status)
	}
	if c.Host != nil {
		var err error
		if p.Host, err = hostKey(*c.Host); err != nil {
			return p, err
		}
	}
	for _, age := range []struct {
		flag string
		d    *time.Duration
	}{{"--outcomes-before", c.OutcomesBefore}, {"--before", c.Before}} {
		if age.d != nil && *age.d < 0 {
			return p, cli.UsageError(age.flag, fmt.Sprintf("%v is negative: give a duration such as 2160h", *age.d))
		}
	}
	switch {
	case c.Before != nil && len(c.URLs) == 0:
		return p, cli.UsageError("--before", "it is about URLs: add --urls STATUS, or use --outcomes-before")
	case c.Host != nil && len(c.URLs) == 0:
		return p, cli.UsageError("--host", "it is about URLs: add --urls STATUS")
	case c.OutcomesBefore == nil && len(c.URLs) == 0 && !c.Hosts:
		return p, cli.UsageError("prune", "nothing to delete: give --outcomes-before, --urls or --hosts")
	}
	return p, nil
}

// prune deletes rows and prints the result, with a note.
func (c *pruneCmd) prune(ctx context.Context, a *app, s store.Store, params store.PruneParams, note string) error {
	line := progress.NewLine(a.Err)
	done, err := s.Prune(ctx, params, func(p store.Pruned) {
		n := p.Outcomes + p.URLs + p.Hosts + p.Robots
		line.Show(n, cli.Count(n, "row"))
	})
	line.Clear()
	deleted := "deleted "
	if c.DryRun {
		deleted = "would delete "
	}
	deleted += c.list(done)
	return a.changed(ctx, err, done != store.Pruned{}, deleted, "Run the same command again to continue.", note)
}

// list names what was deleted: "5 outcomes, 1 URL".
func (c *pruneCmd) list(p store.Pruned) string {
	var parts []string
	if c.OutcomesBefore != nil {
		parts = append(parts, cli.Count(p.Outcomes, "outcome"))
	}
	if len(c.URLs) > 0 {
		parts = append(parts, cli.Count(p.URLs, "URL"))
	}
	if c.Hosts {
		parts = append(parts, cli.Count(p.Hosts, "host"), fmt.Sprintf("%d robots.txt", p.Robots), cli.Count(p.Workers, "worker"))
	}
	return strings.Join(parts, ", ")
}
