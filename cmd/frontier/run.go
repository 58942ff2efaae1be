package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fetchd/cmd/frontier/crawl"
	"fetchd/cmd/frontier/demo"
	"fetchd/cmd/frontier/worker"
	"fetchd/internal/cli"
)

// runCmd is "frontier run".
type runCmd struct {
	workerFlags
	Demo bool `help:"Crawl a built-in site of 300 hosts on loopback, with a temporary database, and check the result."`
}

// demoFlags are the flags that --demo accepts.
var demoFlags = []string{"demo", "open", "drain-time", "log-level", "quiet"}

func (c *runCmd) run(ctx context.Context, a *app) int {
	if c.Demo {
		if i := slices.IndexFunc(a.given, func(flag string) bool { return !slices.Contains(demoFlags, flag) }); i >= 0 {
			return a.end(ctx, cli.UsageError("--"+a.given[i], "not possible with --demo, which has its own crawl: remove one of the two"))
		}
	}
	w, err := c.worker(a)
	switch {
	case err != nil:
	case c.Demo:
		err = demo.Run(ctx, w, a.Out)
	default:
		err = c.work(ctx, w)
	}
	return a.end(ctx, err)
}

// work opens the frontier and works on it.
func (c *runCmd) work(ctx context.Context, w *worker.Config) error {
	s, err := c.open(ctx, existing, c.storeConfig())
	if err != nil {
		return err
	}
	plan, err := s.Setting(ctx, crawl.Setting)
	switch {
	case err != nil:
	case plan != "": // a run without discovery would lose the links of the pages that it fetches
		err = cli.UsageError("--db", fmt.Sprintf("%s has a crawl: continue it with \"frontier crawl\"", safe(c.DB)))
	default:
		_, err = w.Run(ctx, s)
	}
	return errors.Join(err, s.Close())
}
