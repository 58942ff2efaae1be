package main

import (
	"context"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// pauseScope is the argument of pause and resume: the whole crawl, or a host.
type pauseScope struct {
	database
	Host string `arg:"" optional:"" help:"A host, or a URL of it. Without it, the whole crawl."`
}

// pauseCmd is "frontier pause".
type pauseCmd struct{ pauseScope }

func (c *pauseCmd) run(ctx context.Context, a *app) int {
	return c.set(ctx, a, store.Store.Pause, func(out *cli.Printer, host string, n store.Counts) {
		if host != "" {
			out.Printf("Host %s is paused: none of its URLs is fetched until \"frontier resume %s\".\n", host, host)
			if n.Paused {
				out.Printf("The whole crawl is paused too.\n")
			}
			return
		}
		out.Printf("The crawl is paused: no URL is fetched until \"frontier resume\".\n")
		if n.Fetching > 0 {
			out.Printf("%s in flight, and will end.\n", isAre(n.Fetching, "fetch", "fetches"))
		}
	})
}

// resumeCmd is "frontier resume".
type resumeCmd struct{ pauseScope }

func (c *resumeCmd) run(ctx context.Context, a *app) int {
	return c.set(ctx, a, store.Store.Resume, func(out *cli.Printer, host string, n store.Counts) {
		if host != "" {
			out.Printf("Host %s is not paused.\n", host)
			if n.Paused {
				out.Printf("But the whole crawl is paused: \"frontier resume\" continues it.\n")
			}
			return
		}
		out.Printf("The crawl is not paused.\n")
		if n.HostsPaused > 0 {
			out.Printf("Hosts with a pause of their own: %d.\n", n.HostsPaused)
		}
	})
}

// set pauses or resumes, and prints the result.
func (c *pauseScope) set(ctx context.Context, a *app, change func(store.Store, context.Context, string) error,
	show func(out *cli.Printer, host string, n store.Counts)) int {
	host, err := c.Host, error(nil)
	if host != "" {
		host, err = hostKey(c.Host)
	}
	if err != nil {
		return a.end(ctx, err)
	}
	return c.withHost(ctx, a, existing, host, func(s store.Store, note string) error {
		if err := change(s, ctx, host); err != nil {
			return err
		}
		n, err := s.Counts(ctx)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		show(out, host, n)
		out.Printf("%s", note)
		return out.End()
	})
}
