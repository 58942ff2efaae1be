package main

import (
	"context"
	"fmt"

	"fetchd/frontier/store"
	"fetchd/internal/cli"
)

// pauseCmd is "frontier pause".
type pauseCmd struct {
	database
	Host string `arg:"" optional:"" help:"A host, or a URL of it. Without one, the whole crawl."`
}

func (c *pauseCmd) run(ctx context.Context, a *app) int {
	host, err := optionalHost(c.Host)
	if err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, existing, func(s store.Store) error {
		if host == "" {
			return pauseCrawl(ctx, a, s)
		}
		note, err := strange(ctx, s, host)
		if err != nil {
			return err
		}
		if err := s.Pause(ctx, host); err != nil {
			return err
		}
		n, err := s.Counts(ctx)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		out.Printf("Host %s is paused: nothing of it is claimed until \"frontier resume %s\".\n", host, host)
		if n.Paused {
			out.Printf("So is the crawl as a whole.\n")
		}
		out.Printf("%s", note)
		return out.End()
	})
}

func pauseCrawl(ctx context.Context, a *app, s store.Store) error {
	if err := s.Pause(ctx, ""); err != nil {
		return err
	}
	n, err := s.Counts(ctx)
	if err != nil {
		return err
	}
	out := &cli.Printer{W: a.Out}
	out.Printf("The crawl is paused: nothing is claimed until \"frontier resume\".\n")
	if n.Fetching > 0 {
		out.Printf("%s under way, and will end.\n", isAre(n.Fetching, "fetch", "fetches"))
	}
	return out.End()
}

// resumeCmd is "frontier resume".
type resumeCmd struct {
	database
	Host string `arg:"" optional:"" help:"A host, or a URL of it. Without one, the whole crawl."`
}

func (c *resumeCmd) run(ctx context.Context, a *app) int {
	host, err := optionalHost(c.Host)
	if err != nil {
		return a.end(ctx, err)
	}
	return c.with(ctx, a, existing, func(s store.Store) error {
		if host == "" {
			return resumeCrawl(ctx, a, s)
		}
		note, err := strange(ctx, s, host)
		if err != nil {
			return err
		}
		if err := s.Resume(ctx, host); err != nil {
			return err
		}
		n, err := s.Counts(ctx)
		if err != nil {
			return err
		}
		out := &cli.Printer{W: a.Out}
		out.Printf("Host %s is not paused.\n", host)
		if n.Paused {
			out.Printf("But the crawl as a whole is: \"frontier resume\" takes that back.\n")
		}
		out.Printf("%s", note)
		return out.End()
	})
}

func resumeCrawl(ctx context.Context, a *app, s store.Store) error {
	if err := s.Resume(ctx, ""); err != nil {
		return err
	}
	n, err := s.Counts(ctx)
	if err != nil {
		return err
	}
	out := &cli.Printer{W: a.Out}
	out.Printf("The crawl is not paused.\n")
	if n.HostsPaused > 0 {
		out.Printf("Hosts that are paused for themselves: %d.\n", n.HostsPaused)
	}
	return out.End()
}

// optionalHost is hostKey of an argument that may be left out.
func optionalHost(arg string) (string, error) {
	if arg == "" {
		return "", nil
	}
	return hostKey(arg)
}

// isAre writes a number with its noun and the verb: "1 fetch is", "2 fetches are".
func isAre(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one + " is"
	}
	return fmt.Sprintf("%d %s are", n, many)
}
